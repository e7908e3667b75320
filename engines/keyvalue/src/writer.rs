//! The one thread that writes: group commit.
//!
//! Callers hand in closures and wait. The thread takes what is waiting, runs the closures one after another over a
//! common view, commits their rows as one batch with one flush to disk, and only then answers. While the disk works,
//! the next group gathers: the more callers, the fewer flushes each of them pays for.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use flare_core::{Error, Result, Sequence, port::ChangeListener};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{
    Durability, KeyValue, Options, Row, Table, keys, rows,
    transaction::{Group, Transaction, read_count},
};

/// A group is closed when it has so many rows, so that the first of it does not wait for too long.
const GROUP_ROWS_MAX: usize = 8192;
/// The longest time that a group is held open for more writers. They are expected only when several came last time, so a
/// single writer never waits.
const GATHER_MAX: Duration = Duration::from_millis(1);
/// How long written but lazy rows may stay off the disk.
const LAZY_SYNC_MAX: Duration = Duration::from_secs(1);
/// How often a store in trouble looks whether it is over.
const TROUBLE_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Rows removed in one step while a deleted stream or outlet is purged.
const PURGE_ROWS_MAX: usize = 2048;
/// How often idempotency keys past their retention are looked for.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60 * 60);
const IDLE_INTERVAL: Duration = Duration::from_secs(60);

pub(crate) struct Writer {
    jobs: Mutex<Option<Sender<Box<dyn Job>>>>,
    waiting: Arc<Semaphore>,
    shared: Arc<Shared>,
}

struct Shared {
    /// The last sequence that is on disk.
    head: AtomicU64,
    trouble: Mutex<Option<String>>,
    listener: Mutex<Option<Arc<dyn ChangeListener>>>,
    stopped: Semaphore,
}

impl Writer {
    pub(crate) fn start(map: Arc<dyn KeyValue>, options: &Options) -> Result<Self> {
        let head = read_count(map.get(Table::Meta, keys::SEQUENCE)?.as_ref())?;
        let shared = Arc::new(Shared {
            head: AtomicU64::new(head),
            trouble: Mutex::new(None),
            listener: Mutex::new(None),
            stopped: Semaphore::new(0),
        });
        let (jobs, inbox) = channel();
        let thread = WriterThread { map, inbox, shared: shared.clone(), unsynced_since: None, gather: Duration::ZERO };
        std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || thread.run())
            .map_err(|error| Error::internal("could not start the writer thread").because(error))?;
        let waiting = Arc::new(Semaphore::new(options.writes_waiting_max));
        Ok(Self { jobs: Mutex::new(Some(jobs)), waiting, shared })
    }

    pub(crate) fn head(&self) -> Sequence {
        Sequence(self.shared.head.load(Ordering::Acquire))
    }

    pub(crate) fn listen(&self, listener: Arc<dyn ChangeListener>) {
        *self.shared.listener.lock() = Some(listener);
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        self.shared.trouble.lock().clone()
    }

    /// Runs `work` as a serial transaction; resolves when its rows are committed as `durability` asks.
    pub(crate) async fn transact<R: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let closed = || Error::unavailable("the store is closed");
        let place = self.waiting.clone().acquire_owned().await.map_err(|_| closed())?;
        let (answer, answered) = oneshot::channel();
        let job = Box::new(Work { work: Some(work), result: None, answer, durability, _place: place });
        let sent = self.jobs.lock().as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if !sent {
            return Err(closed());
        }
        answered.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Waits until everything that was handed in is on disk, and ends the thread.
    pub(crate) async fn close(&self) -> Result<()> {
        self.waiting.close();
        drop(self.jobs.lock().take());
        // The thread closes the semaphore as its last act.
        let _ended = self.shared.stopped.acquire().await;
        match self.trouble() {
            None => Ok(()),
            Some(reason) => Err(Error::unavailable(reason)),
        }
    }
}

/// A closure with the caller that waits for it.
trait Job: Send {
    fn run(&mut self, map: &dyn KeyValue, group: &mut Group);
    fn finish(self: Box<Self>, committed: &Result<()>);
}

struct Work<F, R> {
    work: Option<F>,
    result: Option<Result<R>>,
    answer: oneshot::Sender<Result<R>>,
    durability: Durability,
    _place: OwnedSemaphorePermit,
}

impl<R: Send, F: FnOnce(&mut Transaction<'_>) -> Result<R> + Send> Job for Work<F, R> {
    fn run(&mut self, map: &dyn KeyValue, group: &mut Group) {
        let Some(work) = self.work.take() else { return };
        let mut transaction = Transaction::new(map, group);
        let result = work(&mut transaction);
        if result.is_ok() {
            transaction.keep(self.durability);
        }
        self.result = Some(result);
    }

    fn finish(self: Box<Self>, committed: &Result<()>) {
        let result = match (self.result, committed) {
            (Some(Ok(_)), Err(error)) => Err(error.clone()),
            (Some(result), _) => result,
            (None, _) => Err(Error::internal("a transaction did not run")),
        };
        // A caller that has gone away needs no answer.
        let _gone = self.answer.send(result);
    }
}

struct WriterThread {
    map: Arc<dyn KeyValue>,
    inbox: Receiver<Box<dyn Job>>,
    shared: Arc<Shared>,
    /// When the oldest lazy row that is not yet on disk was written.
    unsynced_since: Option<Instant>,
    /// How long to hold the next group open.
    gather: Duration,
}

impl WriterThread {
    fn run(mut self) {
        let mut purges_left = true;
        let mut expired_at: Option<Instant> = None;
        loop {
            let wait = self.wait(purges_left);
            match self.inbox.recv_timeout(wait) {
                Ok(first) => {
                    self.wait_for_more();
                    self.commit_group(first);
                    // A deletion may have been among them.
                    purges_left = true;
                }
                Err(RecvTimeoutError::Timeout) => {
                    purges_left = purges_left && self.housekeep(Self::purge_some);
                    if expired_at.is_none_or(|at| at.elapsed() >= EXPIRY_INTERVAL) && !purges_left {
                        self.housekeep(Self::expire_idempotency_keys);
                        expired_at = Some(Instant::now());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.sync_if_due();
            self.check_trouble();
        }
        let synced = self.map.sync();
        self.note(&synced);
        self.shared.stopped.close();
    }

    /// How long to wait for work before looking after the house.
    fn wait(&self, purges_left: bool) -> Duration {
        if self.shared.trouble.lock().is_some() {
            TROUBLE_CHECK_INTERVAL
        } else if purges_left {
            Duration::from_millis(20)
        } else if self.unsynced_since.is_some() {
            LAZY_SYNC_MAX
        } else {
            IDLE_INTERVAL
        }
    }

    /// Under load a flush costs more than the wait for some more writers to share it.
    #[allow(clippy::disallowed_methods, reason = "this thread is not one of the runtime's")]
    fn wait_for_more(&self) {
        if !self.gather.is_zero() {
            std::thread::sleep(self.gather);
        }
    }

    fn commit_group(&mut self, first: Box<dyn Job>) {
        let started = Instant::now();
        let before = Sequence(self.shared.head.load(Ordering::Acquire));
        let mut group = Group::new(before);
        let mut jobs = vec![first];
        let mut ran = 0;
        loop {
            jobs[ran].run(&*self.map, &mut group);
            ran += 1;
            if group.rows_len() >= GROUP_ROWS_MAX {
                break;
            }
            match self.inbox.try_recv() {
                Ok(job) => jobs.push(job),
                Err(_) => break,
            }
        }
        let sequence = group.sequence();
        let changes = group.take_changes();
        let committed = group.into_rows(&*self.map, before).and_then(|(rows, durability)| self.write(rows, durability));
        if committed.is_ok() {
            self.shared.head.store(sequence.0, Ordering::Release);
            if !changes.is_empty() {
                self.tell(|listener| listener.changed(changes));
            }
        }
        self.gather = if jobs.len() > 1 { started.elapsed().min(GATHER_MAX) } else { Duration::ZERO };
        for job in jobs {
            job.finish(&committed);
        }
    }

    fn write(&mut self, rows: Vec<Row>, durability: Durability) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let written = self.map.write(rows, durability);
        self.note(&written);
        if written.is_ok() {
            self.unsynced_since = match durability {
                Durability::Now => None,
                Durability::Later => self.unsynced_since.or_else(|| Some(Instant::now())),
            };
        }
        written
    }

    fn sync_if_due(&mut self) {
        if self.unsynced_since.is_some_and(|since| since.elapsed() >= LAZY_SYNC_MAX) {
            let synced = self.map.sync();
            self.note(&synced);
            self.unsynced_since = None;
        }
    }

    fn tell(&self, news: impl FnOnce(&dyn ChangeListener)) {
        let listener = self.shared.listener.lock().clone();
        if let Some(listener) = listener {
            news(&*listener);
        }
    }

    fn check_trouble(&self) {
        if self.shared.trouble.lock().is_some() {
            let checked = self.map.check().and_then(|()| self.catch_up());
            self.note(&checked);
        }
    }

    /// A batch that failed late may be on disk all the same: its sequences must not be given out again, and nobody has
    /// heard of its changes.
    fn catch_up(&self) -> Result<()> {
        let found = read_count(self.map.get(Table::Meta, keys::SEQUENCE)?.as_ref())?;
        self.shared.head.fetch_max(found, Ordering::AcqRel);
        self.tell(|listener| listener.missed(Sequence(found)));
        Ok(())
    }

    /// Keeps the reason of the present trouble, and logs when it begins and when it ends.
    fn note(&self, outcome: &Result<()>) {
        let mut trouble = self.shared.trouble.lock();
        match outcome {
            Ok(()) if trouble.is_some() => {
                *trouble = None;
                tracing::info!("the store takes writes again");
            }
            Ok(()) => {}
            Err(error) => {
                let reason = error.chain();
                if trouble.as_ref() != Some(&reason) {
                    tracing::error!(reason, "the store refuses writes");
                }
                *trouble = Some(reason);
            }
        }
    }

    /// Runs one step of work that nobody waits for; true if there may be more.
    fn housekeep(&mut self, step: fn(&dyn KeyValue) -> Result<Chore>) -> bool {
        match step(&*self.map) {
            Ok(chore) => self.write(chore.rows, Durability::Later).is_ok() && chore.more,
            Err(error) => {
                tracing::warn!(reason = error.chain(), "housekeeping of the store failed; it will be tried again");
                false
            }
        }
    }

    /// Removes some rows of a deleted stream or outlet, and the note of the deletion when none are left.
    fn purge_some(map: &dyn KeyValue) -> Result<Chore> {
        let Some(purge) = first_purge(map)? else { return Ok(Chore { rows: Vec::new(), more: false }) };
        let mut removed = Vec::new();
        for table in purge.tables {
            let prefix = &purge.id[..];
            map.scan(*table, prefix, &keys::after_prefix(prefix), &mut |key, _| {
                removed.push(Row { table: *table, key, value: None });
                if removed.len() < PURGE_ROWS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            if removed.len() >= PURGE_ROWS_MAX {
                return Ok(Chore { rows: removed, more: true });
            }
        }
        removed.push(Row { table: Table::Meta, key: purge.note, value: None });
        Ok(Chore { rows: removed, more: true })
    }

    fn expire_idempotency_keys(map: &dyn KeyValue) -> Result<Chore> {
        let oldest = Timestamp::now() - flare_core::port::Idempotency::RETENTION;
        let mut removed = Vec::new();
        let prefix = keys::IDEMPOTENCY_KEYS;
        map.scan(Table::Meta, prefix, &keys::after_prefix(prefix), &mut |key, value| {
            if rows::idempotency_at(&value).is_none_or(|at| at < oldest) {
                removed.push(Row { table: Table::Meta, key, value: None });
            }
            ControlFlow::Continue(())
        })?;
        Ok(Chore { rows: removed, more: false })
    }
}

/// A step of work that nobody waits for.
struct Chore {
    rows: Vec<Row>,
    /// There may be more to do.
    more: bool,
}

/// What is left to remove of something deleted.
struct Purge {
    note: Bytes,
    id: [u8; 16],
    tables: &'static [Table],
}

pub(crate) const PURGE_STREAM: u8 = b's';
pub(crate) const PURGE_OUTLET: u8 = b'o';

fn first_purge(map: &dyn KeyValue) -> Result<Option<Purge>> {
    let mut found = None;
    map.scan(Table::Meta, keys::PURGES, &keys::after_prefix(keys::PURGES), &mut |key, _| {
        let kind = key.get(2).copied();
        let tables: &[Table] = match kind {
            Some(PURGE_STREAM) => &[Table::Heads, Table::Changes],
            _ => &[Table::Versions, Table::Retries, Table::Cursors],
        };
        found = keys::tail::<16>(&key).map(|id| Purge { note: key, id, tables });
        ControlFlow::Break(())
    })?;
    Ok(found)
}
