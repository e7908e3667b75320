//! The rules of one outlet: what may be sent when. No I/O, no clock of its own.
//!
//! - Of one document, one request is in flight at a time; a newer change waits behind it, and only the newest does.
//! - Documents do not wait for each other, up to `concurrency` requests.
//! - The cursor follows what is handled: delivered, not wanted, or noted as a retry. It never passes what is not.
//! - An outlet that only fails gets one request at a time until one succeeds; then all its retries are due at once.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, VecDeque},
    sync::Arc,
    time::Duration,
};

use flare_core::{
    DocumentNumber, Sequence,
    document::{Change, Progress, Retry, Version},
    outlet::Outlet,
    stream::Stream,
    url::DocumentUrl,
};
use jiff::Timestamp;
use tokio::time::Instant;

use super::attempt::{Failed, Outcome, Source};
use crate::fast_map::{FastMap, FastSet};

/// So many failures in a row, and the outlet counts as down.
const DOWN_AFTER: u32 = 8;
/// How long to wait when the store could not be read.
const UNREAD_DELAY: Duration = Duration::from_secs(1);

pub(crate) struct OutletState {
    pub outlet: Arc<Outlet>,
    pub stream: Arc<Stream>,
    /// Everything up to here was taken from the feed.
    position: Sequence,
    /// The cursor as the store knows it.
    recorded: Sequence,
    /// Up to here a change may have been delivered before this node took the outlet up.
    unsure_until: Sequence,
    failures_in_a_row: u32,
    /// The feed has nothing past the position, as far as is known.
    pub caught_up: bool,
    /// A page of the feed is on its way from the store.
    pub fetching: bool,
    /// Stands in the slot's list of outlets whose cursor is to be recorded.
    pub in_moved: bool,
    /// Stands in the slot's line of outlets that may have something to send.
    pub in_line: bool,
    /// Nothing of this exists for an outlet at rest: there may be very many of them.
    active: Option<Box<Active>>,
}

#[derive(Default)]
struct Active {
    /// Taken from the feed, not yet started.
    buffer: VecDeque<Arc<Change>>,
    /// Taken from the feed, not yet handled.
    unhandled: BTreeSet<Sequence>,
    in_flight: FastMap<DocumentNumber, Flight>,
    retries: FastMap<DocumentNumber, Waiting>,
    /// Documents in the buffer of which an earlier change was tried: the client may have it although it seemed to fail.
    tried: FastSet<DocumentNumber>,
    /// When retries are due; entries of retries that are gone or were moved are skipped.
    due: BinaryHeap<Reverse<(Instant, DocumentNumber)>>,
}

/// A request on its way.
struct Flight {
    url: DocumentUrl,
    sequence: Option<Sequence>,
    /// The newest change that came meanwhile.
    next: Option<Arc<Change>>,
    failed: u32,
    /// The store has a retry for the document.
    noted: bool,
}

/// A document that waits for its next attempt. The store has a retry for it.
struct Waiting {
    url: DocumentUrl,
    due: Instant,
    failed: u32,
}

/// Something to send now.
pub(crate) struct Start {
    pub number: DocumentNumber,
    pub source: Source,
    pub failed: u32,
}

/// What the end of an attempt means for the counters of the node.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct Settlement {
    pub gave_up: bool,
}

impl OutletState {
    pub fn new(outlet: Arc<Outlet>, stream: Arc<Stream>, cursor: Sequence, head: Sequence) -> Self {
        Self {
            outlet,
            stream,
            position: cursor,
            recorded: cursor,
            unsure_until: head,
            failures_in_a_row: 0,
            caught_up: false,
            fetching: false,
            in_line: false,
            in_moved: false,
            active: None,
        }
    }

    /// Takes up a retry that the store has.
    pub fn restore(&mut self, retry: Retry, now: Instant, clock: Timestamp) {
        let due = now + Duration::try_from(retry.due.duration_since(clock)).unwrap_or_default();
        self.active().wait(retry.number, Waiting { url: retry.url, due, failed: retry.attempts });
    }

    fn active(&mut self) -> &mut Active {
        self.active.get_or_insert_default()
    }

    pub fn position(&self) -> Sequence {
        self.position
    }

    pub fn is_down(&self) -> bool {
        self.failures_in_a_row >= DOWN_AFTER
    }

    fn limit(&self) -> usize {
        if self.is_down() { 1 } else { usize::from(self.outlet.delivery.concurrency) }
    }

    pub fn retries(&self) -> usize {
        self.active.as_ref().map_or(0, |active| active.retries.len())
    }

    /// How many changes could be started now, if the feed had them.
    pub fn demand(&self, retries_max: usize) -> usize {
        let Some(active) = &self.active else { return self.limit() };
        if active.retries.len() >= retries_max {
            return 0;
        }
        self.limit().saturating_sub(active.in_flight.len() + active.buffer.len())
    }

    /// Changes from the feed, in order. The feed was read up to `position`.
    pub fn take(&mut self, changes: impl IntoIterator<Item = Arc<Change>>, position: Sequence) {
        self.position = self.position.max(position);
        for change in changes {
            self.position = self.position.max(change.sequence);
            // The newer change of the same document stands further on in the feed.
            if !change.is_superseded() {
                let active = self.active();
                active.unhandled.insert(change.sequence);
                active.buffer.push_back(change);
            }
        }
    }

    /// The next thing to send, if there is one and it may be sent.
    pub fn next(&mut self, now: Instant) -> Option<Start> {
        let (limit, down, unsure_until) = (self.limit(), self.is_down(), self.unsure_until);
        let active = self.active.as_mut()?;
        if active.in_flight.len() >= limit {
            return None;
        }
        if let Some((number, waiting)) = active.take_due(now) {
            let flight =
                Flight { url: waiting.url.clone(), sequence: None, next: None, failed: waiting.failed, noted: true };
            active.in_flight.insert(number, flight);
            return Some(Start { number, source: Source::Newest(waiting.url), failed: waiting.failed });
        }
        while let Some(change) = active.buffer.pop_front() {
            let number = change.number;
            if change.is_superseded() {
                active.unhandled.remove(&change.sequence);
                continue;
            }
            let tried = active.tried.remove(&number);
            if let Some(flight) = active.in_flight.get_mut(&number) {
                if let Some(older) = flight.next.replace(change) {
                    active.unhandled.remove(&older.sequence);
                }
                continue;
            }
            let noted = match active.retries.get(&number) {
                // The retry will send the newest change when its time has come.
                Some(_) if down => {
                    active.unhandled.remove(&change.sequence);
                    continue;
                }
                // A new revision is a new message: it does not wait for the schedule of the old one.
                Some(_) => active.retries.remove(&number).is_some(),
                None => false,
            };
            let doubtful = tried || noted || change.sequence <= unsure_until;
            let fresh = !doubtful && change.number.0 == change.sequence.0;
            let flight =
                Flight { url: change.url.clone(), sequence: Some(change.sequence), next: None, failed: 0, noted };
            active.in_flight.insert(number, flight);
            return Some(Start { number, source: Source::Change { change, fresh, doubtful }, failed: 0 });
        }
        None
    }

    /// The attempt at a document has ended.
    pub fn finish(
        &mut self,
        number: DocumentNumber,
        outcome: Outcome,
        now: Instant,
        clock: Timestamp,
        jitter: f64,
        record: &mut impl FnMut(Progress),
    ) -> Settlement {
        let Some(flight) = self.active.as_mut().and_then(|active| active.in_flight.remove(&number)) else {
            return Settlement::default();
        };
        match outcome {
            Outcome::Delivered(version) => {
                self.succeeded(now);
                record(Progress::Version { outlet: self.outlet.id, number, version });
                self.settle(number, flight, Some(version), now, record);
                Settlement::default()
            }
            Outcome::UpToDate | Outcome::Discarded => {
                self.settle(number, flight, None, now, record);
                Settlement::default()
            }
            Outcome::Unread(_) => {
                let failed = flight.failed;
                self.put_off(number, flight, failed, UNREAD_DELAY, now, clock, record);
                Settlement::default()
            }
            Outcome::Failed(failure) => self.failed(number, flight, &failure, now, clock, jitter, record),
        }
    }

    fn succeeded(&mut self, now: Instant) {
        if self.is_down() {
            self.active().make_all_due(now);
        }
        self.failures_in_a_row = 0;
    }

    /// The document needs no more attempts for the change that was sent.
    fn settle(
        &mut self,
        number: DocumentNumber,
        flight: Flight,
        version: Option<Version>,
        now: Instant,
        record: &mut impl FnMut(Progress),
    ) {
        let outlet = self.outlet.id;
        let active = self.active();
        if let Some(sequence) = flight.sequence {
            active.unhandled.remove(&sequence);
        }
        match flight.next {
            Some(next) if version.is_none_or(|version| version.sequence < next.sequence) => {
                active.go_on_with(next, flight.noted, now);
            }
            next => {
                if let Some(known) = next {
                    active.unhandled.remove(&known.sequence);
                }
                if flight.noted {
                    record(Progress::Settled { outlet, number });
                }
            }
        }
        self.rest_if_idle();
    }

    #[allow(clippy::too_many_arguments, reason = "the clocks and the chance come from the caller")]
    fn failed(
        &mut self,
        number: DocumentNumber,
        mut flight: Flight,
        failure: &Failed,
        now: Instant,
        clock: Timestamp,
        jitter: f64,
        record: &mut impl FnMut(Progress),
    ) -> Settlement {
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        if !self.is_down()
            && failure.retry_after.is_none()
            && let Some(next) = flight.next.take()
        {
            // The newer change is a message of its own, with all its attempts.
            let active = self.active();
            if let Some(sequence) = flight.sequence {
                active.unhandled.remove(&sequence);
            }
            if !flight.noted {
                active.tried.insert(number);
            }
            active.go_on_with(next, flight.noted, now);
            return Settlement::default();
        }
        let failed = flight.failed + 1;
        match self.outlet.delivery.retry.delay(flight.failed, jitter) {
            Some(delay) => {
                let delay = delay.max(failure.retry_after.unwrap_or_default());
                self.put_off(number, flight, failed, delay, now, clock, record);
                Settlement::default()
            }
            None => {
                tracing::warn!(
                    subscription = %self.outlet.id, document = %flight.url, attempts = failed, reason = failure.reason,
                    "gave up on a revision"
                );
                self.settle(number, flight, None, now, record);
                Settlement { gave_up: true }
            }
        }
    }

    /// Notes the document for another attempt; its changes count as handled from here on.
    #[allow(clippy::too_many_arguments, reason = "the clocks come from the caller")]
    fn put_off(
        &mut self,
        number: DocumentNumber,
        flight: Flight,
        failed: u32,
        delay: Duration,
        now: Instant,
        clock: Timestamp,
        record: &mut impl FnMut(Progress),
    ) {
        let due = clock.checked_add(delay).unwrap_or(Timestamp::MAX);
        record(Progress::Retry(Retry {
            outlet: self.outlet.id,
            number,
            url: flight.url.clone(),
            attempts: failed,
            due,
        }));
        let active = self.active();
        for sequence in flight.sequence.into_iter().chain(flight.next.map(|next| next.sequence)) {
            active.unhandled.remove(&sequence);
        }
        active.wait(number, Waiting { url: flight.url, due: now + delay, failed });
    }

    /// The cursor, if it has moved since it was last asked for.
    pub fn moved_cursor(&mut self) -> Option<Sequence> {
        let first = self.active.as_ref().and_then(|active| active.unhandled.first());
        let cursor = first.map_or(self.position, |first| Sequence(first.0 - 1));
        (cursor > self.recorded).then(|| {
            self.recorded = cursor;
            cursor
        })
    }

    /// When the next retry is due.
    pub fn next_due(&mut self) -> Option<Instant> {
        self.active.as_mut().and_then(|active| active.next_due())
    }

    /// Whether something could be started now without reading the feed.
    pub fn has_something(&mut self, now: Instant) -> bool {
        let limit = self.limit();
        let Some(active) = &mut self.active else { return false };
        active.in_flight.len() < limit && (!active.buffer.is_empty() || active.next_due().is_some_and(|due| due <= now))
    }

    fn rest_if_idle(&mut self) {
        if self.active.as_ref().is_some_and(|active| active.is_idle()) {
            self.active = None;
        }
    }
}

impl Active {
    fn is_idle(&self) -> bool {
        let nothing_to_send = self.buffer.is_empty() && self.in_flight.is_empty() && self.retries.is_empty();
        nothing_to_send && self.unhandled.is_empty() && self.tried.is_empty()
    }

    fn wait(&mut self, number: DocumentNumber, waiting: Waiting) {
        self.due.push(Reverse((waiting.due, number)));
        self.retries.insert(number, waiting);
    }

    /// Sends a newer change of a document that was in flight. If the store has a retry for the document, the retry
    /// stands for the change from here on, so that it is never without one or the other.
    fn go_on_with(&mut self, next: Arc<Change>, noted: bool, now: Instant) {
        if noted {
            self.unhandled.remove(&next.sequence);
            self.wait(next.number, Waiting { url: next.url.clone(), due: now, failed: 0 });
        } else {
            self.buffer.push_front(next);
        }
    }

    fn make_all_due(&mut self, now: Instant) {
        self.due.clear();
        for (number, waiting) in &mut self.retries {
            waiting.due = now;
            self.due.push(Reverse((now, *number)));
        }
    }

    fn next_due(&mut self) -> Option<Instant> {
        while let Some(Reverse((due, number))) = self.due.peek() {
            if self.retries.get(number).is_some_and(|waiting| waiting.due == *due) {
                return Some(*due);
            }
            self.due.pop();
        }
        None
    }

    fn take_due(&mut self, now: Instant) -> Option<(DocumentNumber, Waiting)> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse((_, number)) = self.due.pop()?;
        let waiting = self.retries.remove(&number)?;
        Some((number, waiting))
    }
}

#[cfg(test)]
mod tests;
