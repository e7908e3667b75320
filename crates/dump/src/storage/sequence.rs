//! Sources that can only be read from the beginning: one cursor, and ranges of counted rows.
//!
//! Ranges are served in the order in which they were asked for, so that chunk after chunk comes from the same cursor,
//! while others are still written. A range before the cursor (a chunk that is tried again) opens a new one and skips.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::error::Result;
use crate::key::{Key, Range};
use crate::port::{Batches, Boundary};
use crate::row::{Batch, RowBatch};

/// All rows of a source, in an order that is the same each time.
#[async_trait]
pub trait Cursor: Send {
    /// The next rows; `None` after the last.
    async fn next(&mut self) -> Result<Option<RowBatch>>;
}

/// Opens a cursor at the beginning.
pub type Open = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Box<dyn Cursor>>> + Send>> + Send + Sync>;

/// Serves ranges of counted rows from one cursor.
pub struct Sequence {
    shared: Arc<Shared>,
}

struct Shared {
    open: Open,
    turns: Mutex<Turns>,
    turned: Notify,
    place: tokio::sync::Mutex<Option<Place>>,
}

#[derive(Default)]
struct Turns {
    next_ticket: u64,
    serving: u64,
    given_back: BTreeSet<u64>,
}

/// A cursor, and how many rows lie behind it.
struct Place {
    cursor: Box<dyn Cursor>,
    position: u64,
    /// Rows that the cursor gave past the end of the last range.
    rest: Option<RowBatch>,
}

impl Sequence {
    pub fn new(open: Open) -> Self {
        let shared = Shared { open, turns: Mutex::default(), turned: Notify::new(), place: Default::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Where a chunk ends is known without looking; whether it has rows is not.
    pub fn boundary(after: Option<&Key>, rows: u64) -> Boundary {
        Boundary::At(Key::int(position(after).saturating_add(rows) as i64))
    }

    /// The rows of a range, once those that were asked for before have been read.
    pub fn read(&self, range: &Range) -> Batches {
        let ticket = Ticket::take(&self.shared);
        let (from, to) =
            (position(range.after.as_ref()), range.upto.as_ref().map_or(u64::MAX, |key| position(Some(key))));
        Box::pin(stream::try_unfold((ticket, from), move |(ticket, at)| async move {
            if at >= to {
                return Ok(None);
            }
            ticket.wait().await;
            let mut place = ticket.shared.place.lock().await;
            let batch = ticket.shared.rows_at(&mut place, at, to).await?;
            drop(place);
            Ok(batch.map(|batch| {
                let at = at + batch.rows.len() as u64;
                (Batch::Rows(batch), (ticket, at))
            }))
        }))
    }
}

fn position(key: Option<&Key>) -> u64 {
    key.and_then(Key::as_int).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

impl Shared {
    /// Some rows from `at` on, none past `to`.
    async fn rows_at(&self, place: &mut Option<Place>, at: u64, to: u64) -> Result<Option<RowBatch>> {
        if place.as_ref().is_none_or(|place| place.position > at) {
            *place = Some(Place { cursor: (self.open)().await?, position: 0, rest: None });
        }
        // A cursor that fails half-way is not to be trusted: it is put back only when it did well.
        let mut taken = place.take().expect("it was opened just now");
        loop {
            let Some(mut batch) = taken.next().await? else {
                *place = Some(taken);
                return Ok(None);
            };
            let rows = batch.rows.len() as u64;
            let skip = at.saturating_sub(taken.position).min(rows);
            if skip == rows {
                taken.position += rows;
                continue;
            }
            batch.rows.drain(..skip as usize);
            taken.position += skip;
            let wanted = (to - at).min(batch.rows.len() as u64);
            let rest = batch.rows.split_off(wanted as usize);
            taken.position += wanted;
            if !rest.is_empty() {
                taken.rest = Some(RowBatch { names: Arc::clone(&batch.names), rows: rest, bytes: 0 });
            }
            *place = Some(taken);
            return Ok(Some(batch));
        }
    }
}

impl Place {
    async fn next(&mut self) -> Result<Option<RowBatch>> {
        match self.rest.take() {
            Some(rest) => Ok(Some(rest)),
            None => self.cursor.next().await,
        }
    }
}

/// A turn at the cursor; given back when it is dropped.
struct Ticket {
    shared: Arc<Shared>,
    number: u64,
}

impl Ticket {
    fn take(shared: &Arc<Shared>) -> Self {
        let mut turns = shared.turns.lock();
        turns.next_ticket += 1;
        Self { shared: Arc::clone(shared), number: turns.next_ticket - 1 }
    }

    async fn wait(&self) {
        loop {
            let turned = self.shared.turned.notified();
            tokio::pin!(turned);
            turned.as_mut().enable();
            if self.shared.turns.lock().serving == self.number {
                return;
            }
            turned.await;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut turns = self.shared.turns.lock();
        turns.given_back.insert(self.number);
        loop {
            let serving = turns.serving;
            if !turns.given_back.remove(&serving) {
                break;
            }
            turns.serving += 1;
        }
        self.shared.turned.notify_waiters();
    }
}
