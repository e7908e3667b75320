//! A slot: one task that drives the outlets of one unit of work.

mod feed;
pub(crate) mod pull;
mod queueing;
mod steering;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
};

use flare_core::{DocumentNumber, OutletId, Result, Sequence, StreamId, outlet::Outlet, port::FeedPage};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use jiff::Timestamp;
use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::fast_map::FastMap;

use super::{
    Disable, Shared,
    attempt::{Attempt, Outcome, Task},
    mailbox::{Command, Mailbox},
    outlet::{Ending, Moment, OutletState, Start},
};
use feed::take_wanted;
use pull::Pulls;
use queueing::{Answered, Queueing};

type Running = FuturesUnordered<Pin<Box<dyn Future<Output = Done> + Send>>>;
type WaitForPlace = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

pub(crate) struct Slot {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    outlets: FastMap<OutletId, OutletState>,
    by_stream: FastMap<StreamId, Vec<OutletId>>,
    /// Outlets that may have something to send, each once: fair turns.
    line: VecDeque<OutletId>,
    running: Running,
    /// Present while all places for requests are taken.
    wait_for_place: Option<WaitForPlace>,
    /// When to look at an outlet again.
    alarms: BinaryHeap<Reverse<(Instant, OutletId)>>,
    /// Outlets whose cursor may have moved since it was recorded.
    moved: Vec<OutletId>,
    cursors_due: Option<Instant>,
    pulls: FastMap<OutletId, Pulls>,
    /// Where outlets get their changes through queues.
    queueing: Option<Queueing>,
    /// Makes receipts that nobody can guess from an earlier run.
    nonce: u64,
}

/// Something that was running has ended.
enum Done {
    Attempt { outlet: OutletId, number: DocumentNumber, outcome: Outcome },
    Fetched { outlet: OutletId, page: Result<FeedPage> },
    Found { outlet: OutletId, number: DocumentNumber, failed: u32, task: Task },
    Queue(Answered),
}

impl Slot {
    pub fn new(shared: Arc<Shared>, mailbox: Arc<Mailbox>, number: u16, stop: &CancellationToken) -> Result<Self> {
        let slots = shared.settings.slots.max(1);
        let queueing =
            shared.tasks.clone().map(|tasks| Queueing::new(tasks, number, slots, stop.clone())).transpose()?;
        Ok(Self {
            shared,
            mailbox,
            outlets: FastMap::default(),
            by_stream: FastMap::default(),
            line: VecDeque::new(),
            running: Running::new(),
            wait_for_place: None,
            alarms: BinaryHeap::new(),
            moved: Vec::new(),
            cursors_due: None,
            pulls: FastMap::default(),
            queueing,
            nonce: random(),
        })
    }

    /// Works until it is told to stop; then starts nothing more and waits for what is in flight.
    pub async fn run(mut self, stop: CancellationToken) {
        let mailbox = self.mailbox.clone();
        while !stop.is_cancelled() {
            self.read_mail();
            self.tend_common(Instant::now());
            self.start_what_is_ready(None);
            self.acknowledge();
            let alarm = self.next_alarm();
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                Some(done) = self.running.next(), if !self.running.is_empty() => self.end(done),
                () = mailbox.arrival() => {}
                place = wait_for(&mut self.wait_for_place), if self.wait_for_place.is_some() => {
                    self.wait_for_place = None;
                    self.start_what_is_ready(place.ok());
                }
                () = sleep_until(alarm), if alarm.is_some() => self.ring(),
            }
            self.end_all_ready();
        }
        while let Some(done) = self.running.next().await {
            self.end(done);
        }
        self.part_from_queues().await;
        self.record_cursors();
    }

    fn read_mail(&mut self) {
        let mail = self.mailbox.take();
        for command in mail.commands {
            self.obey(command);
        }
        if mail.all_changed {
            let all: Vec<_> = self.outlets.keys().copied().collect();
            all.into_iter().for_each(|id| self.look_at_feed(id));
        }
        for stream in mail.changed {
            let Some(outlets) = self.by_stream.remove(&stream) else { continue };
            outlets.iter().for_each(|id| self.look_at_feed(*id));
            self.by_stream.insert(stream, outlets);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Add { outlet, stream, standing } => {
                let id = outlet.id;
                let head = self.shared.documents.head();
                self.by_stream.entry(stream.id).or_default().push(id);
                let mut state = OutletState::new(outlet, stream, standing.cursor, head)
                    .disable_after(self.shared.settings.disable_after)
                    .failing_since(standing.failing_since);
                state.set_credit(standing.demand);
                let (now, clock) = (Instant::now(), Timestamp::now());
                let restored = standing.retries.len() as u64;
                self.shared.counters.retries_waiting.fetch_add(restored, Ordering::Relaxed);
                standing.retries.into_iter().for_each(|retry| state.restore(retry, now, clock));
                let state = self.join_queue(state);
                self.outlets.insert(id, state);
                self.line_up(id);
            }
            Command::Update(outlet) => self.update(outlet),
            Command::Hint { outlet, hints, taken } => {
                // One who does not wait for the answer has been told to stop.
                let _gone = taken.send(self.hint(outlet, hints));
            }
            Command::Demand { outlet, quantity, max, left } => {
                let _gone = left.send(self.add_demand(outlet, quantity, max));
            }
            Command::Pull { outlet, pull } => self.pull(outlet, pull),
            Command::Settle { outlet, receipts, how, results } => {
                let _gone = results.send(self.settle(outlet, &receipts, how));
            }
            Command::Inspect { outlet, seen } => {
                if let Some(inspection) = self.inspect(outlet) {
                    let _gone = seen.send(inspection);
                }
            }
            Command::Remove(id) => {
                self.pulls.remove(&id);
                if let Some(state) = self.outlets.remove(&id) {
                    let waiting = state.retries() as u64;
                    self.shared.counters.retries_waiting.fetch_sub(waiting, Ordering::Relaxed);
                    if let Some(outlets) = self.by_stream.get_mut(&state.stream.id) {
                        outlets.retain(|other| *other != id);
                        if outlets.is_empty() {
                            self.by_stream.remove(&state.stream.id);
                        }
                    }
                    self.leave_queue(state);
                }
            }
        }
    }

    fn update(&mut self, outlet: Arc<Outlet>) {
        let id = outlet.id;
        if let Some(state) = self.outlets.get_mut(&id) {
            let is_active = outlet.status.is_active();
            state.update(outlet);
            if !is_active {
                self.give_back_unstarted(id);
            }
            self.line_up(id);
        }
    }

    fn look_at_feed(&mut self, id: OutletId) {
        if let Some(state) = self.outlets.get_mut(&id) {
            state.caught_up = false;
            self.line_up(id);
        }
    }

    fn line_up(&mut self, id: OutletId) {
        if let Some(state) = self.outlets.get_mut(&id)
            && !std::mem::replace(&mut state.in_line, true)
        {
            self.line.push_back(id);
        }
    }

    /// Lets the outlets in line start one request each in turn, as long as there are places.
    fn start_what_is_ready(&mut self, place: Option<OwnedSemaphorePermit>) {
        let mut place = place;
        if self.wait_for_place.is_some() || self.shared.recorder.is_full() {
            return;
        }
        let now = Instant::now();
        while let Some(id) = self.line.pop_front() {
            if !self.prepare(id, now) {
                continue;
            }
            if self.is_filtered(id) {
                // Its filter may leave most changes out: it takes a place only for what is sent.
                self.start(id, None, now);
                self.line_up(id);
                continue;
            }
            match place.take().or_else(|| self.shared.requests.clone().try_acquire_owned().ok()) {
                Some(place) => {
                    self.start(id, Some(place), now);
                    self.line_up(id);
                }
                None => {
                    self.line_up_first(id);
                    self.wait_for_place = Some(Box::pin(self.shared.requests.clone().acquire_owned()));
                    return;
                }
            }
        }
    }

    fn is_filtered(&self, id: OutletId) -> bool {
        self.outlets.get(&id).is_some_and(|state| state.outlet().filter.is_some())
    }

    fn line_up_first(&mut self, id: OutletId) {
        if let Some(state) = self.outlets.get_mut(&id) {
            state.in_line = true;
            self.line.push_front(id);
        }
    }

    /// Takes the outlet out of the line, gets changes for it if it has none, and says whether it has something to send.
    fn prepare(&mut self, id: OutletId, now: Instant) -> bool {
        let Some(state) = self.outlets.get_mut(&id) else { return false };
        state.in_line = false;
        self.serve_pulls(id, now, false);
        let Some(state) = self.outlets.get_mut(&id) else { return false };
        if state.has_something(now) {
            return true;
        }
        self.mind_queue(id);
        let Some(state) = self.outlets.get_mut(&id) else { return false };
        let demand = state.demand(self.shared.settings.retries_max);
        if !state.caught_up && !state.fetching && demand > 0 {
            match self.shared.tail.read(state.stream.id, state.position(), demand) {
                Some(changes) => {
                    state.caught_up = changes.len() < demand;
                    take_wanted(&self.shared.filtering, state, changes, Sequence::START);
                    // Changes that are superseded already leave nothing to send, but there may be more behind them.
                    let look_again = !state.caught_up && !state.has_work(now) && !state.has_outbox();
                    self.note_moved(id, now);
                    self.serve_pulls(id, now, false);
                    if look_again {
                        self.line_up(id);
                        return false;
                    }
                }
                None => {
                    self.fetch(id);
                    return false;
                }
            }
        }
        self.tend(id, now);
        let Some(state) = self.outlets.get_mut(&id) else { return false };
        // Only one who has seen all that there is may be told that there is nothing.
        let has_looked = state.has_looked(self.shared.settings.retries_max);
        self.serve_pulls(id, now, has_looked);
        let Some(state) = self.outlets.get_mut(&id) else { return false };
        if state.has_something(now) {
            return true;
        }
        if let Some(at) = state.wake_at(now) {
            self.alarms.push(Reverse((at, id)));
        }
        false
    }

    fn start(&mut self, id: OutletId, place: Option<OwnedSemaphorePermit>, now: Instant) {
        let Some(state) = self.outlets.get_mut(&id) else { return };
        let (retries, recorder) = (state.retries(), &self.shared.recorder);
        let start = state.next(now, &mut |step| recorder.record(step));
        count_retries(&self.shared, retries, state.retries());
        let Some(start) = start else { return };
        let number = start.number;
        let Some(attempt) = self.attempt(id, start) else { return };
        self.running.push(Box::pin(async move {
            let outcome = attempt.run(place).await;
            Done::Attempt { outlet: id, number, outcome }
        }));
    }

    fn attempt(&self, id: OutletId, start: Start) -> Option<Attempt> {
        let state = self.outlets.get(&id)?;
        Some(Attempt {
            shared: self.shared.clone(),
            outlet: state.outlet().clone(),
            stream: state.stream.clone(),
            source: start.source,
            failed: start.failed,
            wire: state.wire.clone(),
        })
    }

    fn end_all_ready(&mut self) {
        while let Some(Some(done)) = self.running.next().now_or_never() {
            self.end(done);
        }
    }

    fn end(&mut self, done: Done) {
        match done {
            Done::Attempt { outlet, number, outcome } => self.end_attempt(outlet, number, outcome),
            Done::Fetched { outlet, page } => self.end_fetch(outlet, page),
            Done::Found { outlet, number, failed, task } => self.end_find(outlet, number, failed, task),
            Done::Queue(answered) => self.end_queue(answered),
        }
    }

    fn end_attempt(&mut self, id: OutletId, number: DocumentNumber, outcome: Outcome) {
        let counters = &self.shared.counters;
        match &outcome {
            Outcome::Delivered(_) => drop(counters.delivered.fetch_add(1, Ordering::Relaxed)),
            Outcome::Discarded(_) => drop(counters.discarded.fetch_add(1, Ordering::Relaxed)),
            Outcome::Failed(failure) => {
                counters.failed_attempts.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(subscription = %id, reason = failure.reason, "a delivery failed");
            }
            Outcome::Unread(error) => tracing::warn!(subscription = %id, reason = error.chain(), "could not deliver"),
            Outcome::UpToDate | Outcome::Expired(_) | Outcome::Returned { .. } => {}
        }
        let Some(state) = self.outlets.get_mut(&id) else { return };
        let retries = state.retries();
        let recorder = &self.shared.recorder;
        let (now, clock) = (Instant::now(), Timestamp::now());
        let jitter = if matches!(outcome, Outcome::Failed(_)) { chance() } else { 0.0 };
        let moment = Moment { now, clock, jitter };
        match state.finish(number, outcome, moment, &mut |step| recorder.record(step)) {
            Ending::Usual => {}
            Ending::GaveUp => drop(counters.given_up.fetch_add(1, Ordering::Relaxed)),
            Ending::Disable(reason) => {
                let (outlet, stream) = (state.outlet().id, state.stream.id);
                // The node that is stopping does not need to know.
                let _stopping = self.shared.to_disable.send(Disable { stream, outlet, reason });
            }
        }
        count_retries(&self.shared, retries, state.retries());
        self.note_moved(id, now);
        self.line_up(id);
    }

    fn next_alarm(&self) -> Option<Instant> {
        let outlets = self.alarms.peek().map(|Reverse((at, _))| *at);
        outlets.into_iter().chain(self.cursors_due).chain(self.common_alarm()).min()
    }

    fn ring(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((at, id))) = self.alarms.peek().copied()
            && at <= now
        {
            self.alarms.pop();
            self.line_up(id);
        }
        if self.cursors_due.is_some_and(|due| due <= now) {
            self.record_cursors();
        }
    }
}

fn count_retries(shared: &Shared, before: usize, after: usize) {
    let waiting = &shared.counters.retries_waiting;
    if after > before {
        waiting.fetch_add((after - before) as u64, Ordering::Relaxed);
    } else if before > after {
        waiting.fetch_sub((before - after) as u64, Ordering::Relaxed);
    }
}

fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| Timestamp::now().as_nanosecond() as u64)
}

/// A number from 0 to 1, for jitter.
fn chance() -> f64 {
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}

async fn wait_for(place: &mut Option<WaitForPlace>) -> Result<OwnedSemaphorePermit, AcquireError> {
    match place {
        Some(place) => place.await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
