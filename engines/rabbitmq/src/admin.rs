//! Questions about queues, on channels of their own: an error closes the channel that it happens on.

use std::sync::Arc;

use flare_core::{
    Error, ErrorKind, Result,
    queue::{Declared, QueueName},
};
use lapin::{
    Channel,
    options::{QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use crate::{QueueType, failure, link::Link};

/// Questions at once.
const CHANNELS_MAX: usize = 4;
/// Quorum queues of RabbitMQ 4 throw a message away that was given back 20 times. With a limit they also put what is given
/// back near the head of the queue instead of at its end.
const DELIVERIES_MAX: i64 = 1_000_000_000;

pub(crate) struct Admin {
    link: Arc<Link>,
    queue_type: QueueType,
    places: Semaphore,
    channels: Mutex<Vec<Channel>>,
}

impl Admin {
    pub fn new(link: Arc<Link>, queue_type: QueueType) -> Self {
        Self { link, queue_type, places: Semaphore::new(CHANNELS_MAX), channels: Mutex::default() }
    }

    pub async fn declare(&self, queue: &QueueName) -> Result<Declared> {
        let declared = match self.count(queue).await {
            Ok(_) => Declared::There,
            Err(error) if error.kind() == ErrorKind::NotFound => Declared::Made,
            Err(error) => return Err(error),
        };
        // Also where it is there: the broker says whether it fits.
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        self.ask(queue, async |channel| {
            channel.queue_declare(queue.as_str().into(), options, self.arguments()).await.map(drop)
        })
        .await?;
        Ok(declared)
    }

    fn arguments(&self) -> FieldTable {
        let queue_type = if self.queue_type == QueueType::Quorum { "quorum" } else { "classic" };
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(queue_type.into()));
        if self.queue_type == QueueType::Quorum {
            arguments.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(DELIVERIES_MAX));
        }
        arguments
    }

    pub async fn delete(&self, queue: &QueueName) -> Result<()> {
        let options = QueueDeleteOptions::default();
        self.ask(queue, async |channel| channel.queue_delete(queue.as_str().into(), options).await.map(drop)).await
    }

    /// How many messages nobody has; `NotFound` if there is no such queue.
    pub async fn count(&self, queue: &QueueName) -> Result<u64> {
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        self.ask(queue, async |channel| {
            let found = channel.queue_declare(queue.as_str().into(), options, FieldTable::default()).await?;
            Ok(u64::from(found.message_count()))
        })
        .await
    }

    async fn ask<T>(&self, queue: &QueueName, question: impl AsyncFnOnce(&Channel) -> lapin::Result<T>) -> Result<T> {
        let deadline = Instant::now() + self.link.timeout();
        let session = self.link.session(deadline).await?;
        let answer = timeout_at(deadline, async {
            let _place = self.places.acquire().await;
            let channel = match self.idle_channel() {
                Some(channel) => channel,
                None => session.channel().await?,
            };
            let answer = question(&channel).await.map_err(|error| failure::refusal(&session.server, &error))?;
            self.channels.lock().push(channel);
            Ok(answer)
        });
        let late = format!("RabbitMQ at {} does not answer for the queue {queue}", session.server);
        answer.await.unwrap_or_else(|_| Err(Error::unavailable(late)))
    }

    fn idle_channel(&self) -> Option<Channel> {
        let mut channels = self.channels.lock();
        // Those of a connection that is gone are not connected either.
        channels.retain(|channel| channel.status().connected());
        channels.pop()
    }
}
