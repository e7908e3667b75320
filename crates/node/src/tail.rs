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
    fn an_older_change_of_the_same_document_is_marked() {
        let one = StreamId::generate();
        let tail = Tail::new(Sequence(0), 1 << 20);
        let older = change(one, 1, None);
        tail.push(vec![older.clone(), change(one, 2, None), change(one, 3, Some(1))]);
        assert!(older.is_superseded());
        assert!(!tail.read(one, Sequence(1), 1).unwrap()[0].is_superseded());
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
