//! Changes that go through a queue arrive, whatever happens to the node or to the queue, and at whichever step.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{
    Error, Result,
    port::Store,
    queue::{Declared, Depth, Message, Queue, QueueLimits, QueueName, Receipt},
};
use flare_memory::{Broker, open};
use tokio::sync::Notify;

use super::{Node, tests::Lab};
use crate::{OpenQueue, QueuePer, Settings, Supervisor, TaskSettings};

const DOCUMENTS: usize = 6;

fn settings(queue: Arc<dyn Queue>, queues: QueuePer) -> Settings {
    let open: OpenQueue = Arc::new(move || {
        let queue = queue.clone();
        Box::pin(async move { Ok(queue) })
    });
    let tasks = TaskSettings { engine: "memory", open, prefix: "flare-test".to_owned(), queues, window: 4 };
    Settings { tasks: Some(tasks), slots: 2, ..Settings::default() }
}

/// What a client of the outlet knows: the newest revision of each document that it was shown.
#[derive(Default)]
struct Client {
    shown: BTreeMap<String, i128>,
}

impl Client {
    /// Pulls and acknowledges until it has all documents with this revision.
    async fn follow(&mut self, lab: &Lab, revision: i128) {
        while self.shown.len() < DOCUMENTS || self.shown.values().any(|shown| *shown < revision) {
            let messages = lab.pull().await;
            for message in &messages {
                let (url, new) = (message.change.url.to_string(), message.change.revision.value());
                let shown = self.shown.entry(url.clone()).or_default();
                assert!(new >= *shown, "{url} went from {shown} to {new}");
                *shown = new;
            }
            lab.acknowledge(&messages).await;
        }
    }
}

async fn put_all(lab: &Lab, revision: i128) {
    for number in 0..DOCUMENTS {
        lab.put(&number.to_string(), revision).await;
    }
}

#[tokio::test]
async fn changes_go_through_the_queue_of_the_outlet_which_comes_and_goes_with_it() {
    let broker = Broker::default();
    let lab = Lab::with(open(&Default::default()).unwrap(), &settings(broker.connect(), QueuePer::Outlet)).await;
    let mut client = Client::default();
    for revision in 1..=3 {
        put_all(&lab, revision).await;
        client.follow(&lab, revision).await;
    }
    let name = QueueName::new(format!("flare-test-{}", lab.outlet)).unwrap();
    let watcher = broker.connect();
    while watcher.depth(&name).await.unwrap() != Depth::default() {
        tokio::task::yield_now().await;
    }
    assert_eq!(lab.node.lag(lab.stream, lab.outlet).await.unwrap().documents, 0);
    lab.node.delete_outlet(lab.stream, lab.outlet).await.unwrap();
    while watcher.depth(&name).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn outlets_of_a_slot_may_share_a_queue() {
    let broker = Broker::default();
    let lab = Lab::with(open(&Default::default()).unwrap(), &settings(broker.connect(), QueuePer::Slot)).await;
    let mut client = Client::default();
    for revision in 1..=3 {
        put_all(&lab, revision).await;
        client.follow(&lab, revision).await;
    }
    let slot = lab.outlet.slot(2);
    let name = QueueName::new(format!("flare-test-{slot}-of-2")).unwrap();
    while broker.connect().depth(&name).await.unwrap() != Depth::default() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_queue_that_vanishes_is_made_again_and_what_was_in_it_arrives() {
    let broker = Broker::default();
    let lab = Lab::with(open(&Default::default()).unwrap(), &settings(broker.connect(), QueuePer::Outlet)).await;
    let mut client = Client::default();
    put_all(&lab, 1).await;
    client.follow(&lab, 1).await;
    let name = QueueName::new(format!("flare-test-{}", lab.outlet)).unwrap();
    broker.connect().remove(&name).await.unwrap();
    put_all(&lab, 2).await;
    client.follow(&lab, 2).await;
}

#[test]
fn a_node_that_dies_at_any_step_loses_nothing() {
    for queues in [QueuePer::Outlet, QueuePer::Slot] {
        for effect in [Effect::Before, Effect::After] {
            for steps in 1..30 {
                die_once(queues, effect, steps);
            }
        }
    }
}

/// Whether the last step still reaches the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    Before,
    After,
}

fn die_once(queues: QueuePer, effect: Effect, steps: usize) {
    let (broker, store) = (Broker::default(), open(&Default::default()).unwrap());
    let mut client = Client::default();
    let doomed =
        Arc::new(Doomed { inner: broker.connect(), left: AtomicUsize::new(steps), effect, died: Notify::new() });
    let (stream, outlet) = live(async {
        let lab = Lab::with(store.clone(), &settings(doomed.clone(), queues)).await;
        put_all(&lab, 1).await;
        tokio::select! {
            () = doomed.died.notified() => {}
            () = client.follow(&lab, 1) => {}
        }
        (lab.stream, lab.outlet)
    });
    drop(doomed);
    live(async {
        let node = restart(store.clone(), &settings(broker.connect(), queues)).await;
        let lab = Lab { node, stream, outlet };
        client.follow(&lab, 1).await;
        put_all(&lab, 2).await;
        client.follow(&lab, 2).await;
    });
}

async fn restart(store: Store, settings: &Settings) -> Arc<Node> {
    Node::start(store, settings, &Supervisor::default()).await.unwrap()
}

/// A process of its own: when it ends, nothing of it goes on.
fn live<T>(life: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let lived = runtime.block_on(life);
    runtime.shutdown_timeout(Duration::from_secs(10));
    lived
}

/// A connection to a queue that is silent for ever after some steps.
struct Doomed {
    inner: Arc<dyn Queue>,
    left: AtomicUsize,
    effect: Effect,
    died: Notify,
}

impl Doomed {
    async fn step<T: Send>(&self, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left.is_ok_and(|left| left > 1) {
            return call.await;
        }
        if left == Ok(1) && self.effect == Effect::After {
            let _unheard = call.await;
        }
        self.died.notify_one();
        std::future::pending().await
    }
}

#[async_trait]
impl Queue for Doomed {
    fn name(&self) -> &'static str {
        "doomed"
    }

    fn limits(&self) -> QueueLimits {
        self.inner.limits()
    }

    fn trouble(&self) -> Option<String> {
        None
    }

    async fn declare(&self, queue: &QueueName) -> Result<Declared> {
        self.step(self.inner.declare(queue)).await
    }

    async fn remove(&self, queue: &QueueName) -> Result<()> {
        self.step(self.inner.remove(queue)).await
    }

    async fn push(&self, queue: &QueueName, messages: Vec<Bytes>) -> Result<()> {
        self.step(self.inner.push(queue, messages)).await
    }

    async fn pull(&self, queue: &QueueName, max: usize, wait: Duration) -> Result<Vec<Message>> {
        self.step(self.inner.pull(queue, max, wait)).await
    }

    async fn ack(&self, queue: &QueueName, receipts: Vec<Receipt>) -> Result<()> {
        self.step(self.inner.ack(queue, receipts)).await
    }

    async fn nack(&self, queue: &QueueName, receipts: Vec<Receipt>) -> Result<()> {
        self.step(self.inner.nack(queue, receipts)).await
    }

    async fn depth(&self, _: &QueueName) -> Result<Depth> {
        Err(Error::unavailable("nobody asks"))
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
