//! What has been done, so that nothing is done again.
//!
//! While a copy runs, its history is a journal: lines that are only added. A chunk is written down, with its range,
//! before its rows are committed; the wait for the disk is in [`Journal::sync`]. At the end, or at a failure, the
//! journal becomes a JSON file for people, and the next run reads both.

mod chunk;
mod journal;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::chunk::ChunkId;
pub use self::journal::Journal;
use crate::error::{Error, Result};
use crate::key::{Key, Range};

/// The history of one copy.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// Names the copy in the ledger of the target.
    pub job: String,
    /// Of the job as it was at the start.
    pub fingerprint: String,
    pub from: String,
    pub to: String,
    pub state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether the target has been made ready.
    pub prepared: bool,
    /// Where the source ended when the copy began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<Key>,
    /// The next chunk to be cut.
    pub next: Next,
    /// Whether the source has been cut to its end.
    pub walked: bool,
    pub chunks: BTreeMap<ChunkId, Chunk>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    #[default]
    Running,
    /// Everything is copied.
    Ended,
    /// The walk is over, and some chunks have failed.
    Incomplete,
    Failed,
    Interrupted,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Next {
    pub ordinal: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Key>,
}

/// One chunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    pub range: Range,
    #[serde(flatten)]
    pub fate: Fate,
}

/// What became of a chunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Fate {
    Planned,
    Done(Done),
    Failed {
        message: String,
    },
    /// Its range is that of its parts now.
    Cut,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Done {
    pub rows: u64,
    pub bytes: u64,
    pub ms: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rejects: u64,
    /// Of the rows as they were written, where they are to be verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One line of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    Started {
        job: String,
        fingerprint: String,
        from: String,
        to: String,
        upper: Option<Key>,
    },
    Prepared,
    Planned {
        chunk: ChunkId,
        range: Range,
    },
    /// Chunks that were not asked for are passed over.
    Passed {
        ordinal: u64,
        upto: Key,
    },
    Walked,
    Done {
        chunk: ChunkId,
        done: Done,
    },
    Failed {
        chunk: ChunkId,
        message: String,
    },
    Cut {
        chunk: ChunkId,
        parts: Vec<(ChunkId, Range)>,
    },
    State {
        state: State,
        message: Option<String>,
    },
}

impl History {
    /// Applies a line. To apply it again changes nothing.
    pub fn apply(&mut self, line: Line) {
        match line {
            Line::Started { job, fingerprint, from, to, upper } => {
                if self.job != job {
                    *self = Self { job, fingerprint, from, to, upper, ..Self::default() };
                }
            }
            Line::Prepared => self.prepared = true,
            Line::Planned { chunk, range } => {
                self.advance(chunk.ordinal() + 1, range.upto.as_ref());
                self.chunks.entry(chunk).or_insert(Chunk { range, fate: Fate::Planned });
            }
            Line::Passed { ordinal, upto } => self.advance(ordinal + 1, Some(&upto)),
            Line::Walked => self.walked = true,
            Line::Done { chunk, done } => self.set(&chunk, Fate::Done(done)),
            Line::Failed { chunk, message } => {
                let is_done = matches!(self.chunks.get(&chunk), Some(Chunk { fate: Fate::Done(_), .. }));
                if !is_done {
                    self.set(&chunk, Fate::Failed { message });
                }
            }
            Line::Cut { chunk, parts } => {
                self.set(&chunk, Fate::Cut);
                for (part, range) in parts {
                    self.chunks.entry(part).or_insert(Chunk { range, fate: Fate::Planned });
                }
            }
            Line::State { state, message } => (self.state, self.message) = (state, message),
        }
    }

    fn set(&mut self, chunk: &ChunkId, fate: Fate) {
        if let Some(chunk) = self.chunks.get_mut(chunk) {
            chunk.fate = fate;
        }
    }

    fn advance(&mut self, ordinal: u64, after: Option<&Key>) {
        if ordinal > self.next.ordinal {
            self.next = Next { ordinal, after: after.cloned() };
        }
    }

    /// The chunks that are not done.
    pub fn open(&self) -> impl Iterator<Item = (&ChunkId, &Chunk)> {
        self.chunks.iter().filter(|(_, chunk)| matches!(chunk.fate, Fate::Planned | Fate::Failed { .. }))
    }

    pub fn failed(&self) -> impl Iterator<Item = (&ChunkId, &Chunk, &str)> {
        self.chunks.iter().filter_map(|(id, chunk)| match &chunk.fate {
            Fate::Failed { message } => Some((id, chunk, message.as_str())),
            _ => None,
        })
    }

    pub fn done(&self) -> impl Iterator<Item = (&ChunkId, &Range, &Done)> {
        self.chunks.iter().filter_map(|(id, chunk)| match &chunk.fate {
            Fate::Done(done) => Some((id, &chunk.range, done)),
            _ => None,
        })
    }

    /// Rows, bytes and rejects of what is done.
    pub fn totals(&self) -> (u64, u64, u64) {
        self.done().fold((0, 0, 0), |(rows, bytes, rejects), (_, _, done)| {
            (rows + done.rows, bytes + done.bytes, rejects + done.rejects)
        })
    }
}

/// Where the history of a job is: beside it.
#[derive(Clone, Debug)]
pub struct Place {
    base: PathBuf,
}

impl Place {
    /// `users.toml` has `users.history.json`, `users.journal` and `users.rejects.ndjson`.
    pub fn of_job(job: &Path) -> Self {
        Self { base: job.with_extension("") }
    }

    /// Without a job file, a name made from what is copied.
    pub fn of_fingerprint(fingerprint: &str) -> Self {
        Self { base: PathBuf::from(format!("flare-dump-{}", &fingerprint[..8.min(fingerprint.len())])) }
    }

    pub fn base(&self) -> &Path {
        &self.base
    }

    pub fn history(&self) -> PathBuf {
        self.with(".history.json")
    }

    pub fn journal(&self) -> PathBuf {
        self.with(".journal")
    }

    fn with(&self, end: &str) -> PathBuf {
        let mut name = self.base.as_os_str().to_owned();
        name.push(end);
        name.into()
    }

    /// What is known of earlier runs; nothing if there were none.
    pub fn load(&self) -> Result<Option<History>> {
        let read = |path: &Path| match std::fs::read(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(format!("cannot read {}", path.display()), error)),
        };
        let (whole, lines) = (read(&self.history())?, read(&self.journal())?);
        let mut history = match &whole {
            None => History::default(),
            Some(text) => serde_json::from_slice(text).map_err(|error| {
                let path = self.history();
                Error::invalid(format!("{} is not a history", path.display())).because(error)
            })?,
        };
        journal::replay(&mut history, lines.as_deref().unwrap_or_default());
        Ok((!history.job.is_empty()).then_some(history))
    }
}

#[cfg(test)]
mod tests;
