//! The tail of the feed in memory: recent changes, shared by all outlets.
//!
//! An outlet that keeps up finds everything here and costs the store nothing. Like the feed it has one change per
//! document, the newest, so an outlet that falls behind skips what is superseded without looking at it. Bounded in bytes:
//! what does not fit is forgotten from the old end, and whoever needs it reads the feed in the store.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use flare_core::{Sequence, StreamId, document::Change};
use parking_lot::Mutex;

use crate::fast_map::FastMap;

/// Entries of the order that stand for nothing any more, before they are swept.
const STALE_MAX: usize = 1024;

pub(crate) struct Tail {
    inner: Mutex<Inner>,
    bytes_max: usize,
}

struct Inner {
    /// A stream without an entry has had no change since here.
    since: Sequence,
    streams: FastMap<StreamId, StreamTail>,
    /// All changes held, oldest first, and some that were superseded since.
    order: VecDeque<(StreamId, Sequence)>,
    held: usize,
    bytes: usize,
}

struct StreamTail {
    /// The newest change of the stream that was forgotten while it was still the newest of its document.
    forgotten: Sequence,
    changes: BTreeMap<Sequence, Arc<Change>>,
}

impl Tail {
    pub fn new(head: Sequence, bytes_max: usize) -> Self {
        Self { inner: Mutex::new(Inner::new(head)), bytes_max }
    }

    /// Adds changes in the order of their sequences.
    pub fn push(&self, changes: Vec<Arc<Change>>) {
        let mut inner = self.inner.lock();
        changes.into_iter().for_each(|change| inner.add(change));
        inner.forget_past(self.bytes_max);
        inner.sweep();
    }

    /// Up to `limit` changes of the stream past `after`; None if some of them are not held.
    pub fn read(&self, stream: StreamId, after: Sequence, limit: usize) -> Option<Vec<Arc<Change>>> {
        let inner = self.inner.lock();
        let Some(tail) = inner.streams.get(&stream) else { return (after >= inner.since).then(Vec::new) };
        if after < tail.forgotten {
            return None;
        }
        let past = tail.changes.range((Bound::Excluded(after), Bound::Unbounded));
        Some(past.take(limit).map(|(_, change)| change.clone()).collect())
    }

    /// The change of the stream with this sequence, if it is held: nobody has replaced it yet.
    pub fn at(&self, stream: StreamId, sequence: Sequence) -> Option<Arc<Change>> {
        self.inner.lock().streams.get(&stream)?.changes.get(&sequence).cloned()
    }

    /// Forgets everything: changes up to `head` may have been missed.
    pub fn reset(&self, head: Sequence) {
        *self.inner.lock() = Inner::new(head);
    }

    pub fn forget_stream(&self, stream: StreamId) {
        let mut inner = self.inner.lock();
        if let Some(tail) = inner.streams.remove(&stream) {
            inner.held -= tail.changes.len();
            inner.bytes -= tail.changes.values().map(|change| change.memory_bytes()).sum::<usize>();
        }
    }
}

impl Inner {
    fn new(head: Sequence) -> Self {
        Self { since: head, streams: FastMap::default(), order: VecDeque::new(), held: 0, bytes: 0 }
    }

    fn add(&mut self, change: Arc<Change>) {
        let since = self.since;
        let stream = self
            .streams
            .entry(change.stream)
            .or_insert_with(|| StreamTail { forgotten: since, changes: BTreeMap::new() });
        if let Some(older) = change.replaces.and_then(|replaced| stream.changes.remove(&replaced)) {
            older.supersede();
            self.held -= 1;
            self.bytes -= older.memory_bytes();
        }
        self.held += 1;
        self.bytes += change.memory_bytes();
        self.order.push_back((change.stream, change.sequence));
        stream.changes.insert(change.sequence, change);
    }

    fn forget_past(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some((stream, sequence)) = self.order.pop_front() else { return };
            let Some(tail) = self.streams.get_mut(&stream) else { continue };
            if let Some(oldest) = tail.changes.remove(&sequence) {
                tail.forgotten = sequence;
                self.held -= 1;
                self.bytes -= oldest.memory_bytes();
            }
        }
    }

    /// Keeps the order about as long as what is held.
    fn sweep(&mut self) {
        if self.order.len() > 2 * self.held + STALE_MAX {
            let streams = &self.streams;
            let is_held = |stream: &StreamId, sequence: &Sequence| {
                streams.get(stream).is_some_and(|tail| tail.changes.contains_key(sequence))
            };
            self.order.retain(|(stream, sequence)| is_held(stream, sequence));
        }
    }
}

#[cfg(test)]
mod tests {
    use flare_contract::make;
    use flare_core::{DocumentNumber, document::WrittenChange, revision::Revision};

    use super::*;

    fn change(stream: StreamId, sequence: u64, replaces: Option<u64>) -> Arc<Change> {
        let written = WrittenChange {
            sequence: Sequence(sequence),
            number: DocumentNumber(replaces.unwrap_or(sequence)),
            revision: Revision::new(1),
            replaces: replaces.map(Sequence),
        };
        let content = Some(bytes::Bytes::from(vec![b' '; 1000]));
        Arc::new(Change::new(stream, &written, make::url("1"), make::at(0), content))
    }

    fn read(tail: &Tail, stream: StreamId, after: u64) -> Option<Vec<u64>> {
        let changes = tail.read(stream, Sequence(after), 10)?;
        Some(changes.iter().map(|change| change.sequence.0).collect())
    }

    #[test]
    fn it_holds_what_came_since_it_began_and_knows_that_it_has_nothing_older() {
        let (one, two) = (StreamId::generate(), StreamId::generate());
        let tail = Tail::new(Sequence(10), 1 << 20);
        tail.push(vec![change(one, 11, None), change(two, 12, None), change(one, 13, None)]);
        assert_eq!(read(&tail, one, 10), Some(vec![11, 13]));
        assert_eq!(read(&tail, one, 11), Some(vec![13]));
        assert_eq!(read(&tail, one, 13), Some(vec![]));
        assert_eq!(read(&tail, one, 9), None);
        let quiet = StreamId::generate();
        assert_eq!(read(&tail, quiet, 10), Some(vec![]));
        assert_eq!(read(&tail, quiet, 9), None);
    }

    #[test]
    fn it_forgets_from_the_old_end_and_says_so_only_to_those_who_need_it() {
        let (one, two) = (StreamId::generate(), StreamId::generate());
        let tail = Tail::new(Sequence(0), 3000);
        tail.push(vec![change(one, 1, None)]);
        tail.push((2..20).map(|sequence| change(two, sequence, None)).collect());
        assert_eq!(read(&tail, one, 0), None);
        assert_eq!(read(&tail, one, 1), Some(vec![]), "an outlet that has the last change needs no older one");
        assert_eq!(read(&tail, two, 17), Some(vec![18, 19]));
        assert_eq!(read(&tail, two, 2), None);
    }

    #[test]
    fn an_older_change_of_the_same_document_gives_way() {
        let one = StreamId::generate();
        let tail = Tail::new(Sequence(0), 1 << 20);
        let older = change(one, 1, None);
        tail.push(vec![older.clone(), change(one, 2, None), change(one, 3, Some(1))]);
        assert!(older.is_superseded());
        assert_eq!(read(&tail, one, 0), Some(vec![2, 3]));
    }

    #[test]
    fn a_document_that_changes_for_ever_takes_the_room_of_one() {
        let one = StreamId::generate();
        let tail = Tail::new(Sequence(0), 1 << 20);
        tail.push(vec![change(one, 1, None)]);
        for sequence in 2..20_000 {
            tail.push(vec![change(one, sequence, Some(sequence - 1))]);
        }
        let inner = tail.inner.lock();
        assert_eq!(inner.held, 1);
        assert!(inner.order.len() <= STALE_MAX + 3, "{}", inner.order.len());
        assert!(inner.bytes < 2000);
    }

    #[test]
    fn after_a_reset_nobody_relies_on_it() {
        let one = StreamId::generate();
        let tail = Tail::new(Sequence(0), 1 << 20);
        tail.push(vec![change(one, 1, None)]);
        tail.reset(Sequence(5));
        assert_eq!(read(&tail, one, 1), None);
        assert_eq!(read(&tail, one, 5), Some(vec![]));
        tail.push(vec![change(one, 6, None)]);
        assert_eq!(read(&tail, one, 5), Some(vec![6]));
        assert_eq!(read(&tail, one, 4), None);
    }
}
