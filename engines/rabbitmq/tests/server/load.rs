//! Pushing and pulling while something happens to the broker.

use flare_contract::receipts;
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use flare_core::{
    ErrorKind,
    queue::{Message, Queue, QueueName},
};
use futures_util::future::join_all;
use parking_lot::Mutex;

const PUSHERS: usize = 4;
const BATCH: usize = 20;
/// Everything is back by then, or never.
const LAST_MESSAGE: Duration = Duration::from_secs(60);

/// Pulls until it has so many.
pub async fn pull_all(queue: &Arc<dyn Queue>, name: &QueueName, count: usize) -> Vec<Message> {
    let mut all = Vec::new();
    while all.len() < count {
        let messages = queue.pull(name, count - all.len(), Duration::from_secs(20)).await.unwrap();
        assert!(!messages.is_empty(), "only {} of {count} came", all.len());
        all.extend(messages);
    }
    all
}

/// Pushes and pulls until it is over; then all that was confirmed must have been pulled. Errors must say that it is
/// worth trying again.
pub async fn survive(queue: &Arc<dyn Queue>, name: &QueueName, is_over: &AtomicBool) {
    let (confirmed, pulled) = (Mutex::new(BTreeSet::new()), Mutex::new(BTreeSet::new()));
    let is_pushed = AtomicBool::new(false);
    let pushing = async {
        join_all((0..PUSHERS).map(|pusher| push(queue, name, pusher, is_over, &confirmed))).await;
        is_pushed.store(true, Ordering::Relaxed);
    };
    let pulling = async {
        let is_done = || is_pushed.load(Ordering::Relaxed) && confirmed.lock().is_subset(&pulled.lock());
        let mut until = tokio::time::Instant::now() + LAST_MESSAGE;
        while !is_done() {
            if !is_pushed.load(Ordering::Relaxed) {
                until = tokio::time::Instant::now() + LAST_MESSAGE;
            }
            let missing = || confirmed.lock().difference(&pulled.lock()).count();
            assert!(tokio::time::Instant::now() < until, "{} messages were lost", missing());
            match queue.pull(name, 50, Duration::from_secs(1)).await {
                Ok(messages) => {
                    pulled.lock().extend(messages.iter().map(|message| message.body.clone()));
                    try_again(queue.ack(name, receipts(&messages)).await).await;
                }
                Err(error) => try_again(Err(error)).await,
            }
        }
    };
    tokio::join!(pushing, pulling);
    let count = confirmed.lock().len();
    println!("{count} messages were confirmed, and none was lost");
    assert!(count > 0);
}

async fn push(
    queue: &Arc<dyn Queue>,
    name: &QueueName,
    pusher: usize,
    is_over: &AtomicBool,
    confirmed: &Mutex<BTreeSet<Bytes>>,
) {
    let mut first = 0;
    while !is_over.load(Ordering::Relaxed) || first == 0 {
        let text = |number| Bytes::from(format!("{{\"pusher\": {pusher}, \"number\": {number}}}"));
        let batch: Vec<_> = (first..first + BATCH).map(text).collect();
        match queue.push(name, batch.clone()).await {
            Ok(()) => {
                confirmed.lock().extend(batch);
                first += BATCH;
            }
            Err(error) => try_again(Err(error)).await,
        }
    }
}

async fn try_again(outcome: flare_core::Result<()>) {
    if let Err(error) = outcome {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
