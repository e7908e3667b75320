//! The rules of one outlet: what may be sent when. No I/O, no clock of its own.
//!
//! - Of one document, one request is in flight at a time; a newer change waits behind it, and only the newest does.
//! - Documents do not wait for each other, up to `concurrency` requests.
//! - The cursor follows what is handled: delivered, not wanted, or noted as a retry. It never passes what is not.
//! - An outlet that only fails gets one request at a time until one succeeds; then all its retries are due at once.
//! - An outlet with a pace starts no more than that; a passive one, no more than its client asks for; one that is paused
//!   or disabled, nothing.

mod active;
mod ending;
pub(super) mod item;
pub(super) mod queued;

use std::{sync::Arc, time::Duration};

use flare_core::{
    DocumentNumber, Sequence,
    document::{Change, Progress, Retry},
    outlet::{Mode, Outlet, Revisions},
    rate::Pace,
    stream::Stream,
    url::DocumentUrl,
};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{attempt::Source, wire::Wire};
use active::{Active, Flight, Waiting};
use item::Item;
use queued::Window;

/// So many failures in a row, and the outlet counts as down.
const DOWN_AFTER: u32 = 8;
/// How long to wait when the store could not be read.
const UNREAD_DELAY: Duration = Duration::from_secs(1);

/// Leases of one outlet at a time: past it a pull gets nothing until some are given back.
const LEASES_MAX: usize = 10_000;

/// When something happens, on both clocks, and the chance that spreads retries.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub now: Instant,
    pub clock: Timestamp,
    pub jitter: f64,
}

pub(crate) struct OutletState {
    outlet: Arc<Outlet>,
    pub stream: Arc<Stream>,
    /// What is kept between pushes, where something is.
    pub wire: Option<Arc<Wire>>,
    /// Everything up to here was taken from the feed.
    position: Sequence,
    /// The cursor as the store knows it.
    recorded: Sequence,
    /// Up to here a change may have been delivered before this node took the outlet up.
    unsure_until: Sequence,
    failures_in_a_row: u32,
    /// Nothing but failures since here.
    failing_since: Option<Timestamp>,
    pace: Option<Pace>,
    /// Messages that a passive client still asks for.
    credit: u64,
    /// Messages that pulls wait for.
    pub pull_demand: usize,
    /// An outlet that only fails for so long is disabled.
    disable_after: Option<Duration>,
    /// The feed has nothing past the position, as far as is known.
    pub caught_up: bool,
    /// A page of the feed is on its way from the store.
    pub fetching: bool,
    /// Stands in the slot's list of outlets whose cursor is to be recorded.
    pub in_moved: bool,
    /// Stands in the slot's line of outlets that may have something to send.
    pub in_line: bool,
    /// Changes are on their way into the queue.
    pub pushing: bool,
    /// How much of the feed may be on its way through the outlet's queue, if it has one.
    window: Option<Window>,
    /// The queue cannot be used at present.
    around_queue: bool,
    /// Nothing of this exists for an outlet at rest: there may be very many of them.
    active: Option<Box<Active>>,
}

/// Something to send now.
pub(crate) struct Start {
    pub number: DocumentNumber,
    pub source: Source,
    pub failed: u32,
}

/// What the end of an attempt means beyond the outlet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Usual,
    /// The revision is in the dead letters.
    GaveUp,
    /// The outlet should not be called any more, for this reason.
    Disable(String),
}

impl OutletState {
    pub fn new(outlet: Arc<Outlet>, stream: Arc<Stream>, cursor: Sequence, head: Sequence) -> Self {
        Self {
            pace: outlet.delivery.rate.map(Pace::new),
            wire: Wire::of(&outlet),
            outlet,
            stream,
            position: cursor,
            recorded: cursor,
            unsure_until: head,
            failures_in_a_row: 0,
            failing_since: None,
            credit: 0,
            pull_demand: 0,
            disable_after: None,
            caught_up: false,
            fetching: false,
            in_line: false,
            in_moved: false,
            pushing: false,
            window: None,
            around_queue: false,
            active: None,
        }
    }

    pub fn outlet(&self) -> &Arc<Outlet> {
        &self.outlet
    }

    /// The outlet has changed: what is in flight goes on, what follows is by the new rules.
    pub fn update(&mut self, outlet: Arc<Outlet>) {
        if outlet.delivery.rate != self.pace.as_ref().map(Pace::rate) {
            self.pace = outlet.delivery.rate.map(Pace::new);
        }
        self.wire = Wire::of(&outlet);
        if outlet.status.is_active() && !self.outlet.status.is_active() {
            // A new chance for all that waits.
            self.failures_in_a_row = 0;
            self.failing_since = None;
        }
        self.outlet = outlet;
    }

    /// Takes up a retry that the store has.
    pub fn restore(&mut self, retry: Retry, now: Instant, clock: Timestamp) {
        let due = now + Duration::try_from(retry.due.duration_since(clock)).unwrap_or_default();
        self.active()
            .wait(retry.number, Waiting { url: retry.url, due, failed: retry.attempts, shown: Sequence::START });
    }

    /// Notes that the outlet may be behind on a document.
    pub fn hint(
        &mut self,
        number: DocumentNumber,
        url: DocumentUrl,
        moment: Moment,
        record: &mut impl FnMut(Progress),
    ) {
        record(self.retry(number, &url, 0, moment.clock));
        let active = self.active();
        match active.in_flight.get_mut(&number) {
            Some(flight) => (flight.hinted, flight.noted) = (true, true),
            None => active.wait(number, Waiting { url, due: moment.now, failed: 0, shown: Sequence::START }),
        }
    }

    /// The note that a document is to be tried again.
    fn retry(&self, number: DocumentNumber, url: &DocumentUrl, attempts: u32, due: Timestamp) -> Progress {
        Progress::Retry(Retry { outlet: self.outlet.id, number, url: url.clone(), attempts, due })
    }

    fn active(&mut self) -> &mut Active {
        self.active.get_or_insert_default()
    }

    pub fn position(&self) -> Sequence {
        self.position
    }

    pub fn disable_after(mut self, longest: Duration) -> Self {
        self.disable_after = Some(longest).filter(|longest| !longest.is_zero());
        self
    }

    /// Goes on with what was noted before. A change of the outlet since then was a new chance.
    pub fn failing_since(mut self, since: Option<Timestamp>) -> Self {
        self.failing_since = since.filter(|since| *since >= self.outlet.updated_at);
        self
    }

    pub fn credit(&self) -> u64 {
        self.credit
    }

    pub fn set_credit(&mut self, credit: u64) {
        self.credit = credit;
    }

    pub fn is_down(&self) -> bool {
        self.failures_in_a_row >= DOWN_AFTER
    }

    /// How many requests may be in flight.
    fn limit(&self) -> usize {
        if !self.outlet.status.is_active() {
            return 0;
        }
        let most = if self.is_down() { 1 } else { usize::from(self.outlet.delivery.concurrency) };
        match self.outlet.mode {
            Mode::Active => most,
            Mode::Passive => {
                let pushed = self.active.as_ref().map_or(0, |active| active.pushed());
                most.min(pushed + usize::try_from(self.credit).unwrap_or(usize::MAX))
            }
        }
    }

    /// How many more requests may be started.
    fn room(&self) -> usize {
        self.limit().saturating_sub(self.active.as_ref().map_or(0, |active| active.pushed()))
    }

    pub fn retries(&self) -> usize {
        self.active.as_ref().map_or(0, |active| active.retries.len())
    }

    /// How many changes could be started now, if the feed had them.
    pub fn demand(&self, retries_max: usize) -> usize {
        if self.retries() >= retries_max || !self.outlet.status.is_active() {
            return 0;
        }
        if let Some(window) = self.window_in_use() {
            return self.room_in(window);
        }
        let buffered = self.active.as_ref().map_or(0, |active| active.buffer.len());
        (self.room() + self.pull_demand).saturating_sub(buffered)
    }

    /// Changes from the feed, in order. The feed was read up to `position`.
    pub fn take(&mut self, changes: impl IntoIterator<Item = Arc<Change>>, position: Sequence) {
        self.position = self.position.max(position);
        for change in changes {
            self.position = self.position.max(change.sequence);
            // The newer change of the same document stands further on in the feed.
            if !change.is_superseded() {
                let has_queue = self.window_in_use().is_some();
                let active = self.active();
                active.unhandled.insert(change.sequence);
                if has_queue {
                    active.outbox.push_back(change);
                } else {
                    active.buffer.push_back(Item::Change(change));
                }
            }
        }
    }

    /// The next thing to send, if there is one and it may be sent.
    pub fn next(&mut self, now: Instant, record: &mut impl FnMut(Progress)) -> Option<Start> {
        if self.room() == 0 || self.pace_wait(now).is_some() {
            return None;
        }
        let start = self.choose(now, false)?;
        if let Some(pace) = &mut self.pace {
            pace.start(now.into_std());
        }
        if self.outlet.mode == Mode::Passive {
            self.credit = self.credit.saturating_sub(1);
            record(Progress::Demand { outlet: self.outlet.id, left: self.credit });
        }
        Some(start)
    }

    /// The next thing for a client that pulls.
    pub fn next_for_pull(&mut self, now: Instant) -> Option<Start> {
        let leased = self.active.as_ref().map_or(0, |active| active.leased);
        if !self.outlet.status.is_active() || self.outlet.mode != Mode::Passive || leased >= LEASES_MAX {
            return None;
        }
        self.choose(now, true)
    }

    fn pace_wait(&self, now: Instant) -> Option<Instant> {
        self.pace.as_ref()?.wait_until(now.into_std()).map(Instant::from_std)
    }

    fn choose(&mut self, now: Instant, leased: bool) -> Option<Start> {
        // With every revision, those that wait for a retry come first.
        let waits = self.is_down() || self.outlet.revisions == Revisions::All;
        let unsure_until = self.unsure_until;
        let active = self.active.as_mut()?;
        let flight = |url, sequence, failed, noted, shown| Flight {
            url,
            sequence,
            receipt: None,
            next: None,
            failed,
            noted,
            shown,
            leased,
            hinted: false,
        };
        if let Some((number, waiting)) = active.take_due(now) {
            active.set_off(number, flight(waiting.url.clone(), None, waiting.failed, true, waiting.shown));
            return Some(Start { number, source: Source::Newest(waiting.url), failed: waiting.failed });
        }
        while let Some(item) = active.buffer.pop_front() {
            let (number, sequence) = (item.number(), item.sequence());
            if item.is_superseded() {
                active.handled(item);
                continue;
            }
            let tried = active.tried.remove(&number);
            let Some(item) = active.follow(number, item) else { continue };
            let noted = match active.retries.get(&number) {
                // The retry will send the newest change when its time has come; it has shown the client a newer one
                // than this before, or it comes first.
                Some(waiting) if waits || sequence <= waiting.shown => {
                    active.handled(item);
                    continue;
                }
                // A new revision is a new message: it does not wait for the schedule of the old one.
                Some(_) => active.retries.remove(&number).is_some(),
                None => false,
            };
            // Of a document that was there before, an attempt may have reached the client whose record a crash took. A hint
            // may come twice.
            let repeated = !active.unhandled.contains(&sequence);
            let doubtful = tried || noted || repeated || number.0 <= unsure_until.0;
            let fresh = !doubtful && number.0 == sequence.0;
            let mut flight = flight(item.url().clone(), Some(sequence), 0, noted, sequence);
            let (source, receipt) = item.start(fresh, doubtful);
            flight.receipt = receipt;
            active.set_off(number, flight);
            return Some(Start { number, source, failed: 0 });
        }
        None
    }

    /// The cursor, if it has moved since it was last asked for.
    pub fn moved_cursor(&mut self) -> Option<Sequence> {
        let first = self.active.as_ref().and_then(|active| active.unhandled.first());
        // What a queue has lost is behind the position, and will be read again.
        let cursor = first.map_or(self.position, |first| self.position.min(Sequence(first.0 - 1)));
        (cursor > self.recorded).then(|| {
            self.recorded = cursor;
            cursor
        })
    }

    /// When the outlet is to be looked at again, if nothing else happens.
    pub fn wake_at(&mut self, now: Instant) -> Option<Instant> {
        let (can_push, is_pulled) = (self.room() > 0, self.pull_demand > 0);
        if !self.outlet.status.is_active() || !(can_push || is_pulled) {
            return None;
        }
        let pace = self.pace_wait(now);
        let active = self.active.as_mut()?;
        if can_push {
            let due = if active.buffer.is_empty() { active.next_due()? } else { now };
            return Some(pace.map_or(due, |pace| pace.max(due)));
        }
        // What is due already was offered to those who pull just now.
        active.next_due().filter(|due| *due > now)
    }

    /// Whether something could be started now without reading the feed.
    pub fn has_something(&mut self, now: Instant) -> bool {
        self.room() > 0 && self.pace_wait(now).is_none() && self.has_work(now)
    }

    /// Whether there is something for a client that pulls, without reading the feed.
    pub fn has_work(&mut self, now: Instant) -> bool {
        let Some(active) = &mut self.active else { return false };
        !active.buffer.is_empty() || active.next_due().is_some_and(|due| due <= now)
    }

    /// Whether all has been looked at that a client that pulls could get at present.
    pub fn has_looked(&self, retries_max: usize) -> bool {
        let has_looked = !self.fetching && (self.caught_up || self.demand(retries_max) == 0);
        has_looked && (self.window_in_use().is_none() || !self.outlet.status.is_active() || self.queue_is_quiet())
    }

    /// When the next retry is due, and how many wait.
    pub fn next_retry(&mut self) -> Option<Instant> {
        self.active.as_mut().and_then(|active| active.next_due())
    }

    fn rest_if_idle(&mut self) {
        if self.active.as_ref().is_some_and(|active| active.is_idle()) {
            self.active = None;
        }
    }
}

#[cfg(test)]
mod tests;
