//! Writes of documents: decided from what the node knows, appended as one group, and done again if another node was
//! first.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use flare_core::{
    Error, Result, Sequence, StreamId,
    document::{DocumentWrite, WriteBody, Written},
    revision::Revision,
    url::DocumentUrl,
};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    Core, apply, entities,
    group::{self, Content, Entry, Reference},
    heads,
    log::{self, Appended, Kind, Turn},
    state::{Group, Placed, State},
};

/// How long callers wait until what they wrote is in the tables. Then they are answered all the same: it is in the log.
const APPLY_MAX: Duration = Duration::from_secs(10);
const APPLY_WAIT: Duration = Duration::from_millis(100);
/// The longest wait after another node was first; each time by chance.
const LOST_WAIT_MAX_MS: u64 = 8;

/// How often other nodes may be first.
pub(crate) const LOST_MAX: usize = 1000;

/// One call of `write`.
pub(crate) type Job = Vec<DocumentWrite>;

/// What is to be appended for a batch of jobs.
#[derive(Default)]
struct Draft {
    entries: Vec<Entry>,
    contents: Vec<Content>,
    counts: BTreeMap<StreamId, u64>,
    /// Of each write of each job, the position of its change.
    answers: Vec<Result<Vec<Option<usize>>>>,
    /// Documents as the changes before leave them.
    changed: FxHashMap<(StreamId, DocumentUrl), Latest>,
}

/// The newest change of a document, in a draft or before it.
#[derive(Clone, Copy)]
struct Latest {
    number: Reference,
    change: Reference,
    revision: Revision,
    deleted: bool,
}

impl Core {
    /// Does the jobs of a batch in order. The answers tell of each job by itself.
    pub async fn write_documents(self: &Arc<Self>, jobs: Vec<Job>) -> Result<Vec<Result<Vec<Written>>>> {
        let mut state = self.state.lock().await;
        self.finish(&mut state).await?;
        let mut group: Option<(Uuid, Vec<Entry>)> = None;
        for _ in 0..LOST_MAX {
            self.load_heads(&mut state, &jobs).await?;
            let draft = draft(&state, &jobs);
            if draft.entries.is_empty() || draft.answers.iter().any(Result::is_err) {
                // Nothing is appended for these, so nothing tells whether the node was up to date.
                if self.catch_up(&mut state).await? > 0 {
                    continue;
                }
                if draft.entries.is_empty() {
                    return Ok(answers(&draft, 0));
                }
            }
            let name = match group.take() {
                // Only its place in the log is another one.
                Some((name, entries)) if entries == draft.entries => name,
                other => {
                    self.forget_group(other.map(|(name, _)| name));
                    let name = Uuid::new_v4();
                    let changes = draft.entries.iter().zip(&draft.contents);
                    group::write_changes(&self.connection, name, changes).await?;
                    name
                }
            };
            let turn = Turn {
                turn: state.turn + 1,
                group: name,
                kind: Kind::Changes,
                last: state.sequence + draft.entries.len() as u64,
                counts: draft.counts.clone(),
            };
            match log::append(&self.connection, &turn).await {
                Ok(Appended::Yes) => return self.commit(&mut state, turn, draft).await,
                Ok(Appended::Lost) => {
                    group = Some((name, draft.entries));
                    if let Err(error) = self.lost(&mut state).await {
                        self.forget_group(Some(name));
                        return Err(error);
                    }
                }
                Err(error) => {
                    if error.kind() == flare_core::ErrorKind::Unavailable {
                        self.forget_group(Some(name));
                    }
                    return Err(error);
                }
            }
        }
        self.forget_group(group.map(|(name, _)| name));
        Err(always_late())
    }

    /// Another node was first: learns what it did.
    pub async fn lost(&self, state: &mut State) -> Result<()> {
        if self.catch_up(state).await? == 0 && !self.jump(state).await? {
            // The other node's turn is decided, but not yet everywhere.
            tokio::time::sleep(Duration::from_millis(1 + chance(LOST_WAIT_MAX_MS))).await;
        }
        // Nodes that lost together do not try again together.
        tokio::time::sleep(Duration::from_millis(chance(LOST_WAIT_MAX_MS))).await;
        Ok(())
    }

    /// The group is in the log: brings it into the tables and tells of it.
    async fn commit(
        self: &Arc<Self>,
        state: &mut State,
        turn: Turn,
        mut draft: Draft,
    ) -> Result<Vec<Result<Vec<Written>>>> {
        let (before, first) = (state.sequence, state.sequence + 1);
        let answers = answers(&draft, first);
        let contents = std::mem::take(&mut draft.contents);
        let changes = draft.entries.iter().zip(contents).enumerate();
        let changes: Vec<_> =
            changes.map(|(position, (entry, content))| Arc::new(entry.change(position, first, content))).collect();
        let group = Group::Changes(draft.entries.into_iter().enumerate().collect());
        self.settle(state, Placed { turn, first, group }).await?;
        self.follower.committed(Sequence(before), changes);
        Ok(answers)
    }

    /// Brings a turn that this node has appended into the tables, now or later, and takes it into account.
    pub async fn settle(&self, state: &mut State, placed: Placed) -> Result<()> {
        let end = Instant::now() + APPLY_MAX;
        loop {
            match apply::apply(self, state, &placed).await {
                Ok(()) => return self.learn(state, &placed),
                Err(error) if Instant::now() >= end => {
                    tracing::warn!(reason = error.chain(), "a write is durable but cannot be read yet");
                    return self.leave_unfinished(state, placed);
                }
                Err(_) => tokio::time::sleep(APPLY_WAIT).await,
            }
        }
    }

    /// Removes a group that is not in the log and never will be.
    fn forget_group(self: &Arc<Self>, group: Option<Uuid>) {
        if let Some(name) = group {
            let core = self.clone();
            crate::spawn(async move { group::remove(&core.connection, name).await });
        }
    }

    /// Reads what the node does not know of the documents of these jobs.
    async fn load_heads(&self, state: &mut State, jobs: &[Job]) -> Result<()> {
        let mut wanted: FxHashMap<StreamId, FxHashSet<&DocumentUrl>> = FxHashMap::default();
        let mut uncounted = FxHashSet::default();
        for write in jobs.iter().flatten().filter(|write| state.streams.contains_key(&write.stream)) {
            if state.heads.get(&(write.stream, write.url.clone())).is_none() {
                wanted.entry(write.stream).or_default().insert(&write.url);
            }
            if !state.counts.contains_key(&write.stream) {
                uncounted.insert(write.stream);
            }
        }
        for stream in uncounted {
            let count = entities::read_count(&self.connection, stream).await?;
            state.counts.insert(stream, count);
        }
        for (stream, urls) in wanted {
            let common = state.streams.get(&stream).copied().unwrap_or_default();
            let found = heads::read(&self.connection, stream, common, urls.iter().copied()).await?;
            for url in urls {
                state.heads.insert((stream, url.clone()), None);
            }
            for (url, head) in found {
                state.heads.insert((stream, url), Some(head));
            }
        }
        Ok(())
    }
}

/// Nothing was written.
pub(crate) fn always_late() -> Error {
    Error::unavailable("other nodes were always first to write to Cassandra")
}

fn chance(max: u64) -> u64 {
    (Uuid::new_v4().as_u128() as u64) % (max + 1)
}

/// What the jobs come to, one after another.
fn draft(state: &State, jobs: &[Job]) -> Draft {
    let mut draft = Draft::default();
    for job in jobs {
        let missing = job.iter().map(|write| write.stream).find(|stream| !state.streams.contains_key(stream));
        let answer = match missing {
            Some(stream) => Err(Error::not_found(format!("stream {stream} does not exist"))),
            None => Ok(job.iter().map(|write| draft.decide(state, write)).collect()),
        };
        draft.answers.push(answer);
    }
    draft
}

impl Draft {
    /// The position of the change that the write is, if it is one.
    fn decide(&mut self, state: &State, write: &DocumentWrite) -> Option<usize> {
        let place = (write.stream, write.url.clone());
        let before = self.changed.get(&place).copied().or_else(|| {
            let head = state.heads.get(&place)?.as_ref()?;
            Some(Latest {
                number: Reference::Sequence(head.number),
                change: Reference::Sequence(head.sequence),
                revision: head.revision,
                deleted: head.deleted,
            })
        });
        let (revision, content) = match &write.body {
            WriteBody::Put { revision, content } => {
                if before.is_some_and(|before| *revision <= before.revision) {
                    return None;
                }
                (*revision, Some(content.clone()))
            }
            WriteBody::Delete { revision } => match (before, *revision) {
                (None, None) => return None,
                (None, Some(revision)) => (revision, None),
                (Some(before), revision) => {
                    let revision = revision.unwrap_or(before.revision);
                    if revision < before.revision || (before.deleted && revision == before.revision) {
                        return None;
                    }
                    (revision, None)
                }
            },
        };
        let position = self.entries.len();
        let own = Reference::Position(position as u32);
        let deleted = content.is_none();
        let number = before.map_or(own, |before| before.number);
        let was_there = before.is_some_and(|before| !before.deleted);
        if was_there == deleted {
            let known = state.counts.get(&write.stream).copied().unwrap_or_default();
            let count = self.counts.entry(write.stream).or_insert(known);
            *count = count.saturating_add_signed(if deleted { -1 } else { 1 });
        }
        let content = Content { content, trace: write.trace.clone() };
        self.entries.push(Entry {
            stream: write.stream,
            url: write.url.clone(),
            number,
            revision,
            updated_at: write.at,
            deleted,
            replaces: before.map(|before| before.change),
            bytes: content.bytes(),
        });
        self.contents.push(content);
        self.changed.insert(place, Latest { number, change: own, revision, deleted });
        Some(position)
    }
}

fn answers(draft: &Draft, first: u64) -> Vec<Result<Vec<Written>>> {
    let written = |position: &Option<usize>| match position {
        Some(position) => Written::Changed(draft.entries[*position].written(*position, first)),
        None => Written::Unchanged,
    };
    draft.answers.iter().map(|answer| answer.clone().map(|job| job.iter().map(written).collect())).collect()
}
