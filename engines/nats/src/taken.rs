//! Messages that were taken and are not settled: the server hears in time that they are still worked on.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use flare_core::queue::{Message, QueueName, Receipt};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior};

use crate::connection::Connection;

const IN_PROGRESS: Bytes = Bytes::from_static(b"+WPI");
/// How often the server hears of a message within the time after which it would come again.
const WORDS_IN_TIME: u32 = 4;

#[derive(Default)]
pub(crate) struct Taken {
    /// By queue and receipt: when the server last heard of it.
    held: Mutex<HashMap<QueueName, HashMap<Receipt, Instant>>>,
}

impl Taken {
    pub fn hold(&self, queue: &QueueName, messages: &[Message]) {
        if messages.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut held = self.held.lock();
        let line = held.entry(queue.clone()).or_default();
        line.extend(messages.iter().map(|message| (message.receipt.clone(), now)));
    }

    pub fn release(&self, queue: &QueueName, receipts: &[Receipt]) {
        let mut held = self.held.lock();
        let Some(line) = held.get_mut(queue) else { return };
        for receipt in receipts {
            line.remove(receipt);
        }
        if line.is_empty() {
            held.remove(queue);
        }
    }

    pub fn forget(&self, queue: &QueueName) {
        self.held.lock().remove(queue);
    }

    pub fn take_all(&self) -> Vec<Receipt> {
        let held = std::mem::take(&mut *self.held.lock());
        held.into_values().flat_map(HashMap::into_keys).collect()
    }

    /// Those of which the server has not heard for so long; it is about to.
    fn due(&self, age: Duration) -> Vec<Receipt> {
        let now = Instant::now();
        let mut due = Vec::new();
        for (receipt, heard) in self.held.lock().values_mut().flatten() {
            if now.duration_since(*heard) >= age {
                *heard = now;
                due.push(receipt.clone());
            }
        }
        due
    }
}

/// Tells the server of messages that take long, until the queue is closed.
pub(crate) async fn keep(taken: Arc<Taken>, connection: Arc<Connection>, ack_wait: Duration) {
    let age = ack_wait / WORDS_IN_TIME;
    let mut ticks = tokio::time::interval(age / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stop = connection.stop.clone();
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        if !connection.is_up() {
            continue;
        }
        for receipt in taken.due(age) {
            if connection.client.publish(receipt.0.to_string(), IN_PROGRESS).await.is_err() {
                break;
            }
        }
    }
}
