//! NATS JetStream as a queue: for teams that already run it.
//!
//! One stream holds the messages of all queues, each under a subject of its own; a queue is a durable consumer of its
//! subject ([`lines`]). The stream is a work queue: what is acknowledged is gone. A pull is one request that the
//! server answers as soon as it has something ([`pull`]). What was taken and is not settled yet is kept from coming
//! again by a task ([`keep`]), so that the server may take a silent node for gone quickly.

mod connection;
mod failure;
mod keep;
mod lines;
mod options;
mod pull;

use std::{sync::Arc, time::Duration};

use async_nats::jetstream::{publish::PublishAck, response::Response};
use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{
    Error, Result,
    queue::{Declared, Depth, Message, Queue, QueueLimits, QueueName, Receipt},
};
use flare_toolkit::taken::Taken;
use tokio_util::{sync::DropGuard, task::TaskTracker};

pub use self::options::Options;
use self::{connection::Connection, failure::Failure, lines::Lines};

/// Requests of one call that are on their way at the same time.
const BATCH_MAX: usize = 256;
/// Longer messages are no hints; the stream refuses them, too.
const MESSAGE_BYTES_MAX: usize = 256 << 10;

const ACK: Bytes = Bytes::from_static(b"+ACK");
const NAK: Bytes = Bytes::from_static(b"-NAK");

/// Connects, and makes the stream where it is missing.
pub async fn open(options: &Options) -> Result<Arc<dyn Queue>> {
    options.check()?;
    let connection = Arc::new(Connection::open(options).await?);
    let lines = Lines::new(connection.clone(), options);
    connection.health.note(lines.find_or_make_stream().await)?;
    let taken = Arc::new(Taken::default());
    spawn(keep::keep(taken.clone(), connection.clone(), options.ack_wait));
    Ok(Arc::new(NatsQueue {
        lines,
        taken,
        pulls: TaskTracker::new(),
        taken_max: options.taken_max,
        _stops: connection.stop.clone().drop_guard(),
        connection,
    }))
}

struct NatsQueue {
    connection: Arc<Connection>,
    lines: Lines,
    taken: Arc<Taken>,
    /// Pulls that are under way, and what gives back the messages of those that were dropped.
    pulls: TaskTracker,
    taken_max: usize,
    _stops: DropGuard,
}

impl NatsQueue {
    async fn push_some(&self, queue: &QueueName, messages: &[Bytes]) -> Result<()> {
        let subject = self.lines.subject(queue);
        let count = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        let _places = self.connection.places.acquire_many(count).await;
        // It may have been a while.
        self.connection.check()?;
        let sent = self.connection.ask_all(messages.iter().map(|message| (subject.clone(), message.clone())));
        let explain = |failure| self.connection.explain("a message", failure);
        for answer in sent.await.map_err(explain)? {
            match answer.and_then(|answer| confirmed(&answer.payload)) {
                Ok(()) => {}
                Err(failure) => {
                    if matches!(failure, Failure::NobodyThere) {
                        // Without a stream there is no queue.
                        self.lines.check(queue).await?;
                    }
                    return Err(explain(failure));
                }
            }
        }
        Ok(())
    }

    /// Settles messages, and waits until the server has noted it.
    async fn settle(&self, queue: &QueueName, receipts: &[Receipt], how: Bytes) -> Result<()> {
        self.connection.check()?;
        // Whatever comes of it: from now on the server may hand them out again.
        self.taken.release(queue, receipts);
        let ours = receipts.iter().filter(|receipt| is_receipt(receipt)).collect::<Vec<_>>();
        for some in ours.chunks(BATCH_MAX) {
            let explain = |failure| self.connection.explain("an acknowledgement", failure);
            let sent = self.connection.ask_all(some.iter().map(|receipt| (receipt.0.to_string(), how.clone())));
            for answer in sent.await.map_err(explain)? {
                match answer {
                    // Nobody is there for messages of a queue that was removed.
                    Ok(_) | Err(Failure::NobodyThere) => {}
                    Err(failure) => return Err(explain(failure)),
                }
            }
        }
        Ok(())
    }

    async fn give_all_back(&self) {
        let receipts: Vec<_> = self.taken.take_all().into_iter().flat_map(|(_, receipts)| receipts).collect();
        for some in receipts.chunks(BATCH_MAX) {
            let sent = self.connection.ask_all(some.iter().map(|receipt| (receipt.0.to_string(), NAK)));
            // What the server does not hear of comes again after `ack_wait`.
            let _may_be_away = sent.await;
        }
    }
}

/// What the server says to a message that was pushed.
fn confirmed(answer: &[u8]) -> Result<(), Failure> {
    match serde_json::from_slice::<Response<PublishAck>>(answer) {
        Ok(Response::Ok(_)) => Ok(()),
        Ok(Response::Err { error }) => Err(Failure::Refused(error)),
        Err(error) => Err(Failure::Lost(Error::unavailable("the answer cannot be read").because(error))),
    }
}

/// Acknowledgements are sent to subjects: nothing may be sent to those of others.
fn is_receipt(receipt: &Receipt) -> bool {
    receipt.0.starts_with("$JS.ACK.")
}

#[async_trait]
impl Queue for NatsQueue {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn limits(&self) -> QueueLimits {
        let message_bytes_max = MESSAGE_BYTES_MAX.min(self.connection.client.max_payload());
        QueueLimits { message_bytes_max, taken_max: self.taken_max }
    }

    fn trouble(&self) -> Option<String> {
        self.connection.health.trouble()
    }

    async fn declare(&self, queue: &QueueName) -> Result<Declared> {
        self.connection.check()?;
        self.connection.health.note(self.lines.declare(queue).await)
    }

    async fn remove(&self, queue: &QueueName) -> Result<()> {
        self.connection.check()?;
        self.taken.forget(queue);
        self.connection.health.note(self.lines.remove(queue).await)
    }

    async fn push(&self, queue: &QueueName, messages: Vec<Bytes>) -> Result<()> {
        self.connection.check()?;
        let max = self.limits().message_bytes_max;
        if let Some(long) = messages.iter().find(|message| message.len() > max) {
            return Err(Error::invalid(format!(
                "a message of {} bytes is longer than the {max} bytes that the queue {queue} takes",
                long.len()
            )));
        }
        let pushing = async {
            self.lines.check_now_and_then(queue).await?;
            for some in messages.chunks(BATCH_MAX) {
                self.push_some(queue, some).await?;
            }
            Ok(())
        };
        self.connection.health.note(pushing.await)
    }

    async fn pull(&self, queue: &QueueName, max: usize, wait: Duration) -> Result<Vec<Message>> {
        self.connection.check()?;
        let pulled = pull::pull(&self.connection, &self.lines, &self.pulls, queue, max, wait).await;
        let messages = self.connection.health.note(pulled)?;
        self.taken.hold(queue, &messages);
        Ok(messages)
    }

    async fn ack(&self, queue: &QueueName, receipts: Vec<Receipt>) -> Result<()> {
        self.connection.health.note(self.settle(queue, &receipts, ACK).await)
    }

    async fn nack(&self, queue: &QueueName, receipts: Vec<Receipt>) -> Result<()> {
        self.connection.health.note(self.settle(queue, &receipts, NAK).await)
    }

    async fn depth(&self, queue: &QueueName) -> Result<Depth> {
        self.connection.check()?;
        self.connection.health.note(self.lines.depth(queue).await)
    }

    async fn close(&self) -> Result<()> {
        self.connection.stop.cancel();
        self.pulls.close();
        let _stragglers = tokio::time::timeout(self.connection.timeout, self.pulls.wait()).await;
        if self.connection.is_up() {
            self.give_all_back().await;
        }
        self.connection.close().await;
        Ok(())
    }
}

/// A task of the engine: it ends with the queue.
#[allow(clippy::disallowed_methods, reason = "engines know no supervisor; the task ends with its queue")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}
