//! Changes that a newer one has replaced: kept for a while, then forgotten.
//!
//! A write leaves the row of the change that it replaces where it is: outlets that want every revision read it, and
//! nothing is removed on the hot path. Rows of the clock say how far the sequences had come at which time. A sweep goes
//! through the sequences of a time span once, and removes what is replaced. What is replaced after the sweep has passed
//! it is removed by the write that replaces it.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use flare_core::{Result, Sequence, StreamId, document::DocumentWrite};
use jiff::Timestamp;

use crate::{
    Durability, KeyValue, KeyValueStore, Table, blocking,
    documents::is_newest,
    keys,
    rows::{self, Swept},
    transaction::Transaction,
};

/// How exactly the clock is kept.
const CLOCK_INTERVAL: Duration = Duration::from_secs(60);
/// Rows looked at in one step of a sweep.
const SWEEP_ROWS_MAX: usize = 1024;

/// What the writer needs to know.
pub(crate) struct History {
    /// A replaced change up to this sequence is removed at once.
    swept_to: AtomicU64,
    /// When the clock was last noted, in milliseconds.
    clock_at: AtomicI64,
}

impl History {
    pub fn open(map: &dyn KeyValue, is_kept: bool) -> Result<Arc<Self>> {
        let swept_to = if is_kept { Swept::read(map)?.to } else { Sequence::MAX };
        Ok(Arc::new(Self { swept_to: AtomicU64::new(swept_to.0), clock_at: AtomicI64::new(0) }))
    }

    /// Whether a change that was just replaced is to be removed.
    pub fn is_over(&self, replaced: Sequence) -> bool {
        replaced.0 <= self.swept_to.load(Ordering::Relaxed)
    }

    /// Notes how far the sequences are, from time to time.
    pub fn note_clock(&self, transaction: &mut Transaction<'_>, writes: &[DocumentWrite]) {
        let Some(at) = writes.last().map(|write| write.at) else { return };
        let last = self.clock_at.load(Ordering::Relaxed);
        if at.as_millisecond().saturating_sub(last) >= CLOCK_INTERVAL.as_millis() as i64 {
            self.clock_at.store(at.as_millisecond(), Ordering::Relaxed);
            // What comes from here on is later; what was before is not.
            transaction.put(Table::Meta, keys::clock(at), rows::encode_cursor(transaction.sequence()));
        }
    }
}

impl KeyValueStore {
    /// The last sequence that was given out at this time or before, about to the minute; the first if nobody knows.
    pub(crate) fn clock_at(&self, time: Timestamp) -> Result<Sequence> {
        let mut found = Ok(Sequence::START);
        self.map.scan(Table::Meta, keys::CLOCK, &keys::after(&keys::clock(time)), &mut |_, row| {
            found = rows::decode_cursor(&row);
            if found.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        found
    }

    pub(crate) async fn sweep_changes(&self, older_than: Timestamp) -> Result<u64> {
        let from = Swept::read(&*self.map)?.from;
        let to = self.clock_at(older_than)?.min(self.writer.head());
        if to <= from {
            return Ok(0);
        }
        // From here on writers remove by themselves what they replace up to there, so that nothing slips through.
        self.note_swept(Swept { from, to }).await?;
        self.history.swept_to.fetch_max(to.0, Ordering::Relaxed);
        let mut removed = 0;
        for stream in self.stream_ids()? {
            removed += self.sweep_stream(stream, from, to).await?;
        }
        self.note_swept(Swept { from: to, to }).await?;
        self.forget_clock(older_than).await?;
        Ok(removed)
    }

    async fn sweep_stream(&self, stream: StreamId, from: Sequence, to: Sequence) -> Result<u64> {
        let mut removed = 0;
        let mut after = from;
        while after < to {
            let (map, durable) = (self.map.clone(), self.writer.head());
            let (position, replaced) = blocking(move || replaced(&*map, stream, after, to, durable)).await?;
            after = position;
            removed += replaced.len() as u64;
            self.remove(Table::Changes, replaced).await?;
        }
        Ok(removed)
    }

    async fn forget_clock(&self, before: Timestamp) -> Result<()> {
        let mut past = Vec::new();
        self.map.scan(Table::Meta, keys::CLOCK, &keys::clock(before), &mut |key, _| {
            past.push(key);
            ControlFlow::Continue(())
        })?;
        // The last one still tells how far the sequences were at that time.
        past.pop();
        self.remove(Table::Meta, past).await
    }

    async fn note_swept(&self, swept: Swept) -> Result<()> {
        let note = move |transaction: &mut Transaction<'_>| {
            transaction.put(Table::Meta, Bytes::from_static(keys::SWEPT), swept.encode());
            Ok(())
        };
        self.writer.transact(Durability::Now, note).await
    }

    /// Removes rows that nobody waits for.
    pub(crate) async fn remove(&self, table: Table, keys: Vec<Bytes>) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let remove = move |transaction: &mut Transaction<'_>| {
            keys.into_iter().for_each(|key| transaction.remove(table, key));
            Ok(())
        };
        self.writer.transact(Durability::Later, remove).await
    }

    fn stream_ids(&self) -> Result<Vec<StreamId>> {
        let mut ids = Vec::new();
        self.map.scan(Table::Meta, keys::STREAMS, &keys::after_prefix(keys::STREAMS), &mut |key, _| {
            ids.extend(keys::tail::<16>(&key).map(StreamId::from_bytes));
            ControlFlow::Continue(())
        })?;
        Ok(ids)
    }
}

/// The keys of replaced changes after `after`, and how far they were looked for.
fn replaced(
    map: &dyn KeyValue,
    stream: StreamId,
    after: Sequence,
    to: Sequence,
    durable: Sequence,
) -> Result<(Sequence, Vec<Bytes>)> {
    let mut position = to;
    let mut found = Vec::new();
    let mut failure = None;
    let mut looked = 0;
    map.scan(
        Table::Changes,
        &keys::change(stream, after.next()),
        &keys::change(stream, to.next()),
        &mut |key, row| {
            match is_newest(map, stream, &key, row, durable) {
                Ok((_, true)) => {}
                Ok((_, false)) => found.push(key.clone()),
                Err(error) => failure = Some(error),
            }
            looked += 1;
            if failure.is_none() && looked < SWEEP_ROWS_MAX {
                return ControlFlow::Continue(());
            }
            position = keys::sequence_of_change(&key);
            ControlFlow::Break(())
        },
    )?;
    failure.map_or(Ok((position, found)), Err)
}
