//! The thread that runs transactions, one after another, and writes their rows in groups.

use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::{Duration, Instant},
};

use flare_core::{Error, Result, Sequence};

use super::{
    Job, Shared,
    syncer::{ToSync, WrittenGroup},
};
use crate::{
    Durability, KeyValue, Row, Table,
    housekeeping::{self, Chore},
    keys,
    recent::Recent,
    transaction::{Group, read_count},
};

/// A group is closed when it has so many rows, so that the first of it does not wait for too long.
const GROUP_ROWS_MAX: usize = 8192;
/// How often a store in trouble looks whether it is over.
const TROUBLE_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long writers may keep the house waiting.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_millis(20);
/// How often idempotency keys past their retention are looked for.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60 * 60);
const IDLE_INTERVAL: Duration = Duration::from_secs(60);

pub(super) struct SerialWriter {
    map: Arc<dyn KeyValue>,
    inbox: Receiver<Box<dyn Job>>,
    written: Sender<ToSync>,
    shared: Arc<Shared>,
    /// The last sequence that was written.
    sequence: Sequence,
    recent: Recent,
}

impl SerialWriter {
    pub fn new(
        map: Arc<dyn KeyValue>,
        inbox: Receiver<Box<dyn Job>>,
        written: Sender<ToSync>,
        shared: Arc<Shared>,
    ) -> Self {
        let sequence = shared.head();
        Self { map, inbox, written, shared, sequence, recent: Recent::default() }
    }

    pub fn run(mut self) {
        let mut purges_left = true;
        let mut looked_at = Instant::now();
        let mut expired_at: Option<Instant> = None;
        loop {
            match self.inbox.recv_timeout(self.patience(purges_left)) {
                Ok(first) => {
                    self.end_trouble();
                    self.run_group(first);
                    // A deletion may have been among them.
                    purges_left = true;
                    if looked_at.elapsed() < HOUSEKEEPING_INTERVAL {
                        continue;
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.end_trouble(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            purges_left = self.housekeep(housekeeping::purge_some);
            if expired_at.is_none_or(|at| at.elapsed() >= EXPIRY_INTERVAL) && !purges_left {
                self.housekeep(housekeeping::expire_idempotency_keys);
                expired_at = Some(Instant::now());
            }
            looked_at = Instant::now();
        }
    }

    /// How long to wait for writers before looking after the house.
    fn patience(&self, purges_left: bool) -> Duration {
        if self.shared.trouble.lock().is_some() {
            TROUBLE_CHECK_INTERVAL
        } else if purges_left {
            HOUSEKEEPING_INTERVAL
        } else {
            IDLE_INTERVAL
        }
    }

    fn run_group(&mut self, first: Box<dyn Job>) {
        let mut group = Group::new(self.sequence);
        let mut jobs = vec![first];
        let mut ran = 0;
        loop {
            jobs[ran].run(&*self.map, &mut self.recent, &mut group);
            ran += 1;
            if group.rows_len() >= GROUP_ROWS_MAX {
                break;
            }
            match self.inbox.try_recv() {
                Ok(job) => jobs.push(job),
                Err(_) => break,
            }
        }
        let (sequence, changes, durability) = (group.sequence(), group.take_changes(), group.durability());
        let written = group.take_rows(&*self.map, self.sequence).and_then(|rows| {
            let wrote = !rows.is_empty();
            self.write(rows).map(|()| wrote)
        });
        match written {
            Ok(wrote) => {
                self.sequence = sequence;
                group.teach(&mut self.recent);
                self.hand_on(WrittenGroup { jobs, changes, sequence, wrote, durability });
            }
            Err(error) => jobs.into_iter().for_each(|job| job.finish(&Err(error.clone()))),
        }
    }

    fn write(&self, rows: Vec<Row>) -> Result<()> {
        // Also for those that have nothing to write: what they found may not be on disk.
        if let Some(reason) = self.shared.trouble.lock().clone() {
            return Err(Error::unavailable(reason));
        }
        if rows.is_empty() {
            return Ok(());
        }
        let written = self.map.write(rows);
        self.shared.note_failure(&written);
        written
    }

    fn hand_on(&self, group: WrittenGroup) {
        // The syncer lives as long as there is a sender: it is gone only if it has panicked, and then the callers, whose
        // jobs are dropped, are told that the store is closed.
        let _panicked = self.written.send(ToSync::Group(group));
    }

    /// Repairs the store, if it can be repaired now.
    fn end_trouble(&mut self) {
        if self.shared.trouble.lock().is_none() {
            return;
        }
        // What was written before the repair must not be taken for flushed by a flush after it.
        self.wait_for_syncer();
        self.recent.forget_all();
        let repaired = self.map.check().and_then(|()| self.catch_up());
        self.shared.note_failure(&repaired);
        if repaired.is_ok() {
            *self.shared.trouble.lock() = None;
            tracing::info!("the store takes writes again");
        }
    }

    /// Until it has answered for all that was handed on.
    fn wait_for_syncer(&self) {
        let (done, is_done) = channel();
        let _panicked = self.written.send(ToSync::Mark(done));
        // An end without a word means that the syncer is gone.
        let _panicked = is_done.recv();
    }

    /// A batch that failed late may be on disk all the same: its sequences must not be given out again, and nobody has
    /// heard of its changes.
    fn catch_up(&mut self) -> Result<()> {
        let found = read_count(self.map.get(Table::Meta, keys::SEQUENCE)?.as_ref())?;
        self.map.sync()?;
        self.sequence = Sequence(self.shared.head.fetch_max(found, Ordering::AcqRel).max(found));
        self.shared.tell(|listener| listener.missed(Sequence(found)));
        Ok(())
    }

    /// Runs one step of work that nobody waits for; true if there may be more.
    fn housekeep(&mut self, step: fn(&dyn KeyValue) -> Result<Chore>) -> bool {
        let chore = match step(&*self.map) {
            Ok(chore) => chore,
            Err(error) => {
                tracing::warn!(reason = error.chain(), "housekeeping of the store failed; it will be tried again");
                return false;
            }
        };
        if chore.rows.is_empty() {
            return chore.more;
        }
        self.recent.forget_all();
        if self.write(chore.rows).is_err() {
            return false;
        }
        self.hand_on(WrittenGroup {
            jobs: Vec::new(),
            changes: Vec::new(),
            sequence: self.sequence,
            wrote: true,
            durability: Durability::Later,
        });
        chore.more
    }
}
