//! Amazon SQS as a queue: for teams that run on AWS and want nothing to operate.
//!
//! A queue is a standard queue of SQS. Calls take ten messages at most, so that pushes and acknowledgements are cut
//! into batches that go in parallel ([`batches`]), and pulls fetch in parallel while there is much to fetch
//! ([`line`]). SQS hands a message out again when it has been invisible for a time; a task prolongs that for those
//! that are still worked on ([`keep`]).

mod batches;
mod failure;
mod keep;
mod line;
mod options;
mod service;

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{
    Error, Result,
    queue::{Declared, Depth, Message, Queue, QueueLimits, QueueName, Receipt},
};
use flare_toolkit::taken::Taken;
use parking_lot::Mutex;
use tokio_util::sync::DropGuard;

pub use self::options::Options;
use self::{line::Line, service::Service};

/// What SQS has always taken, also as the sum of a batch.
const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// What SQS lets be in flight, of one queue.
const TAKEN_MAX: usize = 120_000;
/// How long a close waits for pulls whose answer is on its way. A message that comes later is invisible for a while.
const LEAVE: Duration = Duration::from_secs(1);

/// Gets ready to call: the first call shows whether credentials and region are right.
pub async fn open(options: &Options) -> Result<Arc<dyn Queue>> {
    options.check()?;
    let service = Arc::new(Service::open(options).await?);
    let taken = Arc::new(Taken::default());
    spawn(keep::keep(taken.clone(), service.clone()));
    Ok(Arc::new(SqsQueue {
        taken,
        lines: Mutex::default(),
        receives_max: options.receives,
        _stops: service.stop.clone().drop_guard(),
        service,
    }))
}

struct SqsQueue {
    service: Arc<Service>,
    taken: Arc<Taken>,
    lines: Mutex<HashMap<QueueName, Arc<Line>>>,
    receives_max: usize,
    _stops: DropGuard,
}

impl SqsQueue {
    fn line(&self, queue: &QueueName) -> Arc<Line> {
        let mut lines = self.lines.lock();
        let line = lines.entry(queue.clone());
        line.or_insert_with(|| Line::new(self.service.clone(), queue.clone(), self.receives_max)).clone()
    }
}

#[async_trait]
impl Queue for SqsQueue {
    fn name(&self) -> &'static str {
        "sqs"
    }

    fn limits(&self) -> QueueLimits {
        QueueLimits { message_bytes_max: MESSAGE_BYTES_MAX, taken_max: TAKEN_MAX }
    }

    fn trouble(&self) -> Option<String> {
        self.service.health.trouble()
    }

    async fn declare(&self, queue: &QueueName) -> Result<Declared> {
        self.service.check()?;
        self.service.health.note(self.service.declare(queue).await)
    }

    async fn remove(&self, queue: &QueueName) -> Result<()> {
        self.service.check()?;
        self.taken.forget(queue);
        self.lines.lock().remove(queue);
        self.service.health.note(self.service.remove(queue).await)
    }

    async fn push(&self, queue: &QueueName, messages: Vec<Bytes>) -> Result<()> {
        self.service.check()?;
        let texts = messages.into_iter().map(|message| text(queue, message)).collect::<Result<Vec<_>>>()?;
        self.service.health.note(batches::send(&self.service, queue, texts).await)
    }

    async fn pull(&self, queue: &QueueName, max: usize, wait: Duration) -> Result<Vec<Message>> {
        self.service.check()?;
        let messages = self.service.health.note(self.line(queue).pull(max, wait).await)?;
        self.taken.hold(queue, &messages);
        Ok(messages)
    }

    async fn ack(&self, queue: &QueueName, receipts: Vec<Receipt>) -> Result<()> {
        self.service.check()?;
        // Whatever comes of it: from now on they may come again.
        self.taken.release(queue, &receipts);
        self.service.health.note(batches::delete(&self.service, queue, receipts).await)
    }

    async fn nack(&self, queue: &QueueName, receipts: Vec<Receipt>) -> Result<()> {
        self.service.check()?;
        self.taken.release(queue, &receipts);
        self.service.health.note(batches::hide(&self.service, queue, receipts, Duration::ZERO).await)
    }

    async fn depth(&self, queue: &QueueName) -> Result<Depth> {
        self.service.check()?;
        self.service.health.note(self.service.depth(queue).await)
    }

    async fn close(&self) -> Result<()> {
        self.service.stop.cancel();
        self.service.calls.close();
        let _idle_polls_are_left = tokio::time::timeout(LEAVE, self.service.calls.wait()).await;
        for (queue, receipts) in self.taken.take_all() {
            // What SQS does not hear of comes again when its time is over.
            let _may_be_away = batches::hide(&self.service, &queue, receipts, Duration::ZERO).await;
        }
        Ok(())
    }
}

/// SQS takes text that is not empty.
fn text(queue: &QueueName, message: Bytes) -> Result<String> {
    if message.is_empty() || message.len() > MESSAGE_BYTES_MAX {
        return Err(Error::invalid(format!(
            "a message of {} bytes: the queue {queue} takes 1 to {MESSAGE_BYTES_MAX} bytes",
            message.len()
        )));
    }
    let unreadable = |error| Error::invalid(format!("a message for the queue {queue} is no text")).because(error);
    String::from_utf8(message.into()).map_err(unreadable)
}

/// A task of the engine: it ends with the queue.
#[allow(clippy::disallowed_methods, reason = "engines know no supervisor; the task ends with its queue")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}
