//! Where all writes go: one after another, flushed to disk together.
//!
//! Callers hand in closures and wait. One thread ([`serial`]) runs them one after another over a common view and writes
//! the rows of all that were waiting as one batch. Another ([`syncer`]) flushes what was written to disk, tells the
//! listener, and answers the callers. While the disk works, the next batch is made: the more callers, the fewer
//! flushes each of them pays for.

mod serial;
mod syncer;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
    mpsc::{Sender, channel},
};

use flare_core::{Error, Result, Sequence, port::ChangeListener};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{
    Durability, KeyValue, Options, Table, keys,
    recent::Recent,
    transaction::{Group, Transaction, read_count},
};
use serial::SerialWriter;
use syncer::Syncer;

pub(crate) struct Writer {
    jobs: Mutex<Option<Sender<Box<dyn Job>>>>,
    waiting: Arc<Semaphore>,
    shared: Arc<Shared>,
}

/// What both threads and the callers see.
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
        let (written, to_sync) = channel();
        let serial = SerialWriter::new(map.clone(), inbox, written, shared.clone());
        let syncer = Syncer::new(map, to_sync, shared.clone());
        start_thread("store-syncer", move || syncer.run())?;
        start_thread("store-writer", move || serial.run())?;
        let waiting = Arc::new(Semaphore::new(options.writes_waiting_max));
        Ok(Self { jobs: Mutex::new(Some(jobs)), waiting, shared })
    }

    pub(crate) fn head(&self) -> Sequence {
        self.shared.head()
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

    /// Waits until everything that was handed in is on disk, and ends the threads.
    pub(crate) async fn close(&self) -> Result<()> {
        self.waiting.close();
        drop(self.jobs.lock().take());
        // The last thread closes the semaphore as its last act.
        let _ended = self.shared.stopped.acquire().await;
        match self.trouble() {
            None => Ok(()),
            Some(reason) => Err(Error::unavailable(reason)),
        }
    }
}

fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = std::thread::Builder::new().name(name.into()).spawn(run);
    started.map(drop).map_err(|error| Error::internal(format!("could not start the thread {name}")).because(error))
}

impl Shared {
    fn head(&self) -> Sequence {
        Sequence(self.head.load(Ordering::Acquire))
    }

    fn tell(&self, news: impl FnOnce(&dyn ChangeListener)) {
        let listener = self.listener.lock().clone();
        if let Some(listener) = listener {
            news(&*listener);
        }
    }

    /// Keeps the reason of a failure as the present trouble. Only a repair ends it.
    fn note_failure<T>(&self, outcome: &Result<T>) {
        let Err(error) = outcome else { return };
        let reason = error.chain();
        let mut trouble = self.trouble.lock();
        if trouble.as_ref() != Some(&reason) {
            tracing::error!(reason, "the store refuses writes");
        }
        *trouble = Some(reason);
    }
}

/// A closure with the caller that waits for it.
trait Job: Send {
    fn run(&mut self, map: &dyn KeyValue, recent: &mut Recent, group: &mut Group);
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
    fn run(&mut self, map: &dyn KeyValue, recent: &mut Recent, group: &mut Group) {
        let Some(work) = self.work.take() else { return };
        let mut transaction = Transaction::new(map, recent, group);
        let result = work(&mut transaction);
        if result.is_ok() {
            transaction.keep(self.durability);
        }
        self.result = Some(result);
    }

    fn finish(self: Box<Self>, committed: &Result<()>) {
        let result = match (self.result, committed) {
            (Some(Err(error)), _) => Err(error),
            (_, Err(error)) => Err(error.clone()),
            (Some(result), _) => result,
            (None, _) => Err(Error::internal("a transaction did not run")),
        };
        // A caller that has gone away needs no answer.
        let _gone = self.answer.send(result);
    }
}
