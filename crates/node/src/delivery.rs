//! Delivery: brings outlets up to date.
//!
//! Outlets are divided among slots; each slot is one task that holds the state of its outlets without a lock. A slot
//! takes changes from the tail (or, for an outlet that is far behind, from the feed in the store), sends them, and
//! remembers what the outlet has. See [`outlet`] for the rules of one outlet.

mod attempt;
mod attempt_log;
mod client;
mod cloud_event;
mod connect;
mod filtering;
mod handshake;
pub(crate) mod mailbox;
mod outlet;
mod ping;
mod recorder;
mod request;
mod signature;
pub(crate) mod slot;
mod wire;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use flare_core::{
    DocumentNumber, Error, OutletId, Result, StreamId,
    document::{Standing, Version},
    outlet::Outlet,
    port::{Documents, Engine, Store},
};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    fast_map::FastSet,
    node::{DeliveryCounts, QueueStatus},
    registry::Registry,
    settings::Settings,
    spread::Bucket,
    supervisor::{Failure, Supervisor},
    tail::Tail,
    tasks::{QueuePer, Tasks},
};
use attempt_log::AttemptLog;
use client::Client;
pub use filtering::FilterProblem;
use filtering::Filtering;
use mailbox::{Command, Mailbox};
pub use ping::Tested;
use recorder::Recorder;
use slot::Slot;

/// What all slots share.
pub(crate) struct Shared {
    settings: Settings,
    documents: Arc<dyn Documents>,
    tail: Arc<Tail>,
    client: Client,
    recorder: Arc<Recorder>,
    attempt_log: Arc<AttemptLog>,
    filtering: Filtering,
    /// Places for requests that are answered in time, and for those that are not.
    requests: Arc<Semaphore>,
    slow_requests: Arc<Semaphore>,
    counters: Counters,
    /// Outlets get their changes through this, or read the feed.
    tasks: Option<Arc<Tasks>>,
    /// Outlets whose queue is not set up yet.
    preparing: Mutex<FastSet<OutletId>>,
    to_disable: mpsc::UnboundedSender<Disable>,
}

/// An outlet that should not be called any more.
pub(crate) struct Disable {
    pub stream: StreamId,
    pub outlet: OutletId,
    pub reason: String,
}

#[derive(Default)]
struct Counters {
    in_flight: AtomicU64,
    retries_waiting: AtomicU64,
    delivered: AtomicU64,
    failed_attempts: AtomicU64,
    discarded: AtomicU64,
    given_up: AtomicU64,
}

/// The delivery stage of a node.
pub(crate) struct Delivery {
    shared: Arc<Shared>,
    bucket: Arc<Bucket>,
    registry: Arc<Registry>,
    slots_stop: CancellationToken,
    /// One permit for each slot that has ended.
    slots_ended: Arc<Semaphore>,
    slots: u16,
    recorder_stop: CancellationToken,
    recorder_ended: Arc<Semaphore>,
    grace: Duration,
    /// For the one who keeps the outlets.
    disabled: Mutex<Option<mpsc::UnboundedReceiver<Disable>>>,
}

impl Delivery {
    /// With `tasks` outlets get their changes through a queue.
    pub fn start(
        store: &Store,
        tasks: Option<Arc<Tasks>>,
        registry: Arc<Registry>,
        settings: &Settings,
        supervisor: &Supervisor,
    ) -> Result<Self> {
        let tail = Arc::new(Tail::new(store.documents.head(), settings.tail_bytes_max));
        let mailboxes: Vec<_> = (0..settings.slots.max(1)).map(|_| Arc::new(Mailbox::default())).collect();
        let bucket = Arc::new(Bucket::new(mailboxes.clone(), tail.clone()));
        let recorder = Arc::new(Recorder::new(store.deliveries.clone(), settings.record_delay));
        let client = Client::new(settings, supervisor)
            .map_err(|error| Error::internal("could not make the HTTP client of deliveries").because(error))?;
        let (to_disable, disabled) = mpsc::unbounded_channel();
        let attempt_log = Arc::new(AttemptLog::new(store.deliveries.clone()));
        let shared = Arc::new(Shared {
            settings: settings.clone(),
            documents: store.documents.clone(),
            tail,
            client,
            recorder: recorder.clone(),
            attempt_log: attempt_log.clone(),
            filtering: Filtering::new(store.documents.clone()),
            requests: Arc::new(Semaphore::new(settings.requests_max)),
            slow_requests: Arc::new(Semaphore::new(settings.slow_requests_max)),
            counters: Counters::default(),
            tasks,
            preparing: Mutex::default(),
            to_disable,
        });
        store.documents.listen(bucket.clone());
        // Other nodes may have written between the first look at the head and now: only the feed knows of that.
        shared.tail.reset(store.documents.head());

        let (slots_stop, slots_ended) = (CancellationToken::new(), Arc::new(Semaphore::new(0)));
        for (number, mailbox) in (0..).zip(mailboxes) {
            let slot = Slot::new(shared.clone(), mailbox, number, &slots_stop)?;
            let (stop, ended) = (slots_stop.clone(), slots_ended.clone());
            supervisor.spawn("delivery-slot", Failure::StopsNode, async move {
                slot.run(stop).await;
                ended.add_permits(1);
            });
        }
        let (recorder_stop, recorder_ended) = (CancellationToken::new(), Arc::new(Semaphore::new(0)));
        let (stop, ended, woken) = (recorder_stop.clone(), recorder_ended.clone(), bucket.clone());
        supervisor.spawn("delivery-recorder", Failure::StopsNode, async move {
            recorder.run(stop, || woken.wake_all()).await;
            ended.add_permits(1);
        });
        let (stop, ended) = (recorder_stop.clone(), recorder_ended.clone());
        supervisor.spawn("attempt-log", Failure::StopsNode, async move {
            attempt_log.run(stop).await;
            ended.add_permits(1);
        });
        Ok(Self {
            shared,
            bucket,
            registry,
            slots_stop,
            slots_ended,
            slots: settings.slots.max(1),
            recorder_stop,
            recorder_ended,
            grace: settings.grace,
            disabled: Mutex::new(Some(disabled)),
        })
    }

    /// Takes up an outlet where it stands.
    pub fn add(&self, outlet: Arc<Outlet>, standing: Standing) {
        let Some(stream) = self.registry.stream(outlet.stream) else { return };
        self.bucket.add(outlet.stream, outlet.id);
        if self.shared.tasks.as_ref().is_some_and(|tasks| tasks.queues == QueuePer::Outlet) {
            self.shared.preparing.lock().insert(outlet.id);
        }
        self.bucket.mailbox(outlet.id).send(Command::Add { outlet, stream, standing });
    }

    /// The outlets that should not be called any more, as they come. Only the first caller gets them.
    pub fn disabled(&self) -> Option<mpsc::UnboundedReceiver<Disable>> {
        self.disabled.lock().take()
    }

    /// Hands a command to the slot of the outlet, and waits for the answer; none if the outlet is gone.
    pub async fn ask<T>(&self, outlet: OutletId, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.bucket.mailbox(outlet).send(command(answer));
        answered.await.ok()
    }

    /// Puts on disk what was recorded so far.
    pub async fn flush(&self, engine: &dyn Engine) -> Result<()> {
        self.shared.recorder.flush().await?;
        engine.flush().await
    }

    /// Makes what was recorded so far visible in the store.
    pub async fn record_now(&self) -> Result<()> {
        self.shared.attempt_log.flush().await?;
        self.shared.recorder.flush().await
    }

    /// The version of the document that the outlet has.
    pub async fn version(&self, outlet: OutletId, number: DocumentNumber) -> Result<Option<Version>> {
        self.shared.recorder.version(outlet, number).await
    }

    pub fn update(&self, outlet: Arc<Outlet>) {
        self.shared.filtering.forget_problem(outlet.id);
        self.bucket.mailbox(outlet.id).send(Command::Update(outlet));
    }

    pub fn remove(&self, stream: StreamId, id: OutletId) {
        self.bucket.remove(stream, id);
        self.bucket.mailbox(id).send(Command::Remove(id));
        self.shared.preparing.lock().remove(&id);
        self.shared.filtering.forget_problem(id);
    }

    pub fn forget_stream(&self, stream: StreamId) {
        self.shared.tail.forget_stream(stream);
    }

    /// Whether the queue of the outlet is still to be set up.
    pub fn is_preparing(&self, id: OutletId) -> bool {
        self.shared.preparing.lock().contains(&id)
    }

    /// How the queue is that hints go through, if there is one.
    pub fn queue_status(&self) -> Option<QueueStatus> {
        let queue = &self.shared.tasks.as_ref()?.queue;
        Some(QueueStatus { engine: queue.name(), trouble: queue.trouble() })
    }

    /// Lets go of the queue: what was taken from it comes to whoever works next.
    pub async fn leave_queue(&self) {
        if let Some(tasks) = &self.shared.tasks
            && let Err(error) = tasks.queue.close().await
        {
            tracing::debug!(reason = error.chain(), "the queue did not close cleanly");
        }
    }

    /// The last change for which the filter of the outlet had no answer.
    pub fn filter_problem(&self, id: OutletId) -> Option<FilterProblem> {
        self.shared.filtering.problem(id)
    }

    pub fn counts(&self) -> DeliveryCounts {
        let counters = &self.shared.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeliveryCounts {
            in_flight: read(&counters.in_flight),
            retries_waiting: read(&counters.retries_waiting),
            delivered: read(&counters.delivered),
            failed_attempts: read(&counters.failed_attempts),
            discarded: read(&counters.discarded),
            given_up: read(&counters.given_up),
        }
    }

    /// Starts nothing more, waits for what is in flight, and records it. What is not done in the grace period is
    /// repeated after the next start.
    pub async fn stop(&self) {
        self.slots_stop.cancel();
        let all = self.slots_ended.acquire_many(u32::from(self.slots));
        if tokio::time::timeout(self.grace, all).await.is_err() {
            let in_flight = self.counts().in_flight;
            tracing::warn!(in_flight, "deliveries did not end within the grace period; they will be repeated");
        }
        self.recorder_stop.cancel();
        if tokio::time::timeout(self.grace, self.recorder_ended.acquire_many(2)).await.is_err() {
            tracing::warn!("deliveries could not be recorded within the grace period; some will be repeated");
        }
    }
}
