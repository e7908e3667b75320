//! The thread that flushes what was written, and then says so.

use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use flare_core::{Result, Sequence, document::Change};

use super::{Job, Shared};
use crate::{Durability, KeyValue};

/// How long written but lazy rows may stay off the disk.
const LAZY_SYNC_MAX: Duration = Duration::from_secs(1);
const IDLE_INTERVAL: Duration = Duration::from_secs(60);

pub(super) enum ToSync {
    Group(WrittenGroup),
    /// To be answered when everything before it is done.
    Mark(Sender<()>),
}

impl ToSync {
    fn group(&self) -> Option<&WrittenGroup> {
        match self {
            Self::Group(group) => Some(group),
            Self::Mark(_) => None,
        }
    }
}

/// A group of transactions whose rows are written, but may not be on disk yet.
pub(super) struct WrittenGroup {
    pub jobs: Vec<Box<dyn Job>>,
    pub changes: Vec<Arc<Change>>,
    /// The last sequence of the group.
    pub sequence: Sequence,
    /// Rows were written. What a group without rows answers may rest on those of the group before it.
    pub wrote: bool,
    pub durability: Durability,
}

pub(super) struct Syncer {
    map: Arc<dyn KeyValue>,
    inbox: Receiver<ToSync>,
    shared: Arc<Shared>,
    /// When the oldest lazy row that is not yet on disk was written.
    unsynced_since: Option<Instant>,
}

impl Syncer {
    pub fn new(map: Arc<dyn KeyValue>, inbox: Receiver<ToSync>, shared: Arc<Shared>) -> Self {
        Self { map, inbox, shared, unsynced_since: None }
    }

    pub fn run(mut self) {
        loop {
            let patience =
                self.unsynced_since.map_or(IDLE_INTERVAL, |since| LAZY_SYNC_MAX.saturating_sub(since.elapsed()));
            match self.inbox.recv_timeout(patience) {
                Ok(first) => {
                    let waiting = std::iter::once(first).chain(self.inbox.try_iter()).collect();
                    self.answer(waiting);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.unsynced_since.is_some_and(|since| since.elapsed() >= LAZY_SYNC_MAX) {
                // A failure is noted; nobody waits for lazy rows.
                let _noted = self.sync();
            }
        }
        let _noted = self.sync();
        self.shared.stopped.close();
    }

    fn answer(&mut self, waiting: Vec<ToSync>) {
        let groups = || waiting.iter().filter_map(ToSync::group);
        if groups().any(|group| group.wrote) {
            self.unsynced_since.get_or_insert_with(Instant::now);
        }
        let is_due = self.unsynced_since.is_some() && groups().any(|group| group.durability == Durability::Now);
        let synced = if is_due { self.sync() } else { Ok(()) };
        for item in waiting {
            match item {
                ToSync::Group(group) => self.publish(group, &synced),
                // One who does not wait any more needs no answer.
                ToSync::Mark(done) => drop(done.send(())),
            }
        }
    }

    fn publish(&self, group: WrittenGroup, synced: &Result<()>) {
        if synced.is_ok() && !group.changes.is_empty() {
            self.shared.head.store(group.sequence.0, Ordering::Release);
            self.shared.tell(|listener| listener.changed(group.changes));
        }
        for job in group.jobs {
            job.finish(synced);
        }
    }

    fn sync(&mut self) -> Result<()> {
        let synced = self.map.sync();
        self.unsynced_since = synced.is_err().then(Instant::now);
        self.shared.note_failure(&synced);
        synced
    }
}
