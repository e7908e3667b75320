//! The tail of the feed in memory: recent changes, shared by all outlets.
//!
//! An outlet that keeps up finds everything here and costs the store nothing. Bounded in bytes: what does not fit is
//! forgotten from the old end, and whoever needs it reads the feed in the store.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use flare_core::{Sequence, StreamId, document::Change};
use parking_lot::Mutex;

pub(crate) struct Tail {
    inner: Mutex<Inner>,
    bytes_max: usize,
}

struct Inner {
    /// A stream without an entry has had no change since here.
    since: Sequence,
    streams: HashMap<StreamId, StreamTail>,
    /// All changes held, oldest first.
    order: VecDeque<StreamId>,
    bytes: usize,
}

struct StreamTail {
    /// The newest change of the stream that is not held.
    forgotten: Sequence,
    changes: VecDeque<Arc<Change>>,
}

impl Tail {
    pub fn new(head: Sequence, bytes_max: usize) -> Self {
        let inner = Inner { since: head, streams: HashMap::new(), order: VecDeque::new(), bytes: 0 };
        Self { inner: Mutex::new(inner), bytes_max }
    }

    /// Adds changes in the order of their sequences.
    pub fn push(&self, changes: Vec<Arc<Change>>) {
        let mut inner = self.inner.lock();
        for change in changes {
            let since = inner.since;
            inner.bytes += change.memory_bytes();
            inner.order.push_back(change.stream);
            let stream = inner
                .streams
                .entry(change.stream)
                .or_insert_with(|| StreamTail { forgotten: since, changes: VecDeque::new() });
            if let Some(replaced) = change.replaces
                && let Ok(place) = stream.changes.binary_search_by_key(&replaced, |held| held.sequence)
            {
                stream.changes[place].supersede();
            }
            stream.changes.push_back(change);
        }
        inner.forget_past(self.bytes_max);
    }

    /// Up to `limit` changes of the stream past `after`; None if some of them are not held.
    pub fn read(&self, stream: StreamId, after: Sequence, limit: usize) -> Option<Vec<Arc<Change>>> {
        let inner = self.inner.lock();
        let Some(tail) = inner.streams.get(&stream) else { return (after >= inner.since).then(Vec::new) };
        if after < tail.forgotten {
            return None;
        }
        let start = tail.changes.partition_point(|change| change.sequence <= after);
        Some(tail.changes.range(start..).take(limit).cloned().collect())
    }

    /// Forgets everything: changes up to `head` may have been missed.
    pub fn reset(&self, head: Sequence) {
        let mut inner = self.inner.lock();
        *inner = Inner { since: head, streams: HashMap::new(), order: VecDeque::new(), bytes: 0 };
    }

    pub fn forget_stream(&self, stream: StreamId) {
        let mut inner = self.inner.lock();
        if let Some(tail) = inner.streams.get_mut(&stream) {
            let held = std::mem::take(&mut tail.changes);
            let freed: usize = held.iter().map(|change| change.memory_bytes()).sum();
            inner.streams.remove(&stream);
            inner.bytes -= freed;
            inner.order.retain(|of| *of != stream);
        }
    }
}

impl Inner {
    fn forget_past(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some(stream) = self.order.pop_front() else { return };
            let Some(tail) = self.streams.get_mut(&stream) else { continue };
            if let Some(oldest) = tail.changes.pop_front() {
                tail.forgotten = oldest.sequence;
                self.bytes -= oldest.memory_bytes();
            }
        }
    }
}
