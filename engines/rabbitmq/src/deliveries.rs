//! The channels that messages come on, and how they are settled.
//!
//! Consumers share channels, so that thousands of queues need some dozens of them. A receipt names the channel and the
//! number of the delivery on it. Channels are numbered for as long as the process lives: a receipt of a channel that is
//! gone names nothing, and its message comes again by itself.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use flare_core::{Error, Result, queue::Receipt};
use futures_util::future::join_all;
use lapin::{
    Channel, Consumer,
    options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions},
    types::FieldTable,
};
use parking_lot::Mutex;

use crate::{
    failure,
    ledger::{Held, Ledger, Settlement},
    session::Session,
};

/// The broker allows some two thousand; each is a process there. Where it allows few, half of them are for questions.
const CHANNELS_MAX: usize = 64;

pub(crate) struct Deliveries {
    prefetch: u16,
    channels: Mutex<BTreeMap<u64, Arc<DeliveryChannel>>>,
    /// One channel is opened at a time.
    opening: tokio::sync::Mutex<()>,
    numbers: AtomicU64,
}

pub(crate) struct DeliveryChannel {
    number: u64,
    /// The broker, for people.
    server: String,
    channel: Channel,
    consumers: AtomicUsize,
    ledger: Mutex<Ledger>,
    /// Frames must go in the order in which the ledger gave them out.
    settling: tokio::sync::Mutex<()>,
}

/// What becomes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Done,
    Again,
}

impl Deliveries {
    pub fn new(prefetch: u16) -> Result<Self> {
        // Receipts of another process are not ours.
        let first = getrandom::u32().map_err(|error| Error::internal("there is no randomness").because(error))?;
        Ok(Self {
            prefetch,
            channels: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            numbers: AtomicU64::new(u64::from(first) << 16),
        })
    }

    /// Begins to consume a queue that is there. Not to be dropped half-way: the consumer would be there, and nobody at
    /// its end.
    pub async fn consume(&self, queue: &str, session: &Session) -> Result<(Arc<DeliveryChannel>, Consumer)> {
        let channel = self.channel(session).await?;
        let tag = format!("flare-{}", self.numbers.fetch_add(1, Ordering::Relaxed));
        let options = BasicConsumeOptions::default();
        let consuming = channel.channel.basic_consume(queue.into(), tag.into(), options, FieldTable::default());
        match consuming.await {
            Ok(consumer) => Ok((channel, consumer)),
            Err(error) => {
                channel.leave();
                Err(failure::refusal(&session.server, &error))
            }
        }
    }

    /// A channel for one more consumer: an empty one, or a new one, or the one with the fewest.
    async fn channel(&self, session: &Session) -> Result<Arc<DeliveryChannel>> {
        let _turn = self.opening.lock().await;
        let channels_max = CHANNELS_MAX.min(session.channels_max() / 2);
        let (least, count) = self.least_used();
        if let Some(channel) = least
            && (count >= channels_max || channel.consumers.load(Ordering::Relaxed) == 0)
        {
            channel.consumers.fetch_add(1, Ordering::Relaxed);
            return Ok(channel);
        }
        let channel = session.channel().await?;
        let limited = channel.basic_qos(self.prefetch, BasicQosOptions::default()).await;
        limited.map_err(|error| failure::refusal(&session.server, &error))?;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let channel = Arc::new(DeliveryChannel {
            number,
            server: session.server.clone(),
            channel,
            consumers: AtomicUsize::new(1),
            ledger: Mutex::default(),
            settling: tokio::sync::Mutex::default(),
        });
        self.channels.lock().insert(number, channel.clone());
        Ok(channel)
    }

    fn least_used(&self) -> (Option<Arc<DeliveryChannel>>, usize) {
        self.forget_the_lost();
        let channels = self.channels.lock();
        let least = channels.values().min_by_key(|channel| channel.consumers.load(Ordering::Relaxed));
        (least.cloned(), channels.len())
    }

    /// What came on a channel that is gone is not ours any more.
    pub fn forget_the_lost(&self) {
        self.channels.lock().retain(|_, channel| channel.is_up());
    }

    pub async fn settle(&self, receipts: &[Receipt], verdict: Verdict) {
        let mut by_channel: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (channel, number) in receipts.iter().filter_map(read_receipt) {
            by_channel.entry(channel).or_default().push(number);
        }
        for (channel, numbers) in by_channel {
            let channel = self.channels.lock().get(&channel).cloned();
            if let Some(channel) = channel {
                channel.settle(numbers, verdict).await;
            }
        }
    }
}

impl DeliveryChannel {
    pub fn is_up(&self) -> bool {
        self.channel.status().connected()
    }

    /// What those are told who wait for a message.
    pub fn lost(&self, reason: &str) -> Error {
        Error::unavailable(format!("RabbitMQ at {} is gone: {reason}", self.server))
    }

    pub fn receipt(&self, delivery: u64) -> Receipt {
        Receipt(format!("{}.{delivery}", self.number).into())
    }

    pub fn came(&self, delivery: u64, held: &Held) {
        self.ledger.lock().came(delivery, held);
    }

    /// Ends a consumer; what it was sent before still comes.
    pub async fn cancel(&self, consumer: &Consumer) {
        let _gone_with_the_channel = self.channel.basic_cancel(consumer.tag(), Default::default()).await;
    }

    /// A consumer is gone.
    pub fn leave(&self) {
        self.consumers.fetch_sub(1, Ordering::Relaxed);
    }

    pub async fn settle(&self, deliveries: Vec<u64>, verdict: Verdict) {
        let _turn = self.settling.lock().await;
        let frames = self.ledger.lock().settle(deliveries);
        // An error means that the channel is gone, and then the messages are not ours any more.
        let _sent = join_all(frames.into_iter().map(|frame| self.send(frame, verdict))).await;
    }

    async fn send(&self, frame: Settlement, verdict: Verdict) -> lapin::Result<()> {
        let Settlement { number, with_all_before: multiple } = frame;
        match verdict {
            Verdict::Done => self.channel.basic_ack(number, BasicAckOptions { multiple }).await,
            Verdict::Again => self.channel.basic_nack(number, BasicNackOptions { multiple, requeue: true }).await,
        }
    }
}

fn read_receipt(receipt: &Receipt) -> Option<(u64, u64)> {
    let (channel, delivery) = receipt.0.split_once('.')?;
    Some((channel.parse().ok()?, delivery.parse().ok()?))
}
