//! What an outlet is busy with: what it has taken up, what is on its way, and what waits for another attempt.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, VecDeque},
    sync::Arc,
};

use flare_core::{DocumentNumber, Sequence, document::Change, queue::Receipt, url::DocumentUrl};
use tokio::time::Instant;

use super::item::Item;
use crate::fast_map::{FastMap, FastSet};

#[derive(Default)]
pub(super) struct Active {
    /// Taken up, not yet started.
    pub buffer: VecDeque<Item>,
    /// Taken from the feed, on the way to the outlet's queue.
    pub outbox: VecDeque<Arc<Change>>,
    /// Hints that are in the queue, as far as is known.
    pub queued: usize,
    /// Messages of the queue that are done with.
    pub released: Vec<Receipt>,
    /// Taken from the feed, not yet handled.
    pub unhandled: BTreeSet<Sequence>,
    pub in_flight: FastMap<DocumentNumber, Flight>,
    /// How many of those in flight are leased.
    pub leased: usize,
    pub retries: FastMap<DocumentNumber, Waiting>,
    /// Documents in the buffer of which an earlier change was tried: the client may have it although it seemed to fail.
    pub tried: FastSet<DocumentNumber>,
    /// When retries are due; entries of retries that are gone or were moved are skipped.
    pub due: BinaryHeap<Reverse<(Instant, DocumentNumber)>>,
}

/// A request on its way.
pub(super) struct Flight {
    pub url: DocumentUrl,
    pub sequence: Option<Sequence>,
    /// The message of the queue that it began with.
    pub receipt: Option<Receipt>,
    /// The newest change that came meanwhile.
    pub next: Option<Item>,
    pub failed: u32,
    /// The store has a retry for the document.
    pub noted: bool,
    /// The newest change that the client may have seen, in this attempt or one before it.
    pub shown: Sequence,
    /// A client that pulls has it.
    pub leased: bool,
    /// Somebody wants the document looked at again.
    pub hinted: bool,
}

/// A document that waits for its next attempt. The store has a retry for it.
pub(super) struct Waiting {
    pub url: DocumentUrl,
    pub due: Instant,
    pub failed: u32,
    /// The newest change that the client may have seen. Nothing older is sent after it.
    pub shown: Sequence,
}

impl Flight {
    /// The client may have seen this change.
    pub fn saw(&mut self, sequence: Sequence) {
        self.shown = self.shown.max(sequence);
    }
}

impl Active {
    pub fn set_off(&mut self, number: DocumentNumber, flight: Flight) {
        self.leased += usize::from(flight.leased);
        self.in_flight.insert(number, flight);
    }

    pub fn land(&mut self, number: DocumentNumber) -> Option<Flight> {
        let flight = self.in_flight.remove(&number)?;
        self.leased -= usize::from(flight.leased);
        Some(flight)
    }

    /// Requests in flight.
    pub fn pushed(&self) -> usize {
        self.in_flight.len() - self.leased
    }

    pub fn is_idle(&self) -> bool {
        let nothing_to_send = self.buffer.is_empty() && self.in_flight.is_empty() && self.retries.is_empty();
        let nothing_queued = self.outbox.is_empty() && self.released.is_empty() && self.queued == 0;
        // What was tried matters only for what is still to be handled.
        nothing_to_send && nothing_queued && self.unhandled.is_empty()
    }

    /// The change needs no attempt of its own any more.
    pub fn handled(&mut self, item: Item) {
        self.unhandled.remove(&item.sequence());
        self.released.extend(item.into_receipt());
    }

    /// What the flight began with needs no attempt any more.
    pub fn handled_flight(&mut self, sequence: Option<Sequence>, receipt: Option<Receipt>) {
        if let Some(sequence) = sequence {
            self.unhandled.remove(&sequence);
        }
        self.released.extend(receipt);
    }

    /// A change of a document that is in flight waits for it, and only the newest does.
    pub fn follow(&mut self, number: DocumentNumber, item: Item) -> Option<Item> {
        let Some(flight) = self.in_flight.get_mut(&number) else { return Some(item) };
        let older = match flight.next.take() {
            Some(next) if next.sequence() > item.sequence() => {
                flight.next = Some(next);
                Some(item)
            }
            next => {
                flight.next = Some(item);
                next
            }
        };
        if let Some(older) = older {
            // A hint may come twice: the change is not handled before the flight has ended.
            let still_there = [flight.sequence, flight.next.as_ref().map(Item::sequence)];
            if !still_there.contains(&Some(older.sequence())) {
                self.unhandled.remove(&older.sequence());
            }
            self.released.extend(older.into_receipt());
        }
        None
    }

    pub fn wait(&mut self, number: DocumentNumber, mut waiting: Waiting) {
        self.due.push(Reverse((waiting.due, number)));
        let shown = self.retries.get(&number).map_or(Sequence::START, |before| before.shown);
        waiting.shown = waiting.shown.max(shown);
        self.retries.insert(number, waiting);
    }

    /// Sends a newer change of a document that was in flight. If the store has a retry for the document, the retry
    /// stands for the change from here on, so that it is never without one or the other.
    pub fn go_on_with(&mut self, next: Item, noted: bool, shown: Sequence, now: Instant) {
        if noted {
            self.wait(next.number(), Waiting { url: next.url().clone(), due: now, failed: 0, shown });
            self.handled(next);
        } else {
            self.buffer.push_front(next);
        }
    }

    pub fn make_all_due(&mut self, now: Instant) {
        self.due.clear();
        for (number, waiting) in &mut self.retries {
            waiting.due = now;
            self.due.push(Reverse((now, *number)));
        }
    }

    pub fn next_due(&mut self) -> Option<Instant> {
        while let Some(Reverse((due, number))) = self.due.peek() {
            if self.retries.get(number).is_some_and(|waiting| waiting.due == *due) {
                return Some(*due);
            }
            self.due.pop();
        }
        None
    }

    pub fn take_due(&mut self, now: Instant) -> Option<(DocumentNumber, Waiting)> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse((_, number)) = self.due.pop()?;
        let waiting = self.retries.remove(&number)?;
        Some((number, waiting))
    }
}
