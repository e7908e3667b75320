//! The offset manager: hands out ordinals, each with the range that it stands for.
//!
//! A range is found once, by a walk over keys alone that runs ahead of the copy, and is written down before anything of
//! it is committed. So a chunk that is done again covers the same rows, whatever has changed in between.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, ErrorKind, Result};
use crate::event::{Event, Observer};
use crate::history::{ChunkId, Fate, Journal, Line};
use crate::key::{Key, Range};
use crate::patience::{Patience, answer_limit, answered};
use crate::port::{Boundary, Reader};

/// Which chunks of a source are wanted.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only these ordinals.
    pub only: Option<BTreeSet<u64>>,
    /// Those before are passed over.
    pub from: u64,
    /// Only chunks that failed before.
    pub failed: bool,
    /// Cuts chunks that failed before into so many parts.
    pub split: Option<u64>,
}

impl Selection {
    fn wants(&self, ordinal: u64) -> bool {
        ordinal >= self.from && self.only.as_ref().is_none_or(|only| only.contains(&ordinal))
    }

    /// Whether nothing past this ordinal is wanted.
    fn is_over(&self, ordinal: u64) -> bool {
        self.only.as_ref().is_some_and(|only| only.last().is_none_or(|last| ordinal > *last))
    }

    /// Whether ordinals must mean the same rows in every run.
    fn is_fixed(&self) -> bool {
        self.only.is_some() || self.from > 0
    }
}

/// A chunk to be copied.
#[derive(Clone, Debug)]
pub struct Planned {
    pub chunk: ChunkId,
    pub range: Range,
    /// The number of its line in the journal.
    pub line: u64,
    /// Whether it may have been written before.
    pub is_again: bool,
}

/// How chunks are cut.
pub(crate) struct Offsets {
    pub reader: Arc<dyn Reader>,
    pub journal: Arc<Journal>,
    pub observer: Arc<dyn Observer>,
    pub selection: Selection,
    pub chunksize: u64,
    pub size: Option<u64>,
    pub chunk_bytes: u64,
    /// About how many bytes a row has.
    pub row_bytes: Arc<dyn Fn() -> Option<u64> + Send + Sync>,
    pub give_up_after: std::time::Duration,
    /// Set when a chunk was empty: where the end is unknown, that is it.
    pub at_end: CancellationToken,
}

impl Offsets {
    /// Hands out chunks until the source is at its end, or nobody takes them any more.
    pub async fn run(self, chunks: mpsc::Sender<Planned>) -> Result<()> {
        for planned in self.open_chunks().await? {
            if chunks.send(planned).await.is_err() {
                return Ok(());
            }
        }
        if self.selection.failed || self.journal.with(|history| history.walked) {
            return Ok(());
        }
        self.walk(&chunks).await
    }

    /// What earlier runs planned and did not do.
    async fn open_chunks(&self) -> Result<Vec<Planned>> {
        let mut open = Vec::new();
        for (chunk, known) in self.journal.history().open() {
            let has_failed = matches!(known.fate, Fate::Failed { .. });
            if !self.selection.wants(chunk.ordinal()) || (self.selection.failed && !has_failed) {
                continue;
            }
            let whole = Planned { chunk: chunk.clone(), range: known.range.clone(), line: 0, is_again: true };
            match self.selection.split {
                Some(parts) if has_failed && parts > 1 => open.extend(self.cut(whole, parts).await?),
                _ => open.push(whole),
            }
        }
        Ok(open)
    }

    /// Cuts a chunk that failed into parts.
    async fn cut(&self, whole: Planned, parts: u64) -> Result<Vec<Planned>> {
        let rows = self.chunksize.div_ceil(parts).max(1);
        let mut ranges: Vec<(ChunkId, Range)> = Vec::new();
        let mut after = whole.range.after.clone();
        loop {
            let part = whole.chunk.part(ranges.len() as u64);
            let upper = whole.range.upto.as_ref();
            match self.boundary(after.as_ref(), upper, rows).await? {
                // A source that cannot tell where it ends is cut by the numbers alone.
                Boundary::At(key) if Some(&key) != upper && !is_past(&key, upper) => {
                    ranges.push((part, Range { after, upto: Some(key.clone()) }));
                    after = Some(key);
                }
                _ => {
                    ranges.push((part, Range { after, upto: whole.range.upto.clone() }));
                    break;
                }
            }
        }
        let line = self.journal.append(Line::Cut { chunk: whole.chunk, parts: ranges.clone() })?;
        let planned = |(chunk, range)| Planned { chunk, range, line, is_again: false };
        Ok(ranges.into_iter().map(planned).collect())
    }

    async fn walk(&self, chunks: &mpsc::Sender<Planned>) -> Result<()> {
        let (mut next, upper) = self.journal.with(|history| (history.next.clone(), history.upper.clone()));
        loop {
            if self.at_end.is_cancelled() || self.selection.is_over(next.ordinal) {
                return Ok(());
            }
            let Some(rows) = self.rows_of(next.ordinal) else {
                self.journal.append(Line::Walked)?;
                return Ok(());
            };
            let boundary = self.boundary(next.after.as_ref(), upper.as_ref(), rows).await?;
            let (upto, is_last) = match boundary {
                Boundary::At(key) => {
                    let is_last = upper.as_ref() == Some(&key);
                    (Some(key), is_last)
                }
                Boundary::Last => (upper.clone(), true),
            };
            let range = Range { after: next.after.clone(), upto: upto.clone() };
            let chunk = ChunkId::new(next.ordinal);
            if self.selection.wants(next.ordinal) {
                let line = self.journal.append(Line::Planned { chunk: chunk.clone(), range: range.clone() })?;
                if chunks.send(Planned { chunk, range, line, is_again: false }).await.is_err() {
                    return Ok(());
                }
            } else if let Some(upto) = &upto {
                self.journal.append(Line::Passed { ordinal: next.ordinal, upto: upto.clone() })?;
            }
            if is_last {
                self.journal.append(Line::Walked)?;
                return Ok(());
            }
            next = crate::history::Next { ordinal: next.ordinal + 1, after: upto };
        }
    }

    /// How many rows the chunk is to have; none when enough rows are copied.
    fn rows_of(&self, ordinal: u64) -> Option<u64> {
        let mut rows = self.chunksize;
        if let Some(size) = self.size {
            rows = rows.min(size.checked_sub(ordinal * self.chunksize).filter(|left| *left > 0)?);
        }
        if self.selection.is_fixed() || self.size.is_some() {
            return Some(rows);
        }
        let by_bytes = (self.row_bytes)().map_or(u64::MAX, |bytes| self.chunk_bytes / bytes.max(1));
        Some(rows.min(by_bytes.max(1)))
    }

    async fn boundary(&self, after: Option<&Key>, upper: Option<&Key>, rows: u64) -> Result<Boundary> {
        let mut patience = Patience::new(self.give_up_after);
        let limit = Some(answer_limit(self.give_up_after));
        loop {
            let error = match answered(limit, "source", self.reader.boundary(after, upper, rows)).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => error,
                result => return result,
            };
            let Some(delay) = patience.next_delay() else {
                return Err(error.within("the source cannot be cut"));
            };
            let (message, wait_ms) = (error.chain(), delay.as_millis() as u64);
            self.observer.notify(&Event::Retry { chunk: "walk".to_owned(), message, wait_ms });
            tokio::time::sleep(delay).await;
        }
    }
}

/// Whether a counted position lies at or past the end.
fn is_past(key: &Key, upper: Option<&Key>) -> bool {
    matches!((key.as_int(), upper.and_then(Key::as_int)), (Some(at), Some(end)) if at >= end)
}

/// Reads a list such as `3,7,12-15`.
pub fn parse_ordinals(text: &str) -> Result<BTreeSet<u64>> {
    /// A longer list is a mistake.
    const ORDINALS_MAX: u64 = 1_000_000;
    let wrong = || Error::invalid(format!("{text:?} is no list of offsets: write such as 3,7,12-15"));
    let mut ordinals = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u64 = first.trim().parse().map_err(|_| wrong())?;
        let last: u64 = last.trim().parse().map_err(|_| wrong())?;
        if last < first || last - first > ORDINALS_MAX {
            return Err(wrong());
        }
        ordinals.extend(first..=last);
    }
    Ok(ordinals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_offsets_has_numbers_and_spans() {
        let check = |text: &str, expected: &[u64]| {
            assert_eq!(parse_ordinals(text).unwrap().into_iter().collect::<Vec<_>>(), expected);
        };
        check("3,7,12", &[3, 7, 12]);
        check("0-2, 9", &[0, 1, 2, 9]);
        for text in ["", "a", "3-1", "1,,2", "-1"] {
            assert!(parse_ordinals(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_what_is_asked_for_is_wanted() {
        let only = Selection { only: Some([3, 7].into()), ..Selection::default() };
        assert!(only.wants(3) && !only.wants(4) && !only.is_over(7) && only.is_over(8));
        let from = Selection { from: 5, ..Selection::default() };
        assert!(!from.wants(4) && from.wants(5) && !from.is_over(1_000_000));
    }
}
