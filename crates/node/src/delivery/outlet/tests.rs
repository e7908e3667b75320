//! A model of the feed, the store and the client around one outlet: whatever happens, the client ends up with the newest
//! of every document, and never goes backwards.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU32,
};

use flare_contract::make;
use flare_core::{
    OutletId,
    document::{Action, Version, WrittenChange},
    outlet::Status,
    queue::Receipt,
    revision::Revision,
};
use proptest::prelude::*;

use super::{
    super::attempt::{Failed, Outcome, Sent, action},
    item::QueuedHint,
    queued::Window,
    *,
};

const RETRIES_MAX: usize = 4;

/// The world of one outlet.
struct World {
    outlet: Arc<Outlet>,
    stream: Arc<Stream>,
    state: OutletState,
    now: Instant,
    head: u64,
    /// The feed: one change per document, by sequence.
    feed: BTreeMap<u64, Arc<Change>>,
    numbers: HashMap<u8, u64>,
    /// What was recorded, in order; a crash loses a part of the end.
    recorded: Vec<Progress>,
    written: usize,
    in_flight: Vec<(DocumentNumber, Source, u32)>,
    /// The newest that the client was shown of each document, whatever it answered.
    shown: HashMap<u64, u64>,
    /// What the client was told of each document, in order.
    told: HashMap<u64, Vec<(u64, Action)>>,
    /// Where changes go through a queue.
    queue: Option<Queue>,
    window: Option<Window>,
}

/// A queue that outlives crashes, and forgets, repeats and mixes up what it likes.
#[derive(Default)]
struct Queue {
    ready: Vec<Arc<Change>>,
    taken: BTreeMap<u64, Arc<Change>>,
    receipts: u64,
    /// The next push is said to have failed, after so many messages.
    breaks_after: Option<usize>,
    /// It cannot be used.
    is_away: bool,
}

impl Queue {
    /// Says whether all came through.
    fn push(&mut self, changes: &[Arc<Change>]) -> bool {
        let broken = self.breaks_after.take();
        self.ready.extend(changes.iter().take(broken.unwrap_or(usize::MAX)).cloned());
        broken.is_none()
    }

    fn pull(&mut self) -> Option<QueuedHint> {
        self.receipts += 1;
        let which = (self.receipts as usize * 7) % self.ready.len().max(1);
        let change = (!self.ready.is_empty()).then(|| self.ready.swap_remove(which))?;
        let (number, url, sequence) = (change.number, change.url.clone(), change.sequence);
        self.taken.insert(self.receipts, change);
        Some(QueuedHint { number, url, sequence, receipt: Receipt(self.receipts.to_string().into()) })
    }

    fn release(&mut self, receipts: Vec<Receipt>) {
        for receipt in receipts {
            let taken = self.taken.remove(&receipt.0.parse::<u64>().unwrap());
            assert!(taken.is_some(), "a message was released twice");
        }
    }

    /// What somebody had taken comes again.
    fn give_back_all(&mut self) {
        self.ready.extend(std::mem::take(&mut self.taken).into_values());
    }

    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.taken.is_empty()
    }
}

impl World {
    fn new(concurrency: u16) -> Self {
        Self::made(concurrency, None, Mode::Active)
    }

    fn made(concurrency: u16, rate: Option<u32>, mode: Mode) -> Self {
        let stream = Arc::new(make::stream("http://api.test/users/{id}"));
        let mut outlet = make::outlet(&stream, Sequence::START);
        outlet.id = OutletId::from_bytes([9; 16]);
        outlet.delivery = policy(&outlet, concurrency, rate.and_then(NonZeroU32::new));
        outlet.mode = mode;
        outlet.revisions = Revisions::Last;
        let outlet = Arc::new(outlet);
        let state = OutletState::new(outlet.clone(), stream.clone(), Sequence::START, Sequence::START);
        Self {
            outlet,
            stream,
            state,
            now: Instant::now(),
            head: 0,
            feed: BTreeMap::new(),
            numbers: HashMap::new(),
            recorded: Vec::new(),
            written: 0,
            in_flight: Vec::new(),
            shown: HashMap::new(),
            told: HashMap::new(),
            queue: None,
            window: None,
        }
    }

    fn with_queue(mut self, window: Option<Window>) -> Self {
        if let Some(window) = window {
            self.queue = Some(Queue::default());
            self.state = self.state.through_queue(window);
        }
        self.window = window;
        self
    }

    fn put(&mut self, name: u8, deleted: bool) {
        self.head += 1;
        let number = *self.numbers.entry(name).or_insert(self.head);
        let before = self.feed.iter().find(|(_, change)| change.number.0 == number).map(|(sequence, _)| *sequence);
        if deleted && before.is_none_or(|before| self.feed[&before].is_delete()) {
            self.head -= 1;
            if before.is_none() {
                self.numbers.remove(&name);
            }
            return;
        }
        if let Some(replaced) = before.and_then(|before| self.feed.remove(&before)) {
            replaced.supersede();
        }
        let written = WrittenChange {
            sequence: Sequence(self.head),
            number: DocumentNumber(number),
            revision: Revision::new(i128::from(self.head)),
            replaces: before.map(Sequence),
        };
        let content = (!deleted).then(|| bytes::Bytes::from_static(b"{}"));
        let url = make::url(&name.to_string());
        let change = Arc::new(Change::new(self.stream.id, &written, url, make::at(0), content));
        self.feed.insert(self.head, change);
        self.state.caught_up = false;
    }

    /// What a slot does when the outlet is in line.
    fn pump(&mut self, at_most: usize) {
        for _ in 0..at_most {
            if !self.state.has_something(self.now) {
                let is_away = self.queue.as_ref().is_some_and(|queue| queue.is_away);
                self.state.go_around_queue(is_away, Sequence(self.head));
                self.state.pull_demand = if self.outlet.mode == Mode::Passive { 3 } else { 0 };
                let demand = self.state.demand(RETRIES_MAX);
                let after = self.state.position().0;
                // As they come from the store: nobody tells them that they are superseded.
                let changes: Vec<_> = self.feed.range(after + 1..).take(demand).map(|(_, c)| copy(c)).collect();
                self.state.take(changes, Sequence::START);
                self.tend_queue();
            }
            let recorded = &mut self.recorded;
            let start = match self.outlet.mode {
                Mode::Active => self.state.next(self.now, &mut |step| recorded.push(step)),
                Mode::Passive => self.state.next_for_pull(self.now),
            };
            let Some(start) = start else { continue };
            assert!(self.outlet.status.is_active(), "something was started for an outlet that is paused");
            let twice = self.in_flight.iter().any(|(number, ..)| *number == start.number);
            assert!(!twice, "two requests of one document at once");
            self.in_flight.push((start.number, start.source, start.failed));
            if self.outlet.mode == Mode::Active {
                assert!(self.in_flight.len() <= usize::from(self.outlet.delivery.concurrency));
            }
        }
    }

    fn tend_queue(&mut self) {
        let Some(queue) = self.queue.as_mut().filter(|queue| !queue.is_away) else { return };
        queue.release(self.state.take_released());
        let changes = self.state.take_outbox();
        if queue.push(&changes) {
            self.state.note_queued(changes.len());
        } else {
            self.state.put_back(changes);
        }
        if queue.is_empty() {
            self.state.find_lost(Sequence(self.head));
        }
        for _ in 0..self.state.hint_demand() {
            let Some(hint) = queue.pull() else { break };
            self.state.take_hint(hint);
        }
        let moment = Moment { now: self.now, clock: make::at(0), jitter: 0.5 };
        // Others wait in the same queue: what cannot be started is noted elsewhere.
        if matches!(self.window, Some(Window::Shared(_)))
            && let Some(hint) = queue.pull()
        {
            let recorded = &mut self.recorded;
            queue.release(vec![self.state.note_hint(hint, moment, &mut |step| recorded.push(step))]);
        }
    }

    fn version(&self, number: DocumentNumber) -> Option<Version> {
        self.recorded.iter().rev().find_map(|step| match step {
            Progress::Version { number: of, version, .. } | Progress::Forgotten { number: of, version, .. }
                if *of == number =>
            {
                Some(*version)
            }
            _ => None,
        })
    }

    /// Ends an attempt as [`super::super::attempt::Attempt`] would.
    fn end(&mut self, which: usize, succeeds: bool) {
        if self.in_flight.is_empty() {
            return;
        }
        let (number, source, _) = self.in_flight.swap_remove(which % self.in_flight.len());
        let (change, fresh) = match source {
            Source::Change { change, fresh, .. } => (change, fresh),
            Source::Hint { sequence, fresh, .. } => {
                let newest = self.newest(number);
                let is_held = newest.sequence == sequence;
                (newest, fresh && is_held)
            }
            Source::Newest(_) => (self.newest(number), false),
        };
        if fresh {
            assert_eq!(self.version(number), None, "a document that the outlet has was taken for a fresh one");
        }
        let action = action(&change, self.version(number));
        if action.is_some() {
            let shown = self.shown.entry(number.0).or_default();
            assert!(change.sequence.0 >= *shown, "document {number:?} went from {shown} to {}", change.sequence);
            *shown = change.sequence.0;
        }
        let outcome = match action {
            None => Outcome::UpToDate,
            Some(action) if succeeds => {
                let told = self.told.entry(number.0).or_default();
                let last = told.last().map_or(0, |(sequence, _)| *sequence);
                assert!(change.sequence.0 >= last, "document {number:?} went from {last} to {}", change.sequence);
                told.push((change.sequence.0, action));
                let (sequence, revision, deleted) = (change.sequence, change.revision, change.is_delete());
                Outcome::Delivered(Version { sequence, revision, deleted })
            }
            Some(_) if self.outlet.mode == Mode::Passive => {
                Outcome::Returned { delay: Duration::from_secs(1), shown: change.sequence }
            }
            Some(_) => {
                let sent = Some(Sent::of(&change, self.version(number)));
                Outcome::Failed(Failed { reason: "on purpose".into(), sent, gone: false, retry_after: None })
            }
        };
        let moment = self.moment();
        let recorded = &mut self.recorded;
        let ending = self.state.finish(number, outcome, moment, &mut |step| recorded.push(step));
        assert_eq!(ending, Ending::Usual, "the policy has enough retries for the test");
    }

    fn newest(&self, number: DocumentNumber) -> Arc<Change> {
        self.feed.values().find(|change| change.number == number).expect("documents leave a tombstone").clone()
    }

    fn moment(&self) -> Moment {
        Moment { now: self.now, clock: make::at(0), jitter: 0.5 }
    }

    fn set_status(&mut self, status: Status) {
        self.outlet = Arc::new(Outlet { status, ..(*self.outlet).clone() });
        self.state.update(self.outlet.clone());
        if let (Some(queue), false) = (&mut self.queue, self.outlet.status.is_active()) {
            for hint in self.state.take_unstarted(Sequence(self.head)) {
                queue.ready.extend(queue.taken.remove(&hint.receipt.0.parse().unwrap()));
            }
        }
    }

    /// The client asks to be told again of a document that it has.
    fn replay(&mut self, name: u8) {
        let Some(number) = self.numbers.get(&name).map(|number| DocumentNumber(*number)) else { return };
        // Of what it has, however often it asks.
        let has = self.recorded.iter().rev().find_map(|step| match step {
            Progress::Version { number: of, version, .. } if *of == number => Some(*version),
            _ => None,
        });
        let Some(version) = has else { return };
        let version = Version { sequence: Sequence(version.sequence.0.saturating_sub(1)), ..version };
        self.recorded.push(Progress::Forgotten { outlet: self.outlet.id, number, version });
        let (moment, recorded) = (self.moment(), &mut self.recorded);
        let url = make::url(&name.to_string());
        self.state.hint(number, url, moment, &mut |step| recorded.push(step));
    }

    fn record_cursor(&mut self) {
        if let Some(cursor) = self.state.moved_cursor() {
            self.recorded.push(Progress::Cursor { outlet: self.outlet.id, cursor });
        }
    }

    /// Everything in memory is gone, and the end of what was recorded; the feed is durable.
    fn crash(&mut self, lost: usize) {
        let kept = self.recorded.len().saturating_sub(lost).max(self.written);
        self.recorded.truncate(kept);
        self.written = kept;
        self.in_flight.clear();
        let mut cursor = Sequence::START;
        let mut retries: BTreeMap<u64, Retry> = BTreeMap::new();
        for step in &self.recorded {
            match step {
                Progress::Cursor { cursor: at, .. } => cursor = *at,
                Progress::Retry(retry) => drop(retries.insert(retry.number.0, retry.clone())),
                Progress::Settled { number, .. } => drop(retries.remove(&number.0)),
                Progress::Version { .. } | Progress::Forgotten { .. } | Progress::Failing { .. } => {}
                Progress::DeadLetter(_) | Progress::Demand { .. } | Progress::Attempts { .. } => {
                    panic!("nothing in the test causes {step:?}")
                }
            }
        }
        self.state = OutletState::new(self.outlet.clone(), self.stream.clone(), cursor, Sequence(self.head));
        for retry in retries.into_values() {
            self.state.restore(retry, self.now, make::at(0));
        }
        if let (Some(window), Some(queue)) = (self.window, &mut self.queue) {
            queue.give_back_all();
            let fresh = OutletState::new(self.outlet.clone(), self.stream.clone(), cursor, Sequence(self.head));
            self.state = std::mem::replace(&mut self.state, fresh).through_queue(window);
        }
    }

    /// The client answers everything from here on.
    fn drain(&mut self) {
        self.set_status(Status::Active);
        for round in 0..200 {
            // Not even a queue that stays away holds anything up.
            if let Some(queue) = &mut self.queue {
                queue.is_away &= round < 100;
            }
            if round == 100 {
                self.expect_all_told();
            }
            self.now += Duration::from_secs(3600);
            self.pump(8);
            while !self.in_flight.is_empty() {
                self.end(0, true);
            }
        }
        self.expect_all_told();
        if let Some(queue) = &mut self.queue {
            queue.release(self.state.take_released());
            assert!(queue.is_empty(), "messages are left in the queue");
        }
        assert!(self.state.active.is_none(), "nothing is left to do, but the outlet does not rest");
        self.record_cursor();
        let cursor = self.state.recorded;
        assert!(self.feed.keys().all(|sequence| *sequence <= cursor.0));
    }

    fn expect_all_told(&self) {
        for change in self.feed.values() {
            let told = self.told.get(&change.number.0).and_then(|told| told.last());
            match told {
                Some((sequence, _)) if *sequence == change.sequence.0 => {}
                _ => panic!("document {:?} is at {} but was told {told:?}", change.number, change.sequence),
            }
        }
    }
}

fn copy(change: &Change) -> Arc<Change> {
    let written = WrittenChange {
        sequence: change.sequence,
        number: change.number,
        revision: change.revision,
        replaces: change.replaces,
    };
    Arc::new(Change::new(change.stream, &written, change.url.clone(), change.updated_at, change.content.clone()))
}

/// A policy whose retries a test does not use up.
fn policy(outlet: &Outlet, concurrency: u16, rate: Option<NonZeroU32>) -> Arc<flare_core::outlet::DeliveryPolicy> {
    use flare_core::retry::{RetryPolicy, RetrySettings};
    let retry = RetryPolicy::new(RetrySettings { num_retries: 100, ..Default::default() }).unwrap();
    Arc::new(flare_core::outlet::DeliveryPolicy { concurrency, rate, retry, ..(*outlet.delivery).clone() })
}

#[derive(Clone, Debug)]
enum Event {
    Put(u8),
    Delete(u8),
    Pump(usize),
    Succeed(usize),
    Fail(usize),
    Cursor,
    Wait(u64),
    Crash(usize),
    Pause,
    Resume,
    Replay(u8),
    QueueForgets,
    QueueRepeats(usize),
    QueueBreaks(usize),
    QueueLeaves,
    QueueReturns,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0u8..6).prop_map(Event::Put),
        1 => (0u8..6).prop_map(Event::Delete),
        6 => (1usize..4).prop_map(Event::Pump),
        4 => any::<usize>().prop_map(Event::Succeed),
        3 => any::<usize>().prop_map(Event::Fail),
        2 => Just(Event::Cursor),
        1 => (0u64..5000).prop_map(Event::Wait),
        1 => (0usize..12).prop_map(Event::Crash),
        1 => Just(Event::Pause),
        2 => Just(Event::Resume),
        1 => (0u8..6).prop_map(Event::Replay),
        1 => Just(Event::QueueForgets),
        1 => any::<usize>().prop_map(Event::QueueRepeats),
        1 => (0usize..3).prop_map(Event::QueueBreaks),
        1 => Just(Event::QueueLeaves),
        2 => Just(Event::QueueReturns),
    ]
}

fn window() -> impl Strategy<Value = Option<Window>> {
    prop_oneof![
        Just(None),
        (1usize..8).prop_map(|most| Some(Window::Own(most))),
        (1usize..8).prop_map(|most| Some(Window::Shared(most))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn whatever_happens_the_client_gets_the_newest_and_never_goes_backwards(
        concurrency in 1u16..5,
        rate in prop::option::of(1u32..50),
        passive in any::<bool>(),
        window in window(),
        events in prop::collection::vec(event(), 0..120),
    ) {
        let mode = if passive { Mode::Passive } else { Mode::Active };
        let mut world = World::made(concurrency, rate, mode).with_queue(window);
        for event in events {
            match event {
                Event::Put(name) => world.put(name, false),
                Event::Delete(name) => world.put(name, true),
                Event::Pump(times) => world.pump(times),
                Event::Succeed(which) => world.end(which, true),
                Event::Fail(which) => world.end(which, false),
                Event::Cursor => world.record_cursor(),
                Event::Wait(seconds) => world.now += Duration::from_secs(seconds),
                Event::Crash(lost) => world.crash(lost),
                Event::Pause => world.set_status(Status::Paused { since: make::at(0) }),
                Event::Resume => world.set_status(Status::Active),
                Event::Replay(name) => world.replay(name),
                Event::QueueForgets => world.queue.iter_mut().for_each(|queue| queue.ready.clear()),
                Event::QueueRepeats(which) => {
                    if let Some(queue) = &mut world.queue {
                        let some = queue.ready.get(which % queue.ready.len().max(1)).cloned();
                        queue.ready.extend(some);
                    }
                }
                Event::QueueLeaves => world.queue.iter_mut().for_each(|queue| queue.is_away = true),
                Event::QueueReturns => world.queue.iter_mut().for_each(|queue| queue.is_away = false),
                Event::QueueBreaks(after) => {
                    world.queue.iter_mut().for_each(|queue| queue.breaks_after = Some(after));
                }
            }
        }
        world.drain();
    }
}

fn tell_all(world: &mut World) {
    world.pump(32);
    while !world.in_flight.is_empty() {
        world.end(0, true);
        world.pump(32);
    }
}

#[test]
fn the_first_revision_is_a_create_and_then_come_updates_and_a_delete() {
    let mut world = World::new(2);
    for step in [false, false, true, false] {
        world.put(1, step);
        tell_all(&mut world);
    }
    let actions: Vec<_> = world.told[&1].iter().map(|(_, action)| *action).collect();
    assert_eq!(actions, [Action::Create, Action::Update, Action::Delete, Action::Create]);
}

#[test]
fn of_what_came_and_went_only_the_end_is_told() {
    let mut world = World::new(2);
    world.put(1, false);
    world.put(1, true);
    tell_all(&mut world);
    assert_eq!(world.told[&1], [(2, Action::Delete)]);
}

#[test]
fn changes_behind_a_request_in_flight_become_one() {
    let mut world = World::new(4);
    world.put(1, false);
    world.pump(4);
    for _ in 0..50 {
        world.put(1, false);
        world.pump(4);
    }
    assert_eq!(world.in_flight.len(), 1);
    tell_all(&mut world);
    assert_eq!(world.told[&1].iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [1, 51]);
}

#[test]
fn a_document_that_fails_does_not_hold_the_others_nor_the_cursor() {
    let mut world = World::new(1);
    world.put(1, false);
    world.pump(1);
    world.end(0, false);
    world.put(2, false);
    // The immediate retries of the first come first, then the second has its turn.
    for _ in 0..4 {
        world.pump(1);
        world.end(0, false);
    }
    assert_eq!(world.state.moved_cursor(), Some(Sequence(2)));
}

#[test]
fn an_outlet_that_is_down_gets_one_request_at_a_time_and_all_retries_when_it_is_back() {
    let mut world = World::new(8);
    for name in 0..4 {
        world.put(name, false);
    }
    for _ in 0..DOWN_AFTER {
        world.now += Duration::from_secs(7200);
        world.pump(8);
        world.end(0, false);
    }
    while world.in_flight.len() > 1 {
        world.end(0, false);
    }
    assert!(world.state.is_down());
    world.now += Duration::from_secs(7200);
    world.pump(8);
    assert_eq!(world.in_flight.len(), 1);
    world.end(0, true);
    assert!(!world.state.is_down());
    world.pump(8);
    assert_eq!(world.in_flight.len(), 3);
}

#[test]
fn a_pace_is_kept_and_the_backlog_stays_in_the_feed() {
    let mut world = World::made(16, Some(10), Mode::Active);
    for name in 0..100 {
        world.put(name, false);
    }
    let mut started = 0;
    for _ in 0..20 {
        world.now += Duration::from_millis(100);
        world.pump(100);
        started += world.in_flight.len();
        while !world.in_flight.is_empty() {
            world.end(0, true);
        }
        assert!(world.state.position().0 <= started as u64 + 16, "more was taken up than may be in flight");
    }
    assert!((20..=21).contains(&started), "{started} starts in two seconds at ten per second");
    assert!(world.state.wake_at(world.now).is_some_and(|at| at <= world.now + Duration::from_millis(100)));
}

#[test]
fn a_passive_outlet_sends_what_it_is_asked_for_and_no_more() {
    let mut world = World::made(16, None, Mode::Passive);
    for name in 0..10 {
        world.put(name, false);
    }
    let changes: Vec<_> = world.feed.values().cloned().collect();
    world.state.take(changes, Sequence::START);
    let mut left = Vec::new();
    let mut record = |step: Progress| {
        if let Progress::Demand { left: credit, .. } = step {
            left.push(credit);
        }
    };
    assert!(world.state.next(world.now, &mut record).is_none());
    world.state.set_credit(3);
    for _ in 0..3 {
        assert!(world.state.next(world.now, &mut record).is_some());
    }
    assert!(world.state.next(world.now, &mut record).is_none());
    assert_eq!(left, [2, 1, 0]);
}

#[test]
fn what_is_gone_or_fails_for_too_long_is_to_be_disabled() {
    let mut world = World::new(1);
    let start = |world: &World| {
        OutletState::new(world.outlet.clone(), world.stream.clone(), Sequence::START, Sequence::START)
            .disable_after(Duration::from_secs(100))
    };
    world.state = start(&world);
    world.put(1, false);
    let fail = |world: &mut World, seconds: i64, gone: bool| {
        world.now += Duration::from_secs(7200);
        world.pump(1);
        let (number, ..) = world.in_flight.pop().unwrap();
        let failure = Failed { reason: "refused".into(), sent: None, gone, retry_after: None };
        let moment = Moment { clock: make::at(seconds), ..world.moment() };
        world.state.finish(number, Outcome::Failed(failure), moment, &mut |step| world.recorded.push(step))
    };
    assert_eq!(fail(&mut world, 2, false), Ending::Usual);
    assert_eq!(fail(&mut world, 101, false), Ending::Usual);
    let is_note = |step: &&Progress| matches!(step, Progress::Failing { since, .. } if *since == Some(make::at(2)));
    assert_eq!(world.recorded.iter().filter(is_note).count(), 1, "{:?}", world.recorded);
    // A restart does not begin anew.
    world.state = start(&world).failing_since(Some(make::at(2)));
    let ending = fail(&mut world, 102, false);
    assert!(matches!(&ending, Ending::Disable(reason) if reason.contains("refused")), "{ending:?}");
    assert!(matches!(fail(&mut world, 103, true), Ending::Disable(reason) if reason.contains("410")));
}
