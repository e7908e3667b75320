//! Queues in memory: a broker that several nodes of one process connect to. It loses everything with the process, so that
//! it is for tests, where it stands for a broker that outlives the nodes.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{
    Error, Result,
    queue::{Declared, Depth, Message, Queue, QueueLimits, QueueName, Receipt},
};
use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Clone, Default)]
pub struct Broker {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    queues: Mutex<HashMap<QueueName, Line>>,
    pushed: Notify,
    numbers: AtomicU64,
}

#[derive(Default)]
struct Line {
    ready: VecDeque<Bytes>,
    taken: HashMap<u64, Taken>,
}

struct Taken {
    body: Bytes,
    by: u64,
}

impl Broker {
    pub fn connect(&self) -> Arc<dyn Queue> {
        let number = self.inner.numbers.fetch_add(1, Ordering::Relaxed);
        Arc::new(Connection { inner: self.inner.clone(), number, is_closed: AtomicBool::new(false) })
    }
}

struct Connection {
    inner: Arc<Inner>,
    number: u64,
    is_closed: AtomicBool,
}

impl Connection {
    fn with<T>(&self, queue: &QueueName, work: impl FnOnce(&mut Line) -> T) -> Result<T> {
        self.check()?;
        let mut queues = self.inner.queues.lock();
        let line = queues.get_mut(queue).ok_or_else(|| Error::not_found(format!("there is no queue {queue}")))?;
        Ok(work(line))
    }

    fn check(&self) -> Result<()> {
        let is_closed = self.is_closed.load(Ordering::Relaxed);
        if is_closed { Err(Error::unavailable("the queue was closed")) } else { Ok(()) }
    }

    fn give_all_back(&self) {
        for line in self.inner.queues.lock().values_mut() {
            let mine = line.taken.iter().filter(|(_, taken)| taken.by == self.number);
            let mine: Vec<u64> = mine.map(|(number, _)| *number).collect();
            mine.into_iter().for_each(|number| line.give_back(number));
        }
        self.inner.pushed.notify_waiters();
    }

    fn take(&self, line: &mut Line, max: usize) -> Vec<Message> {
        let count = max.min(line.ready.len());
        let waiting: Vec<_> = line.ready.drain(..count).collect();
        let mut messages = Vec::with_capacity(count);
        for body in waiting {
            let number = self.inner.numbers.fetch_add(1, Ordering::Relaxed);
            line.taken.insert(number, Taken { body: body.clone(), by: self.number });
            messages.push(Message { body, receipt: Receipt(number.to_string().into()) });
        }
        messages
    }
}

#[async_trait]
impl Queue for Connection {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn limits(&self) -> QueueLimits {
        QueueLimits { message_bytes_max: 1 << 20, taken_max: 10_000 }
    }

    fn trouble(&self) -> Option<String> {
        None
    }

    async fn declare(&self, queue: &QueueName) -> Result<Declared> {
        self.check()?;
        let mut queues = self.inner.queues.lock();
        if queues.contains_key(queue) {
            return Ok(Declared::There);
        }
        queues.insert(queue.clone(), Line::default());
        Ok(Declared::Made)
    }

    async fn remove(&self, queue: &QueueName) -> Result<()> {
        self.check()?;
        self.inner.queues.lock().remove(queue);
        Ok(())
    }

    async fn push(&self, queue: &QueueName, messages: Vec<Bytes>) -> Result<()> {
        self.with(queue, |line| line.ready.extend(messages))?;
        self.inner.pushed.notify_waiters();
        Ok(())
    }

    async fn pull(&self, queue: &QueueName, max: usize, wait: Duration) -> Result<Vec<Message>> {
        let until = tokio::time::Instant::now() + wait;
        loop {
            let pushed = self.inner.pushed.notified();
            let messages = self.with(queue, |line| self.take(line, max))?;
            if !messages.is_empty() || tokio::time::timeout_at(until, pushed).await.is_err() {
                return Ok(messages);
            }
        }
    }

    async fn ack(&self, queue: &QueueName, receipts: Vec<Receipt>) -> Result<()> {
        self.with(queue, |line| {
            for number in receipts.iter().filter_map(number_of) {
                line.taken.remove(&number);
            }
        })
    }

    async fn nack(&self, queue: &QueueName, receipts: Vec<Receipt>) -> Result<()> {
        self.with(queue, |line| {
            for number in receipts.iter().filter_map(number_of) {
                line.give_back(number);
            }
        })?;
        self.inner.pushed.notify_waiters();
        Ok(())
    }

    async fn depth(&self, queue: &QueueName) -> Result<Depth> {
        self.with(queue, |line| Depth { ready: line.ready.len() as u64, taken: line.taken.len() as u64 })
    }

    async fn close(&self) -> Result<()> {
        self.is_closed.store(true, Ordering::Relaxed);
        self.give_all_back();
        Ok(())
    }
}

impl Line {
    fn give_back(&mut self, number: u64) {
        if let Some(taken) = self.taken.remove(&number) {
            self.ready.push_front(taken.body);
        }
    }
}

fn number_of(receipt: &Receipt) -> Option<u64> {
    receipt.0.parse().ok()
}

/// A node that is gone has its messages come again.
impl Drop for Connection {
    fn drop(&mut self) {
        self.give_all_back();
    }
}
