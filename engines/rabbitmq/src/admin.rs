//! Questions about queues, over a connection of their own.
//!
//! An error closes the channel that it happens on, and the driver does not use the number of such a channel again: it
//! runs out of them. So the connection is replaced when many channels were lost on it.

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
use tokio::{
    sync::{Mutex, Semaphore},
    time::timeout,
};

use crate::{QueueType, address::Address, closed, failure, link, session::Session, spawn};

/// Questions at once.
const CHANNELS_MAX: usize = 4;
/// Quorum queues of RabbitMQ 4 throw a message away that was given back 20 times. With a limit they also put what is
/// given back near the head of the queue instead of at its end.
const DELIVERIES_MAX: i64 = 1_000_000_000;

pub(crate) struct Admin {
    address: Arc<Address>,
    queue_type: QueueType,
    places: Semaphore,
    desk: Mutex<Option<Desk>>,
}

/// The connection of now.
struct Desk {
    session: Arc<Session>,
    channels: Vec<Channel>,
    channels_lost: usize,
}

impl Admin {
    pub fn new(address: Arc<Address>, queue_type: QueueType) -> Self {
        Self { address, queue_type, places: Semaphore::new(CHANNELS_MAX), desk: Mutex::default() }
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

    pub async fn close(&self) {
        if let Some(desk) = self.desk.lock().await.take() {
            let _may_be_slow = timeout(self.address.timeout, desk.session.close()).await;
        }
    }

    async fn ask<T>(&self, queue: &QueueName, question: impl AsyncFnOnce(&Channel) -> lapin::Result<T>) -> Result<T> {
        let asking = timeout(self.address.timeout, async {
            let _place = self.places.acquire().await;
            let (session, channel) = self.channel().await?;
            let answer = question(&channel).await;
            self.give_back(&session, channel, answer.is_ok()).await;
            answer.map_err(|error| failure::refusal(&session.server, &error))
        });
        let late = || format!("RabbitMQ at {} does not answer for the queue {queue}", self.address.names());
        asking.await.unwrap_or_else(|_| Err(Error::unavailable(late())))
    }

    async fn channel(&self) -> Result<(Arc<Session>, Channel)> {
        let mut desk = self.desk.lock().await;
        if desk.as_ref().is_none_or(Desk::is_used_up) {
            let session = link::connect(&self.address, "admin").await?;
            let new = Desk { session, channels: Vec::new(), channels_lost: 0 };
            if let Some(old) = desk.replace(new) {
                spawn(async move { old.session.close().await });
            }
        }
        let Some(desk) = desk.as_mut() else { return Err(closed()) };
        let channel = match desk.channels.pop() {
            Some(channel) => channel,
            None => desk.session.channel().await?,
        };
        Ok((desk.session.clone(), channel))
    }

    async fn give_back(&self, session: &Arc<Session>, channel: Channel, is_open: bool) {
        let mut desk = self.desk.lock().await;
        if let Some(desk) = desk.as_mut().filter(|desk| Arc::ptr_eq(&desk.session, session)) {
            desk.channels.extend(is_open.then_some(channel));
            desk.channels_lost += usize::from(!is_open);
        }
    }
}

impl Desk {
    fn is_used_up(&self) -> bool {
        !self.session.is_up() || self.channels_lost > self.session.channels_max() / 2
    }
}
