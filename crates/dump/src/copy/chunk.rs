//! One attempt at one chunk: read, map, write, commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Shared;
use super::bisect;
use super::reading::{Ahead, Reading};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Progress;
use crate::history::{ChunkId, Done};
use crate::mapping::Reject;
use crate::offsets::Planned;
use crate::patience::answered;
use crate::port::ChunkWriter;
use crate::row::{Batch, RowBatch};
use crate::verify::Checksum;

/// What an attempt has done so far.
#[derive(Default)]
struct Tally {
    rows: u64,
    bytes: u64,
    /// Rows that were read, good or bad.
    seen: u64,
    rejects: Vec<Reject>,
    checksum: Option<Checksum>,
}

/// How rows are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// In whole batches, which a bad row spoils.
    Fast,
    /// In halves, until the bad row is found.
    Careful,
}

impl Shared {
    /// The chunk, once. If a row spoils it, it is done again more carefully.
    pub(super) async fn chunk(
        self: &Arc<Self>,
        planned: &Planned,
        is_again: bool,
        ahead: Option<Ahead>,
    ) -> Result<Done> {
        if is_again && let Some(done) = self.ledger(&planned.chunk).await? {
            return Ok(done);
        }
        let reading = match ahead {
            Some(ahead) => ahead.begin(self),
            None => self.read(&planned.range, self.is_raw).begin(self),
        };
        match self.write(planned, reading, Pace::Fast).await {
            Err(error) if error.kind() == ErrorKind::Rejected => {
                self.write(planned, self.read(&planned.range, false).begin(self), Pace::Careful).await
            }
            result => result,
        }
    }

    /// What the target knows of a chunk. Its bytes and its checksum are not in the ledger.
    async fn ledger(&self, chunk: &ChunkId) -> Result<Option<Done>> {
        let done = self.at_target(self.session.writer.done(&chunk.to_string())).await?;
        // To be verified, its rows must be read again.
        let done = done.filter(|_| !self.session.job.verify);
        Ok(done.map(|written| Done { rows: written.rows, rejects: self.rejects.count(chunk), ..Done::default() }))
    }

    /// Waits for the target. What it says of a row is said of the row alone.
    pub(super) async fn at_target<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = answered(self.write_limit(), "target", answer).await;
        answer.map_err(|error| match error.kind() {
            ErrorKind::Rejected => error,
            _ => error.within(format_args!("target {}", self.session.target)),
        })
    }

    async fn write(&self, planned: &Planned, batches: Reading, pace: Pace) -> Result<Done> {
        let mut tally = Tally { checksum: self.session.job.verify.then(Checksum::default), ..Tally::default() };
        // The range must be known before its rows are there for good; the wait for the disk is over by then.
        let known = self.journal.sync(planned.line);
        let (known, open) = tokio::join!(known, self.write_rows(planned, batches, pace, &mut tally));
        let Some(writer) = open? else { return Ok(Done::default()) };
        known?;
        self.rejects.keep(&planned.chunk, &tally.rejects)?;
        self.at_target(writer.commit()).await?;
        let rejects = tally.rejects.len() as u64;
        self.rejected.fetch_add(rejects, Ordering::Relaxed);
        Progress::add(&self.progress.rejects, rejects);
        let checksum = tally.checksum.map(|checksum| checksum.to_string());
        Ok(Done { rows: tally.rows, bytes: tally.bytes, ms: 0, rejects, checksum })
    }

    /// Writes all rows, and gives back what is to be committed; nothing if there are none.
    async fn write_rows(
        &self,
        planned: &Planned,
        mut batches: Reading,
        pace: Pace,
        tally: &mut Tally,
    ) -> Result<Option<Box<dyn ChunkWriter>>> {
        let mut open: Option<Box<dyn ChunkWriter>> = None;
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            if open.is_none() {
                let name = planned.chunk.to_string();
                open = Some(self.at_target(self.session.writer.open(&name)).await?);
            }
            let writer = open.as_mut().expect("it was opened just now");
            self.write_batch(planned, writer.as_mut(), batch, pace, tally).await?;
        }
        Ok(open)
    }

    async fn write_batch(
        &self,
        planned: &Planned,
        writer: &mut dyn ChunkWriter,
        batch: Batch,
        pace: Pace,
        tally: &mut Tally,
    ) -> Result<()> {
        let bytes = batch.bytes();
        let batch = match batch {
            Batch::Raw(raw) => {
                let rows = raw.rows;
                self.at_target(writer.write(Batch::Raw(raw))).await?;
                self.count(tally, rows, bytes);
                return Ok(());
            }
            Batch::Rows(batch) => batch,
        };
        let rows = batch.rows.len() as u64;
        let (mapped, rejects) = self.session.mapping.apply(batch, tally.seen)?;
        tally.seen += rows;
        self.refuse(planned, tally, rejects)?;
        let written = mapped.batch.rows.len() as u64;
        if let Some(checksum) = &mut tally.checksum {
            checksum.add(&mapped.batch, &self.session.mapping.schema);
        }
        if pace == Pace::Fast {
            if !mapped.batch.is_empty() {
                self.at_target(writer.write(Batch::Rows(mapped.batch))).await?;
            }
            self.count(tally, written, bytes);
            return Ok(());
        }
        let refused = bisect::write(writer, mapped, self.write_limit()).await?;
        if let Some(checksum) = &mut tally.checksum {
            refused.iter().for_each(|(row, _)| checksum.remove(row, &self.session.mapping.schema));
        }
        self.count(tally, written - refused.len() as u64, bytes);
        self.refuse(planned, tally, refused.into_iter().map(|(_, reject)| reject).collect())
    }

    fn count(&self, tally: &mut Tally, rows: u64, bytes: u64) {
        tally.rows += rows;
        tally.bytes += bytes;
        Progress::add(&self.progress.rows, rows);
        Progress::add(&self.progress.bytes, bytes);
    }

    /// Keeps rows that were refused, as long as they are not too many.
    fn refuse(&self, planned: &Planned, tally: &mut Tally, rejects: Vec<Reject>) -> Result<()> {
        let Some(last) = rejects.last().cloned() else { return Ok(()) };
        tally.rejects.extend(rejects);
        let max = self.session.job.max_rejects;
        if self.rejected.load(Ordering::Relaxed) + tally.rejects.len() as u64 <= max {
            return Ok(());
        }
        // They are worth reading, now more than ever.
        self.rejects.keep(&planned.chunk, &tally.rejects)?;
        Err(Error::invalid(format!(
            "row {} was refused: {}; more than {max} rows are not allowed to be (--max-rejects), see {}",
            last.row + 1,
            last.reason,
            self.rejects.file().display()
        )))
    }
}

/// One row as a batch.
pub(super) fn single(batch: &RowBatch, at: usize) -> RowBatch {
    let mut one = RowBatch::new(Arc::clone(&batch.names));
    one.push(batch.rows[at].clone());
    one
}
