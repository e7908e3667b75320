//! The changes of all nodes, told in the order of their sequences.
//!
//! In a store that several nodes write to, a node hears of its own changes at once, and of those of others when it looks:
//! because somebody told it to, or because it is time. Nothing is told twice and nothing is passed over: what does not
//! follow on what was told last is read from the store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use flare_core::{Result, Sequence, document::Change, port::ChangeListener};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Changes read in one step.
pub const READ_MAX: usize = 500;
/// Past this it is cheaper that outlets read what they need from the feed.
const GAP_MAX: u64 = 20_000;

/// What is known of the changes of a store.
pub struct Follower {
    /// The newest change that is known to be durable.
    head: AtomicU64,
    told: Mutex<Told>,
    look: Notify,
}

struct Told {
    /// The listener knows of everything up to here.
    until: Sequence,
    listener: Option<Arc<dyn ChangeListener>>,
}

impl Follower {
    pub fn new(head: Sequence) -> Self {
        let told = Mutex::new(Told { until: head, listener: None });
        Self { head: AtomicU64::new(head.0), told, look: Notify::new() }
    }

    pub fn head(&self) -> Sequence {
        Sequence(self.head.load(Ordering::Acquire))
    }

    /// Tells `listener` of every change after the head of now.
    pub fn listen(&self, listener: Arc<dyn ChangeListener>) {
        let mut told = self.told.lock();
        told.until = told.until.max(self.head());
        told.listener = Some(listener);
    }

    /// This node has made these changes durable. They stand one after another, the first just after `after`.
    pub fn committed(&self, after: Sequence, changes: Vec<Arc<Change>>) {
        let Some(last) = changes.last().map(|change| change.sequence) else { return };
        let mut told = self.told.lock();
        if told.until == after {
            told.tell(changes);
            self.head.fetch_max(last.0, Ordering::AcqRel);
        } else if told.until < last {
            // Others have written in between.
            drop(told);
            self.noticed(last);
        }
    }

    /// The store has changes up to here.
    pub fn noticed(&self, head: Sequence) {
        if self.head.fetch_max(head.0, Ordering::AcqRel) < head.0 || self.told.lock().until < head {
            self.look.notify_one();
        }
    }

    /// Looks now, and not only when it is time.
    pub fn look(&self) {
        self.look.notify_one();
    }

    /// Looks for changes of others until it is told to stop: when something was noticed, and at the interval.
    /// `head` asks the store for its head; `read` reads what follows a sequence, of all streams, in order.
    pub async fn run<H, HF, R, RF>(&self, stop: CancellationToken, interval: Duration, head: H, read: R)
    where
        H: Fn() -> HF,
        HF: Future<Output = Result<Sequence>>,
        R: Fn(Sequence, usize) -> RF,
        RF: Future<Output = Result<Vec<Change>>>,
    {
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.look.notified() => {}
                () = tokio::time::sleep(interval) => {}
            }
            match head().await {
                Ok(found) => drop(self.head.fetch_max(found.0, Ordering::AcqRel)),
                // The store says itself that it is in trouble.
                Err(_) => continue,
            }
            while let Some(after) = self.gap() {
                match read(after, READ_MAX).await {
                    Ok(changes) if changes.is_empty() => self.skip(after),
                    Ok(changes) => self.found(after, changes.into_iter().map(Arc::new).collect()),
                    Err(_) => break,
                }
            }
        }
    }

    /// Where the listener has to be told on from, if it has.
    fn gap(&self) -> Option<Sequence> {
        let head = self.head();
        let mut told = self.told.lock();
        if told.until >= head || told.listener.is_none() {
            return None;
        }
        if head.0 - told.until.0 > GAP_MAX {
            told.until = head;
            told.listener.iter().for_each(|listener| listener.missed(head));
            return None;
        }
        Some(told.until)
    }

    fn found(&self, after: Sequence, changes: Vec<Arc<Change>>) {
        let mut told = self.told.lock();
        // Meanwhile this node may have told of some of them itself.
        if told.until == after {
            told.tell(changes);
        }
    }

    /// What lies up to here cannot be read any more in order: only the feed knows.
    pub fn pass_over(&self, head: Sequence) {
        self.head.fetch_max(head.0, Ordering::AcqRel);
        let mut told = self.told.lock();
        if told.until < head {
            told.until = head;
            told.listener.iter().for_each(|listener| listener.missed(head));
        }
    }

    /// There is nothing after this any more, although the head says so: it was removed.
    fn skip(&self, after: Sequence) {
        let head = self.head();
        let mut told = self.told.lock();
        if told.until == after {
            told.until = head;
        }
    }
}

impl Told {
    fn tell(&mut self, changes: Vec<Arc<Change>>) {
        if let Some(last) = changes.last() {
            self.until = last.sequence;
        }
        if let Some(listener) = &self.listener {
            listener.changed(changes);
        }
    }
}

#[cfg(test)]
mod tests {
    use flare_contract::make;
    use flare_core::{DocumentNumber, StreamId, document::WrittenChange, revision::Revision};

    use super::*;

    #[derive(Default)]
    struct Heard {
        sequences: Mutex<Vec<u64>>,
        missed: Mutex<Vec<u64>>,
        news: Notify,
    }

    impl ChangeListener for Heard {
        fn changed(&self, changes: Vec<Arc<Change>>) {
            self.sequences.lock().extend(changes.iter().map(|change| change.sequence.0));
            self.news.notify_one();
        }

        fn missed(&self, head: Sequence) {
            self.missed.lock().push(head.0);
            self.news.notify_one();
        }
    }

    fn change(sequence: u64) -> Change {
        let written = WrittenChange {
            sequence: Sequence(sequence),
            number: DocumentNumber(sequence),
            revision: Revision::new(1),
            replaces: None,
        };
        Change::new(StreamId::from_bytes([0; 16]), &written, make::url("1"), make::at(0), None)
    }

    fn changes(sequences: std::ops::RangeInclusive<u64>) -> Vec<Arc<Change>> {
        sequences.map(|sequence| Arc::new(change(sequence))).collect()
    }

    /// Runs until the listener has heard something.
    async fn run(follower: &Follower, heard: &Heard, head: u64) {
        let stop = CancellationToken::new();
        let read = |after: Sequence, limit: usize| async move {
            Ok((after.0 + 1..=head).take(limit).map(change).collect::<Vec<_>>())
        };
        tokio::select! {
            () = follower.run(stop.clone(), Duration::from_secs(60), || async move { Ok(Sequence(head)) }, read) => {}
            () = heard.news.notified() => {}
        }
    }

    #[test]
    fn own_changes_are_told_at_once_when_nothing_lies_between() {
        let (follower, heard) = (Follower::new(Sequence(10)), Arc::new(Heard::default()));
        follower.listen(heard.clone());
        follower.committed(Sequence(10), changes(11..=12));
        follower.committed(Sequence(12), changes(13..=13));
        assert_eq!(*heard.sequences.lock(), [11, 12, 13]);
        assert_eq!(follower.head(), Sequence(13));
    }

    #[test]
    fn what_cannot_be_read_any_more_is_told_as_missed() {
        let (follower, heard) = (Follower::new(Sequence(10)), Arc::new(Heard::default()));
        follower.listen(heard.clone());
        follower.pass_over(Sequence(10));
        assert!(heard.missed.lock().is_empty());
        follower.pass_over(Sequence(40));
        assert_eq!((follower.head(), heard.missed.lock().as_slice()), (Sequence(40), &[40][..]));
        follower.committed(Sequence(40), changes(41..=41));
        assert_eq!(*heard.sequences.lock(), [41]);
    }

    #[tokio::test]
    async fn changes_of_others_are_read_and_told_in_their_place() {
        let (follower, heard) = (Follower::new(Sequence(10)), Arc::new(Heard::default()));
        follower.listen(heard.clone());
        follower.committed(Sequence(12), changes(13..=14));
        assert!(heard.sequences.lock().is_empty(), "11 and 12 are not told yet");
        run(&follower, &heard, 14).await;
        assert_eq!(*heard.sequences.lock(), [11, 12, 13, 14]);
        follower.committed(Sequence(14), changes(15..=15));
        assert_eq!(*heard.sequences.lock(), [11, 12, 13, 14, 15]);
    }

    #[tokio::test]
    async fn who_is_far_behind_is_sent_to_the_feed() {
        let (follower, heard) = (Follower::new(Sequence(10)), Arc::new(Heard::default()));
        follower.listen(heard.clone());
        follower.noticed(Sequence(1_000_000));
        run(&follower, &heard, 1_000_000).await;
        assert_eq!(*heard.missed.lock(), [1_000_000]);
        follower.committed(Sequence(1_000_000), changes(1_000_001..=1_000_001));
        assert_eq!(*heard.sequences.lock(), [1_000_001]);
    }
}
