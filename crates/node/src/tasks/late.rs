//! A queue that may be reached later than it is needed: until then every call fails, and says why.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{
    Error, ErrorKind, Result,
    queue::{Declared, Depth, Message, Queue, QueueLimits, QueueName, Receipt},
};
use parking_lot::RwLock;
use tokio::{sync::Mutex, time::Instant};

use super::OpenQueue;

/// How long nobody tries again to connect.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);
/// As long as nobody knows better.
const LIMITS: QueueLimits = QueueLimits { message_bytes_max: 64 << 10, taken_max: 1 };

pub(super) struct LateQueue {
    engine: &'static str,
    open: OpenQueue,
    state: RwLock<State>,
    /// Held by the one who connects, with the time of his last attempt.
    connecting: Mutex<Instant>,
}

#[derive(Clone)]
enum State {
    Unreached(Arc<str>),
    Reached(Arc<dyn Queue>),
    Closed,
}

impl LateQueue {
    pub async fn open(engine: &'static str, open: OpenQueue) -> Result<Self> {
        let state = match open().await {
            Ok(queue) => State::Reached(queue),
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                tracing::warn!(reason = error.chain(), "the queue cannot be reached; it is tried again");
                State::Unreached(error.chain().into())
            }
            Err(error) => return Err(error),
        };
        Ok(Self { engine, open, state: RwLock::new(state), connecting: Mutex::new(Instant::now()) })
    }

    /// What is known, without trying to change it.
    fn known(&self) -> Option<Result<Arc<dyn Queue>>> {
        match &*self.state.read() {
            State::Reached(queue) => Some(Ok(queue.clone())),
            State::Closed => Some(Err(Error::unavailable("the queue was closed"))),
            State::Unreached(_) => None,
        }
    }

    async fn reach(&self) -> Result<Arc<dyn Queue>> {
        if let Some(known) = self.known() {
            return known;
        }
        let mut tried = self.connecting.lock().await;
        if let Some(known) = self.known() {
            return known;
        }
        if tried.elapsed() < CONNECT_AGAIN {
            return Err(Error::unavailable(self.trouble().unwrap_or_default()));
        }
        let opened = (self.open)().await;
        *tried = Instant::now();
        let mut state = self.state.write();
        match &opened {
            Ok(queue) => {
                tracing::info!("the queue is reached");
                *state = State::Reached(queue.clone());
            }
            Err(error) => *state = State::Unreached(error.chain().into()),
        }
        opened
    }
}

#[async_trait]
impl Queue for LateQueue {
    fn name(&self) -> &'static str {
        self.engine
    }

    fn limits(&self) -> QueueLimits {
        match &*self.state.read() {
            State::Reached(queue) => queue.limits(),
            State::Unreached(_) | State::Closed => LIMITS,
        }
    }

    fn trouble(&self) -> Option<String> {
        match &*self.state.read() {
            State::Reached(queue) => queue.trouble(),
            State::Unreached(reason) => Some(reason.to_string()),
            State::Closed => None,
        }
    }

    async fn declare(&self, queue: &QueueName) -> Result<Declared> {
        self.reach().await?.declare(queue).await
    }

    async fn remove(&self, queue: &QueueName) -> Result<()> {
        self.reach().await?.remove(queue).await
    }

    async fn push(&self, queue: &QueueName, messages: Vec<Bytes>) -> Result<()> {
        self.reach().await?.push(queue, messages).await
    }

    async fn pull(&self, queue: &QueueName, max: usize, wait: Duration) -> Result<Vec<Message>> {
        self.reach().await?.pull(queue, max, wait).await
    }

    async fn ack(&self, queue: &QueueName, receipts: Vec<Receipt>) -> Result<()> {
        self.reach().await?.ack(queue, receipts).await
    }

    async fn nack(&self, queue: &QueueName, receipts: Vec<Receipt>) -> Result<()> {
        self.reach().await?.nack(queue, receipts).await
    }

    async fn depth(&self, queue: &QueueName) -> Result<Depth> {
        self.reach().await?.depth(queue).await
    }

    async fn close(&self) -> Result<()> {
        // One who connects just now finds that it is closed, and lets go.
        let _nobody_connects = self.connecting.lock().await;
        let before = std::mem::replace(&mut *self.state.write(), State::Closed);
        match before {
            State::Reached(queue) => queue.close().await,
            State::Unreached(_) | State::Closed => Ok(()),
        }
    }
}
