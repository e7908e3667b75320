//! What an outlet does that gets its changes through a queue.
//!
//! The feed stays the truth: a change goes from the feed into the queue as a hint, comes back when the outlet has room for
//! it, and the cursor passes it only once it is handled. So the queue may lose, repeat and reorder what it likes: what is
//! not handled is found in the feed again, after a crash or when the queue turns out to be empty. While the queue cannot be
//! used at all, changes go around it.

use std::sync::Arc;

use flare_core::{
    Sequence,
    document::{Change, Progress},
    queue::Receipt,
};

use super::{
    Active, Moment, OutletState,
    item::{Item, QueuedHint},
};

/// How much of the feed may be on its way through the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Window {
    /// So much: the outlet has a queue of its own.
    Own(usize),
    /// About as much as the outlet can start, and no more than this: others wait in the same queue.
    Shared(usize),
}

/// While an outlet is busy, so many times what it can start is on its way to it.
const SHARED_AHEAD: usize = 8;

impl OutletState {
    pub fn through_queue(mut self, window: Window) -> Self {
        self.window = Some(window);
        self
    }

    pub(super) fn window_in_use(&self) -> Option<Window> {
        self.window.filter(|_| !self.around_queue)
    }

    /// Whether changes go around the queue, which cannot be used. What is in it, or on its way, is read from the feed again.
    /// What is taken up by now, up to `head`, may come both ways.
    pub fn go_around_queue(&mut self, around: bool, head: Sequence) {
        if std::mem::replace(&mut self.around_queue, around) == around {
            return;
        }
        self.unsure_until = self.unsure_until.max(head);
        if around {
            self.find_lost(head);
            if let Some(active) = &mut self.active {
                active.buffer.extend(active.outbox.drain(..).map(Item::Change));
            }
        }
    }

    pub(super) fn room_in(&self, window: Window) -> usize {
        let most = match window {
            Window::Own(most) => most,
            Window::Shared(most) => most.min(SHARED_AHEAD * (self.limit() + self.pull_demand)),
        };
        most.saturating_sub(self.active.as_ref().map_or(0, |active| active.unhandled.len()))
    }

    /// How many hints it could start now, if the queue had them.
    pub fn hint_demand(&self) -> usize {
        let buffered = self.active.as_ref().map_or(0, |active| active.buffer.len());
        if !self.outlet.status.is_active() { 0 } else { (self.room() + self.pull_demand).saturating_sub(buffered) }
    }

    /// Takes what is to go into the queue. What a newer change has replaced needs no hint.
    pub fn take_outbox(&mut self) -> Vec<Arc<Change>> {
        let Some(active) = &mut self.active else { return Vec::new() };
        let (superseded, hints): (Vec<_>, Vec<_>) =
            std::mem::take(&mut active.outbox).into_iter().partition(|change| change.is_superseded());
        for change in superseded {
            active.unhandled.remove(&change.sequence);
        }
        self.rest_if_idle();
        hints
    }

    pub fn has_outbox(&self) -> bool {
        self.active.as_ref().is_some_and(|active| !active.outbox.is_empty())
    }

    /// They did not get into the queue, or nobody knows: they go again.
    pub fn put_back(&mut self, changes: Vec<Arc<Change>>) {
        let around = self.around_queue;
        let active = self.active();
        if around {
            return active.buffer.extend(changes.into_iter().map(Item::Change));
        }
        for change in changes.into_iter().rev() {
            active.outbox.push_front(change);
        }
    }

    /// So many hints are in the queue.
    pub fn note_queued(&mut self, hints: usize) {
        self.active().queued += hints;
    }

    /// A hint has come out of the queue.
    pub fn take_hint(&mut self, hint: QueuedHint) {
        let active = self.active();
        active.queued = active.queued.saturating_sub(1);
        active.buffer.push_back(Item::Hint(Box::new(hint)));
    }

    /// A hint has come out of the queue for which there is no room: it is noted in the store. Gives the message back that
    /// is done with.
    pub fn note_hint(&mut self, hint: QueuedHint, moment: Moment, record: &mut impl FnMut(Progress)) -> Receipt {
        let active = self.active();
        active.queued = active.queued.saturating_sub(1);
        active.unhandled.remove(&hint.sequence);
        self.hint(hint.number, hint.url, moment, record);
        hint.receipt
    }

    /// Whether nothing of the feed is on its way through the queue.
    pub(super) fn queue_is_quiet(&self) -> bool {
        let is_quiet = |active: &Active| active.queued == 0 && active.outbox.is_empty();
        !self.pushing && self.active.as_deref().is_none_or(is_quiet)
    }

    /// Messages that are done with.
    pub fn take_released(&mut self) -> Vec<Receipt> {
        let Some(active) = &mut self.active else { return Vec::new() };
        let released = std::mem::take(&mut active.released);
        self.rest_if_idle();
        released
    }

    /// Hints that have not been started, to be given back to the queue. One that cannot be used does not count.
    pub fn take_unstarted(&mut self, head: Sequence) -> Vec<QueuedHint> {
        let Some(active) = &mut self.active else { return Vec::new() };
        let (hints, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut active.buffer).into_iter().partition(|item| matches!(item, Item::Hint(_)));
        active.buffer = rest.into();
        active.queued += hints.len();
        if self.around_queue {
            self.find_lost(head);
        }
        hints.into_iter().filter_map(Item::into_hint).collect()
    }

    /// All messages that the outlet holds.
    pub fn receipts(mut self) -> Vec<Receipt> {
        let Some(active) = self.active.take() else { return Vec::new() };
        let flights = active.in_flight.into_values();
        let flying =
            flights.flat_map(|flight| flight.receipt.into_iter().chain(flight.next.and_then(Item::into_receipt)));
        let waiting = active.buffer.into_iter().filter_map(Item::into_receipt);
        flying.chain(waiting).chain(active.released).collect()
    }

    /// The queue is empty: what is not handled and nowhere else has been lost there. The feed is read again from before it,
    /// and what came through meanwhile may come twice, up to `head`. Says how much was lost.
    pub fn find_lost(&mut self, head: Sequence) -> usize {
        let Some(active) = &mut self.active else { return 0 };
        active.queued = 0;
        let mut known: Vec<Sequence> = active.outbox.iter().map(|change| change.sequence).collect();
        known.extend(active.buffer.iter().map(Item::sequence));
        for flight in active.in_flight.values() {
            known.extend(flight.sequence.into_iter().chain(flight.next.as_ref().map(Item::sequence)));
        }
        known.sort_unstable();
        let lost = |sequence: &Sequence| known.binary_search(sequence).is_err();
        let Some(first) = active.unhandled.iter().copied().find(lost) else { return 0 };
        let before = active.unhandled.len();
        active.unhandled.retain(|sequence| !lost(sequence));
        let lost = before - active.unhandled.len();
        self.position = self.position.min(Sequence(first.0 - 1));
        self.unsure_until = self.unsure_until.max(head);
        self.caught_up = false;
        self.rest_if_idle();
        lost
    }
}
