//! How many messages a second go through the engine, compared with the bare driver on the same broker: pushed in
//! batches with confirms, pulled and acknowledged.
//!
//! `cargo run --release -p flare-rabbitmq --example throughput-rabbitmq -- [messages]` with FLARE_TEST_RABBITMQ_URL.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement fails by panicking")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use flare_contract::proxy::Proxy;
use flare_core::queue::{Message, Queue, QueueName, Receipt};
use flare_rabbitmq::Options;
use futures_util::{FutureExt, StreamExt, future::try_join_all};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions},
    types::FieldTable,
};

const PUSHERS: usize = 4;
const BATCH: usize = 100;
const PREFETCH: u16 = 256;
/// The fastest of these counts: other programs run on the machine, too.
const ROUNDS: usize = 3;

#[tokio::main]
async fn main() {
    let url = std::env::var("FLARE_TEST_RABBITMQ_URL").expect("FLARE_TEST_RABBITMQ_URL is set");
    let messages: usize = std::env::args().nth(1).map_or(40_000, |count| count.parse().unwrap());
    let each = (messages / PUSHERS / BATCH).max(1) * BATCH;
    let name = QueueName::new(format!("flare-throughput-{:08x}", getrandom::u32().unwrap())).unwrap();
    let engine = open(&url).await;
    engine.declare(&name).await.unwrap();
    let (mut raw, mut ours) = (0.0_f64, 0.0_f64);
    for _ in 0..ROUNDS {
        raw = raw.max(with_driver(&url, &name, each).await);
        ours = ours.max(with_engine(&engine, &name, each).await);
    }
    println!("driver  {raw:>9.0} messages/s");
    println!("engine  {ours:>9.0} messages/s");
    println!("ratio   {:>9.2}", ours / raw);
    println!("round trips per message: {:.4}", round_trips(&url, &name, each).await);
    engine.remove(&name).await.unwrap();
    engine.close().await.unwrap();
}

async fn open(url: &str) -> Arc<dyn Queue> {
    let options =
        Options { url: Some(url.into()), prefetch: PREFETCH, timeout: Duration::from_secs(30), ..Options::default() };
    flare_rabbitmq::open(&options).await.unwrap()
}

/// As long as a hint is.
fn text(number: usize) -> Bytes {
    let (document, padding) = (number % 1000, "0".repeat(64));
    Bytes::from(format!("{{\"stream\": \"{padding}\", \"document\": {document:08}, \"sequence\": {number:020}}}"))
}

async fn with_engine(queue: &Arc<dyn Queue>, name: &QueueName, each: usize) -> f64 {
    let begun = Instant::now();
    let pushing = (0..PUSHERS).map(|_| {
        let (queue, name) = (queue.clone(), name.clone());
        tokio::spawn(async move {
            for first in (0..each).step_by(BATCH) {
                queue.push(&name, (first..first + BATCH).map(text).collect()).await.unwrap();
            }
        })
    });
    let pulling = {
        let (queue, name) = (queue.clone(), name.clone());
        tokio::spawn(async move {
            let mut left = each * PUSHERS;
            while left > 0 {
                let messages: Vec<Message> = queue.pull(&name, 1000, Duration::from_secs(20)).await.unwrap();
                let receipts: Vec<Receipt> = messages.into_iter().map(|message| message.receipt).collect();
                left -= receipts.len();
                queue.ack(&name, receipts).await.unwrap();
            }
        })
    };
    try_join_all(pushing.chain([pulling])).await.unwrap();
    (each * PUSHERS) as f64 / begun.elapsed().as_secs_f64()
}

async fn with_driver(url: &str, name: &QueueName, each: usize) -> f64 {
    let connect = || async { Connection::connect(url, ConnectionProperties::default()).await.unwrap() };
    let (publishing, consuming) = (connect().await, connect().await);
    let channel = publishing.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let deliveries = consuming.create_channel().await.unwrap();
    deliveries.basic_qos(PREFETCH, BasicQosOptions::default()).await.unwrap();
    let begun = Instant::now();
    let pushing = (0..PUSHERS).map(|_| {
        let (channel, name) = (channel.clone(), name.clone());
        tokio::spawn(async move {
            for first in (0..each).step_by(BATCH) {
                publish(&channel, &name, first).await;
            }
        })
    });
    let pulling = tokio::spawn(consume(deliveries.clone(), name.clone(), each * PUSHERS));
    try_join_all(pushing.chain([pulling])).await.unwrap();
    let rate = (each * PUSHERS) as f64 / begun.elapsed().as_secs_f64();
    for connection in [publishing, consuming] {
        connection.close(200, "done".into()).await.unwrap();
    }
    rate
}

async fn publish(channel: &Channel, name: &QueueName, first: usize) {
    let properties = BasicProperties::default().with_delivery_mode(2);
    let confirms = (first..first + BATCH).map(|number| {
        let (properties, options) = (properties.clone(), BasicPublishOptions::default());
        async move {
            let body = text(number);
            channel.basic_publish("".into(), name.as_str().into(), options, &body, properties).await
        }
    });
    for confirmed in try_join_all(try_join_all(confirms).await.unwrap()).await.unwrap() {
        assert!(confirmed.is_ack());
    }
}

async fn consume(channel: Channel, name: QueueName, mut left: usize) {
    let options = BasicConsumeOptions::default();
    let mut consumer =
        channel.basic_consume(name.as_str().into(), "".into(), options, FieldTable::default()).await.unwrap();
    while left > 0 {
        let mut last = consumer.next().await.unwrap().unwrap().delivery_tag;
        left -= 1;
        while let Some(Some(delivery)) = consumer.next().now_or_never() {
            last = delivery.unwrap().delivery_tag;
            left -= 1;
        }
        channel.basic_ack(last, BasicAckOptions { multiple: true }).await.unwrap();
    }
    channel.basic_cancel(consumer.tag(), Default::default()).await.unwrap();
}

/// How often a side waited for the other, through a proxy that counts.
async fn round_trips(url: &str, name: &QueueName, each: usize) -> f64 {
    let rest = url.split_once('@').unwrap().1;
    let host = rest.split('/').next().unwrap();
    let proxy = Proxy::start(host).await;
    let queue = open(&url.replace(host, &proxy.address().to_string())).await;
    let before = proxy.round_trips();
    with_engine(&queue, name, each).await;
    let trips = proxy.round_trips() - before;
    queue.close().await.unwrap();
    trips as f64 / (each * PUSHERS) as f64
}
