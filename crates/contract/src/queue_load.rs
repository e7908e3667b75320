//! A queue under load while something bad happens to its server: nothing that was confirmed may be lost.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use flare_core::queue::{Queue, QueueName};
use futures_util::future::join_all;
use parking_lot::Mutex;

const PUSHERS: usize = 4;
const PUSHED_AT_ONCE: usize = 20;
const PULLED_AT_ONCE: usize = 100;
const PULL_WAIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);
/// How long it may take until everything has come once the server is well again.
const PATIENCE: Duration = Duration::from_secs(120);

/// What went through.
#[derive(Debug)]
pub struct Survived {
    pub messages: usize,
    /// Calls that failed, of all kinds.
    pub failures: usize,
}

struct Load<'q> {
    name: &'q QueueName,
    numbers: AtomicUsize,
    failures: AtomicUsize,
    /// Those who still push.
    pushers: AtomicUsize,
    /// The trouble is over: pushers come to an end.
    is_over: AtomicBool,
    confirmed: Mutex<BTreeSet<Bytes>>,
    seen: Mutex<BTreeSet<Bytes>>,
}

/// Pushes through one connection, pulls and acknowledges through the other, and lets `trouble` happen meanwhile.
/// Panics if something that was confirmed does not come, or if the connections are not well in the end.
pub async fn survive(
    one: &Arc<dyn Queue>,
    two: &Arc<dyn Queue>,
    name: &QueueName,
    trouble: impl Future<Output = ()>,
) -> Survived {
    let load = Load {
        name,
        numbers: AtomicUsize::new(0),
        failures: AtomicUsize::new(0),
        pushers: AtomicUsize::new(PUSHERS),
        is_over: AtomicBool::new(false),
        confirmed: Mutex::default(),
        seen: Mutex::default(),
    };
    let troubling = async {
        trouble.await;
        load.is_over.store(true, Ordering::Release);
    };
    tokio::join!(join_all((0..PUSHERS).map(|_| load.push(one))), load.pull(two), troubling);
    assert_eq!((one.trouble(), two.trouble()), (None, None));
    let (messages, failures) = (load.confirmed.lock().len(), load.failures.load(Ordering::Acquire));
    assert!(messages > 0, "nothing went through");
    Survived { messages, failures }
}

impl Load<'_> {
    async fn push(&self, queue: &Arc<dyn Queue>) {
        // At least once after the trouble, to see that it works again.
        let mut is_last = false;
        while !is_last {
            is_last = self.is_over.load(Ordering::Acquire);
            let begin = self.numbers.fetch_add(PUSHED_AT_ONCE, Ordering::AcqRel);
            let texts = (begin..begin + PUSHED_AT_ONCE).map(|number| Bytes::from(format!("message {number}")));
            let texts: Vec<_> = texts.collect();
            match queue.push(self.name, texts.clone()).await {
                Ok(()) => self.confirmed.lock().extend(texts),
                Err(_) => {
                    is_last = false;
                    self.pause().await;
                }
            }
        }
        self.pushers.fetch_sub(1, Ordering::AcqRel);
    }

    async fn pull(&self, queue: &Arc<dyn Queue>) {
        let mut end = None;
        loop {
            match queue.pull(self.name, PULLED_AT_ONCE, PULL_WAIT).await {
                Ok(messages) => {
                    self.seen.lock().extend(messages.iter().map(|message| message.body.clone()));
                    let receipts = messages.into_iter().map(|message| message.receipt).collect();
                    if queue.ack(self.name, receipts).await.is_err() {
                        self.pause().await;
                    }
                }
                Err(_) => self.pause().await,
            }
            if self.pushers.load(Ordering::Acquire) > 0 {
                continue;
            }
            let missing = self.missing();
            if missing == 0 {
                return;
            }
            let end = *end.get_or_insert_with(|| tokio::time::Instant::now() + PATIENCE);
            assert!(tokio::time::Instant::now() < end, "{missing} messages that were confirmed do not come");
        }
    }

    /// How many messages were confirmed and have not come.
    fn missing(&self) -> usize {
        self.confirmed.lock().difference(&self.seen.lock()).count()
    }

    async fn pause(&self) {
        self.failures.fetch_add(1, Ordering::AcqRel);
        tokio::time::sleep(PAUSE).await;
    }
}
