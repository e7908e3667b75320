//! Messages that were taken from a queue and are not settled yet: their server must hear in time that they are still
//! worked on, or it hands them out again.

use std::{collections::HashMap, time::Duration};

use flare_core::queue::{Message, QueueName, Receipt};
use parking_lot::Mutex;
use tokio::time::Instant;

#[derive(Default)]
pub struct Taken {
    /// By queue and receipt: when the server last heard of it.
    held: Mutex<HashMap<QueueName, HashMap<Receipt, Instant>>>,
}

impl Taken {
    /// The server has handed them out just now.
    pub fn hold(&self, queue: &QueueName, messages: &[Message]) {
        if messages.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut held = self.held.lock();
        let line = held.entry(queue.clone()).or_default();
        line.extend(messages.iter().map(|message| (message.receipt.clone(), now)));
    }

    /// They are settled, or nobody cares for them any more.
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

    pub fn take_all(&self) -> Vec<(QueueName, Vec<Receipt>)> {
        let held = std::mem::take(&mut *self.held.lock());
        held.into_iter().map(|(queue, line)| (queue, line.into_keys().collect())).collect()
    }

    /// Those of which the server has not heard for so long; from now on it has.
    pub fn due(&self, age: Duration) -> Vec<(QueueName, Vec<Receipt>)> {
        let now = Instant::now();
        let mut all = Vec::new();
        for (queue, line) in self.held.lock().iter_mut() {
            let mut due = Vec::new();
            for (receipt, heard) in line {
                if now.duration_since(*heard) >= age {
                    *heard = now;
                    due.push(receipt.clone());
                }
            }
            if !due.is_empty() {
                all.push((queue.clone(), due));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn messages(receipts: &[&str]) -> Vec<Message> {
        let message = |receipt: &&str| Message { body: Bytes::new(), receipt: Receipt((*receipt).into()) };
        receipts.iter().map(message).collect()
    }

    fn receipts(mut all: Vec<(QueueName, Vec<Receipt>)>) -> Vec<String> {
        let mut receipts: Vec<_> = all.drain(..).flat_map(|(_, line)| line).map(|receipt| receipt.0.into()).collect();
        receipts.sort();
        receipts
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_for_long_is_due_once_until_it_is_again() {
        let (taken, queue) = (Taken::default(), QueueName::new("queue").unwrap());
        let age = Duration::from_secs(10);
        taken.hold(&queue, &messages(&["a", "b", "c"]));
        tokio::time::advance(Duration::from_secs(6)).await;
        taken.hold(&queue, &messages(&["d"]));
        assert!(taken.due(age).is_empty());
        tokio::time::advance(Duration::from_secs(5)).await;
        taken.release(&queue, &[Receipt("b".into())]);
        assert_eq!(receipts(taken.due(age)), ["a", "c"]);
        assert!(taken.due(age).is_empty());
        tokio::time::advance(age).await;
        assert_eq!(receipts(taken.due(age)), ["a", "c", "d"]);
        assert_eq!(receipts(taken.take_all()), ["a", "c", "d"]);
        assert!(taken.take_all().is_empty());
        taken.hold(&queue, &messages(&["e"]));
        taken.forget(&queue);
        assert!(taken.take_all().is_empty());
    }
}
