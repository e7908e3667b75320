//! Bucket and spread: from a change to the outlets that may be behind because of it.
//!
//! The bucket knows in which slots a stream has outlets; a slot knows its outlets of the stream. Nothing is written:
//! the change is in the feed, and the feed past an outlet's cursor is its backlog. A nudge only says "look", so it may
//! be doubled, merged with others or late. Outlets then take from the feed what they can hold: demand goes up the
//! stages, never work down.

use std::sync::Arc;

use flare_core::{OutletId, Sequence, StreamId, document::Change, port::ChangeListener};
use parking_lot::RwLock;

use crate::{delivery::mailbox::Mailbox, fast_map::FastMap, tail::Tail};

/// Which slots have outlets of a stream, and how many.
pub(crate) struct Bucket {
    mailboxes: Vec<Arc<Mailbox>>,
    streams: RwLock<FastMap<StreamId, Vec<(u16, u32)>>>,
    tail: Arc<Tail>,
}

impl Bucket {
    pub fn new(mailboxes: Vec<Arc<Mailbox>>, tail: Arc<Tail>) -> Self {
        Self { mailboxes, streams: RwLock::default(), tail }
    }

    pub fn mailbox(&self, outlet: OutletId) -> &Mailbox {
        &self.mailboxes[usize::from(self.slot(outlet))]
    }

    fn slot(&self, outlet: OutletId) -> u16 {
        outlet.slot(self.mailboxes.len() as u16)
    }

    pub fn add(&self, stream: StreamId, outlet: OutletId) {
        let slot = self.slot(outlet);
        let mut streams = self.streams.write();
        let slots = streams.entry(stream).or_default();
        match slots.iter_mut().find(|(with, _)| *with == slot) {
            Some((_, outlets)) => *outlets += 1,
            None => slots.push((slot, 1)),
        }
    }

    pub fn remove(&self, stream: StreamId, outlet: OutletId) {
        let slot = self.slot(outlet);
        let mut streams = self.streams.write();
        if let Some(slots) = streams.get_mut(&stream) {
            slots.iter_mut().filter(|(with, _)| *with == slot).for_each(|(_, outlets)| *outlets -= 1);
            slots.retain(|(_, outlets)| *outlets > 0);
            if slots.is_empty() {
                streams.remove(&stream);
            }
        }
    }

    pub fn wake_all(&self) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.wake());
    }
}

impl ChangeListener for Bucket {
    fn changed(&self, changes: Vec<Arc<Change>>) {
        let mut streams: Vec<StreamId> = changes.iter().map(|change| change.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        self.tail.push(changes);
        let buckets = self.streams.read();
        for stream in streams {
            for (slot, _) in buckets.get(&stream).into_iter().flatten() {
                self.mailboxes[usize::from(*slot)].nudge(stream);
            }
        }
    }

    fn missed(&self, head: Sequence) {
        self.tail.reset(head);
        self.mailboxes.iter().for_each(|mailbox| mailbox.nudge_all());
    }
}
