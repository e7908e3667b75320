//! The side of a slot that faces a queue: hints go in as the feed is read, and come out as there is room for them.
//!
//! Queues are made when an outlet is taken up, and again when the broker turns out not to have them any more. Messages are
//! acknowledged in batches, without waiting: one that comes again changes nothing. While a queue cannot be used, its outlets go
//! around it: they start what they read from the feed.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use flare_core::{
    Error, ErrorKind, OutletId, Result,
    document::Change,
    queue::{Message, QueueName, Receipt},
};
use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Done, Slot, count_retries};
use crate::{
    delivery::outlet::{Moment, OutletState, item::QueuedHint, queued::Window},
    fast_map::FastMap,
    tasks::{QueuePer, Tasks, decode, encode},
};

/// How long a pull waits for a message. A queue that gives nothing for so long is empty.
const PULL_WAIT: Duration = Duration::from_secs(20);
/// Messages of a common queue that one slot holds.
const COMMON_TAKEN_MAX: usize = 1024;
/// How long to wait before a queue is asked again that could not be reached.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How often it is tried to remove the queue of an outlet that is gone.
const REMOVALS_MAX: u32 = 60;
/// Time for the last words to a queue when the node stops.
const PARTING_TIME: Duration = Duration::from_secs(2);

pub(super) struct Queueing {
    pub tasks: Arc<Tasks>,
    stop: CancellationToken,
    lines: FastMap<LineId, Line>,
    /// Lines with messages to acknowledge.
    to_ack: Vec<LineId>,
}

/// The outlet that has the queue to itself, or none for the one that all outlets of the slot share.
type LineId = Option<OutletId>;

struct Line {
    name: Arc<QueueName>,
    is_declared: bool,
    is_declaring: bool,
    is_pulling: bool,
    is_acking: bool,
    /// Pushes under way, and those that have come through.
    pushing: usize,
    pushes: u64,
    /// Messages that are held.
    taken: usize,
    acks: Vec<Receipt>,
    /// It could not be used; it is declared again before it is.
    is_ill: bool,
    /// Nothing is asked of it before this.
    resume_at: Option<Instant>,
    /// The alarm that is set for its outlet.
    alarm: Option<Instant>,
}

/// Something that was asked of a queue has been answered.
pub(super) enum Answered {
    Declared(LineId, Result<()>),
    Pushed { line: LineId, outlet: OutletId, changes: Vec<Arc<Change>>, result: Result<()> },
    Pulled { line: LineId, pushes: u64, result: Result<Vec<Message>> },
    Acked(LineId, Result<()>),
    Removed,
}

impl Queueing {
    pub fn new(tasks: Arc<Tasks>, slot: u16, slots: u16, stop: CancellationToken) -> Result<Self> {
        let mut lines = FastMap::default();
        if tasks.queues == QueuePer::Slot {
            lines.insert(None, Line::new(tasks.slot_queue(slot, slots)?));
        }
        Ok(Self { tasks, stop, lines, to_ack: Vec::new() })
    }

    fn line_of(&self, outlet: OutletId) -> LineId {
        (self.tasks.queues == QueuePer::Outlet).then_some(outlet)
    }

    fn window(&self) -> Window {
        match self.tasks.queues {
            QueuePer::Outlet => Window::Own(self.tasks.window),
            QueuePer::Slot => Window::Shared(self.tasks.window),
        }
    }

    fn release(&mut self, id: LineId, receipts: Vec<Receipt>) {
        let Some(line) = self.lines.get_mut(&id).filter(|_| !receipts.is_empty()) else { return };
        if line.acks.is_empty() {
            self.to_ack.push(id);
        }
        line.taken = line.taken.saturating_sub(receipts.len());
        line.acks.extend(receipts);
    }
}

impl Line {
    fn new(name: QueueName) -> Self {
        Self {
            name: Arc::new(name),
            is_declared: false,
            is_declaring: false,
            is_pulling: false,
            is_acking: false,
            pushing: 0,
            pushes: 0,
            taken: 0,
            acks: Vec::new(),
            is_ill: false,
            resume_at: None,
            alarm: None,
        }
    }

    fn rests(&self, now: Instant) -> bool {
        self.resume_at.is_some_and(|at| at > now)
    }
}

impl Slot {
    /// Gives the outlet its place in a queue, where there are queues.
    pub(super) fn join_queue(&mut self, state: OutletState) -> OutletState {
        let Some(queueing) = &mut self.queueing else { return state };
        if queueing.tasks.queues == QueuePer::Outlet {
            let id = state.outlet().id;
            match queueing.tasks.outlet_queue(id) {
                Ok(name) => drop(queueing.lines.insert(Some(id), Line::new(name))),
                // The prefix was checked at the start; without a queue the outlet reads the feed.
                Err(error) => {
                    tracing::error!(subscription = %id, reason = error.chain(), "cannot name the queue");
                    return state;
                }
            }
        }
        state.through_queue(queueing.window())
    }

    /// The outlet is gone: so are its queue, or its messages in the common one.
    pub(super) fn leave_queue(&mut self, state: OutletState) {
        let Some(queueing) = &mut self.queueing else { return };
        let id = state.outlet().id;
        let line = queueing.line_of(id);
        if line.is_none() {
            return queueing.release(line, state.receipts());
        }
        let Some(line) = queueing.lines.remove(&line) else { return };
        let (queue, stop) = (queueing.tasks.queue.clone(), queueing.stop.clone());
        self.running.push(Box::pin(async move {
            for _ in 0..REMOVALS_MAX {
                match queue.remove(&line.name).await {
                    Ok(()) => return Done::Queue(Answered::Removed),
                    Err(error) => {
                        tracing::warn!(queue = %line.name, reason = error.chain(), "could not remove the queue");
                    }
                }
                if stop.run_until_cancelled(sleep(RETRY_DELAY)).await.is_none() {
                    break;
                }
            }
            tracing::warn!(queue = %line.name, "the queue of a subscription that is gone was left behind");
            Done::Queue(Answered::Removed)
        }));
    }

    /// An outlet that is paused holds no messages.
    pub(super) fn give_back_unstarted(&mut self, id: OutletId) {
        let (Some(queueing), Some(state)) = (&mut self.queueing, self.outlets.get_mut(&id)) else { return };
        let (line, unstarted) = (queueing.line_of(id), state.take_unstarted(self.shared.documents.head()));
        let Some(held) = queueing.lines.get_mut(&line).filter(|_| !unstarted.is_empty()) else { return };
        held.taken = held.taken.saturating_sub(unstarted.len());
        let (queue, name) = (queueing.tasks.queue.clone(), held.name.clone());
        let receipts = unstarted.into_iter().map(|hint| hint.receipt).collect();
        self.running.push(Box::pin(async move {
            let result = queue.nack(&name, receipts).await;
            Done::Queue(Answered::Acked(line, result))
        }));
    }

    /// Has the outlet go around its queue while that cannot be used.
    pub(super) fn mind_queue(&mut self, id: OutletId) {
        let (Some(queueing), Some(state)) = (&self.queueing, self.outlets.get_mut(&id)) else { return };
        if let Some(line) = queueing.lines.get(&queueing.line_of(id)) {
            state.go_around_queue(line.is_ill, self.shared.documents.head());
        }
    }

    /// Asks of the outlet's queue what there is to ask: to be made, to take hints, to give some.
    pub(super) fn tend(&mut self, id: OutletId, now: Instant) {
        let (Some(queueing), Some(state)) = (&mut self.queueing, self.outlets.get_mut(&id)) else { return };
        let line_id = queueing.line_of(id);
        queueing.release(line_id, state.take_released());
        let Some(line) = queueing.lines.get_mut(&line_id) else { return };
        if let Some(at) = line.resume_at.filter(|at| *at > now) {
            // The common queue has an alarm of its own.
            if line_id.is_some() && line.alarm.replace(at) != Some(at) {
                self.alarms.push(Reverse((at, id)));
            }
            return;
        }
        if !line.is_declared {
            return self.declare(line_id);
        }
        if state.has_outbox() && !std::mem::replace(&mut state.pushing, true) {
            let changes = state.take_outbox();
            line.pushing += 1;
            let (queue, name) = (queueing.tasks.queue.clone(), line.name.clone());
            self.running.push(Box::pin(async move {
                let messages = changes.iter().map(|change| encode(id, change)).collect();
                let result = queue.push(&name, messages).await;
                Done::Queue(Answered::Pushed { line: line_id, outlet: id, changes, result })
            }));
        }
        let demand = state.hint_demand();
        if line_id.is_some() && demand > 0 {
            self.ask_for_hints(line_id, demand);
        }
    }

    /// The same for the queue that all outlets of the slot share.
    pub(super) fn tend_common(&mut self, now: Instant) {
        let Some(queueing) = &mut self.queueing else { return };
        let limit = COMMON_TAKEN_MAX.min(queueing.tasks.queue.limits().taken_max);
        let Some(line) = queueing.lines.get_mut(&None).filter(|line| !line.rests(now)) else { return };
        if self.outlets.is_empty() {
            return;
        }
        if !line.is_declared {
            self.declare(None);
        } else if line.taken < limit {
            let demand = limit - line.taken;
            self.ask_for_hints(None, demand);
        }
    }

    /// When the common queue is to be asked again.
    pub(super) fn common_alarm(&self) -> Option<Instant> {
        self.queueing.as_ref()?.lines.get(&None)?.resume_at
    }

    fn declare(&mut self, id: LineId) {
        let Some(queueing) = &mut self.queueing else { return };
        let Some(line) = queueing.lines.get_mut(&id) else { return };
        if !std::mem::replace(&mut line.is_declaring, true) {
            line.resume_at = None;
            let (queue, name) = (queueing.tasks.queue.clone(), line.name.clone());
            self.running.push(Box::pin(async move {
                let result = queue.declare(&name).await.map(drop);
                Done::Queue(Answered::Declared(id, result))
            }));
        }
    }

    fn ask_for_hints(&mut self, id: LineId, max: usize) {
        let Some(queueing) = &mut self.queueing else { return };
        let Some(line) = queueing.lines.get_mut(&id) else { return };
        if !std::mem::replace(&mut line.is_pulling, true) {
            let (queue, name, pushes) = (queueing.tasks.queue.clone(), line.name.clone(), line.pushes);
            let stop = queueing.stop.clone();
            self.running.push(Box::pin(async move {
                let pulled = stop.run_until_cancelled(queue.pull(&name, max, PULL_WAIT)).await;
                Done::Queue(Answered::Pulled { line: id, pushes, result: pulled.unwrap_or(Ok(Vec::new())) })
            }));
        }
    }

    /// Tells queues of messages that are done with: all of them at once, while one such call is under way per queue.
    pub(super) fn acknowledge(&mut self) {
        let Some(queueing) = &mut self.queueing else { return };
        for id in std::mem::take(&mut queueing.to_ack) {
            let Some(line) = queueing.lines.get_mut(&id) else { continue };
            if std::mem::replace(&mut line.is_acking, true) {
                continue;
            }
            let (queue, name, receipts) =
                (queueing.tasks.queue.clone(), line.name.clone(), std::mem::take(&mut line.acks));
            self.running.push(Box::pin(async move {
                let result = queue.ack(&name, receipts).await;
                Done::Queue(Answered::Acked(id, result))
            }));
        }
    }

    pub(super) fn end_queue(&mut self, answered: Answered) {
        match answered {
            Answered::Declared(line, result) => self.end_declare(line, result),
            Answered::Pushed { line, outlet, changes, result } => self.end_push(line, outlet, changes, result),
            Answered::Pulled { line, pushes, result } => self.end_pull(line, pushes, result),
            Answered::Acked(line, result) => self.end_ack(line, result),
            Answered::Removed => {}
        }
    }

    fn end_declare(&mut self, id: LineId, result: Result<()>) {
        let Some(line) = self.queueing.as_mut().and_then(|queueing| queueing.lines.get_mut(&id)) else { return };
        line.is_declaring = false;
        line.is_declared = result.is_ok();
        match result {
            Ok(()) => {
                if std::mem::take(&mut line.is_ill) {
                    tracing::info!(queue = %line.name, "the queue can be used again");
                }
                line.resume_at = None;
                if let Some(outlet) = id {
                    self.shared.preparing.lock().remove(&outlet);
                }
                self.line_up_all(id);
            }
            Err(error) => self.rest(id, &error, "could not set up a queue"),
        }
    }

    fn end_push(&mut self, id: LineId, outlet: OutletId, changes: Vec<Arc<Change>>, result: Result<()>) {
        if let Some(state) = self.outlets.get_mut(&outlet) {
            state.pushing = false;
            match &result {
                Ok(()) => state.note_queued(changes.len()),
                Err(_) => state.put_back(changes),
            }
        }
        let Some(line) = self.queueing.as_mut().and_then(|queueing| queueing.lines.get_mut(&id)) else { return };
        line.pushing -= 1;
        match result {
            Ok(()) => line.pushes += 1,
            Err(error) => self.rest(id, &error, "could not push to a queue"),
        }
        self.line_up(outlet);
    }

    fn end_pull(&mut self, id: LineId, pushes: u64, result: Result<Vec<Message>>) {
        let Some(line) = self.queueing.as_mut().and_then(|queueing| queueing.lines.get_mut(&id)) else { return };
        line.is_pulling = false;
        match result {
            Ok(messages) if messages.is_empty() => {
                if line.pushing == 0 && line.pushes == pushes && line.taken == 0 {
                    self.find_lost(id);
                }
            }
            Ok(messages) => {
                line.taken += messages.len();
                self.take_messages(id, messages);
            }
            Err(error) => self.rest(id, &error, "could not pull from a queue"),
        }
        if let Some(outlet) = id {
            self.line_up(outlet);
        }
    }

    fn take_messages(&mut self, id: LineId, messages: Vec<Message>) {
        let (now, mut done) = (Instant::now(), Vec::new());
        let moment = Moment { now, clock: Timestamp::now(), jitter: 0.0 };
        for Message { body, receipt } in messages {
            let Some(hint) = decode(&body) else {
                tracing::warn!(bytes = body.len(), "dropped a message of a queue that is no hint of Flare's");
                done.push(receipt);
                continue;
            };
            // One that is gone needs nothing more.
            let Some(state) = self.outlets.get_mut(&hint.outlet) else {
                done.push(receipt);
                continue;
            };
            let outlet = hint.outlet;
            let hint = QueuedHint { number: hint.number, url: hint.url, sequence: hint.sequence, receipt };
            if state.hint_demand() > 0 {
                state.take_hint(hint);
            } else {
                // There is no room for it: the store keeps it, so that it does not stand in the way of others.
                let (before, recorder) = (state.retries(), &self.shared.recorder);
                done.push(state.note_hint(hint, moment, &mut |step| recorder.record(step)));
                count_retries(&self.shared, before, state.retries());
                self.note_moved(outlet, now);
            }
            self.line_up(outlet);
        }
        if let Some(queueing) = &mut self.queueing {
            queueing.release(id, done);
        }
    }

    fn end_ack(&mut self, id: LineId, result: Result<()>) {
        if let Err(error) = result {
            tracing::debug!(reason = error.chain(), "could not acknowledge messages of a queue; they come again");
        }
        let Some(queueing) = &mut self.queueing else { return };
        let Some(line) = queueing.lines.get_mut(&id) else { return };
        line.is_acking = false;
        if !line.acks.is_empty() {
            queueing.to_ack.push(id);
        }
    }

    /// The queue is empty: what should be in it was lost there.
    fn find_lost(&mut self, id: LineId) {
        let head = self.shared.documents.head();
        let outlets: Vec<_> = match id {
            Some(outlet) => vec![outlet],
            None => self.outlets.keys().copied().collect(),
        };
        for outlet in outlets {
            let Some(state) = self.outlets.get_mut(&outlet).filter(|state| !state.pushing) else { continue };
            let lost = state.find_lost(head);
            if lost > 0 {
                tracing::warn!(subscription = %outlet, lost, "a queue has lost hints; they are pushed again");
                self.line_up(outlet);
            }
        }
    }

    /// Leaves a queue alone for a while that could not be used; one that is gone is made again at once.
    fn rest(&mut self, id: LineId, error: &Error, what: &'static str) {
        let Some(line) = self.queueing.as_mut().and_then(|queueing| queueing.lines.get_mut(&id)) else { return };
        let was_declared = std::mem::take(&mut line.is_declared);
        if error.kind() == ErrorKind::NotFound && was_declared {
            tracing::warn!(queue = %line.name, "a queue is gone; it is made again");
        } else {
            line.resume_at = Some(Instant::now() + RETRY_DELAY);
            if !std::mem::replace(&mut line.is_ill, true) {
                tracing::warn!(queue = %line.name, reason = error.chain(), "{what}; deliveries go around it");
            }
        }
        self.line_up_all(id);
    }

    fn line_up_all(&mut self, id: LineId) {
        match id {
            Some(outlet) => self.line_up(outlet),
            None => {
                let all: Vec<_> = self.outlets.keys().copied().collect();
                all.into_iter().for_each(|outlet| self.line_up(outlet));
            }
        }
    }

    /// Gives back what was not started, and acknowledges the rest.
    pub(super) async fn part_from_queues(&mut self) {
        let Some(queueing) = &mut self.queueing else { return };
        let mut nacks: FastMap<LineId, Vec<Receipt>> = FastMap::default();
        for (id, state) in &mut self.outlets {
            let line = queueing.line_of(*id);
            queueing.release(line, state.take_released());
            let unstarted = state.take_unstarted(self.shared.documents.head());
            if !unstarted.is_empty() {
                nacks.entry(line).or_default().extend(unstarted.into_iter().map(|hint| hint.receipt));
            }
        }
        let queue = &queueing.tasks.queue;
        let partings = queueing.lines.iter_mut().map(|(id, line)| {
            let (acks, nacks) = (std::mem::take(&mut line.acks), nacks.remove(id).unwrap_or_default());
            let name = line.name.clone();
            async move {
                // What cannot be said comes again to the next one.
                let _again = queue.ack(&name, acks).await;
                let _later = queue.nack(&name, nacks).await;
            }
        });
        if timeout(PARTING_TIME, join_all(partings)).await.is_err() {
            tracing::debug!("queues did not hear in time which messages are done with");
        }
    }
}
