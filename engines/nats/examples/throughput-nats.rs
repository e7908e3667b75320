//! What the engine costs over its driver: the same messages in the same batches, with and without the engine.
//!
//! `FLARE_TEST_NATS_URL=… cargo run --release -p flare-nats --example throughput-nats [SECONDS]`
//!
//! - *driver*: a loop that publishes a batch and waits for the server's answers, fetches it, and confirms it with
//!   double acks.
//! - *engine*: `push`, `pull` and `ack` of the same batches.
//!
//! Then round trips for each message, counted on the wire.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement, not a server")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_nats::jetstream::{
    self, AckKind,
    consumer::{PullConsumer, pull},
    stream,
};
use bytes::Bytes;
use flare_contract::proxy::Proxy;
use flare_core::queue::{Queue, QueueName};
use flare_nats::Options;
use futures_util::{StreamExt, future::join_all};

const BATCH: usize = 250;
const MESSAGE_BYTES: usize = 150;
const WAIT: Duration = Duration::from_secs(20);
const STREAM: &str = "flare-throughput";

#[tokio::main]
async fn main() {
    let seconds = std::env::args().nth(1).map_or(5, |seconds| seconds.parse().expect("SECONDS is a number"));
    let url = std::env::var("FLARE_TEST_NATS_URL").expect("FLARE_TEST_NATS_URL names a server");
    let time = Duration::from_secs(seconds);
    let jetstream = jetstream::new(async_nats::connect(&url).await.unwrap());
    println!("{:<8} {:>8} {:>12} {:>14}", "what", "batch", "messages/s", "of the driver");
    for batch in [1, BATCH] {
        let driver = drive(&jetstream, batch, time).await;
        println!("{:<8} {batch:>8} {driver:>12.0}", "driver");
        let queue = open(&url).await;
        let engine = run(&queue, batch, time).await;
        println!("{:<8} {batch:>8} {engine:>12.0} {:>14.2}", "engine", engine / driver);
        jetstream.delete_stream(STREAM).await.unwrap();
    }
    round_trips(&url).await;
    jetstream.delete_stream(STREAM).await.unwrap();
}

async fn open(url: &str) -> Arc<dyn Queue> {
    let options = Options { addrs: vec![url.into()], stream: STREAM.into(), ..Options::default() };
    flare_nats::open(&options).await.unwrap()
}

fn messages(count: usize) -> Vec<Bytes> {
    vec![Bytes::from(vec![b'a'; MESSAGE_BYTES]); count]
}

/// Messages that go through in a second, over the driver.
async fn drive(jetstream: &jetstream::Context, batch: usize, time: Duration) -> f64 {
    let config = stream::Config {
        name: STREAM.into(),
        subjects: vec![format!("{STREAM}.*")],
        retention: stream::RetentionPolicy::WorkQueue,
        discard: stream::DiscardPolicy::New,
        ..stream::Config::default()
    };
    let stream = jetstream.create_stream(config).await.unwrap();
    let subject = format!("{STREAM}.driver");
    let config = pull::Config {
        durable_name: Some("driver".into()),
        filter_subject: subject.clone(),
        max_ack_pending: 10_000,
        ..pull::Config::default()
    };
    let consumer: PullConsumer = stream.create_consumer(config).await.unwrap();
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < time {
        let mut sent = Vec::new();
        for message in messages(batch) {
            sent.push(jetstream.publish(subject.clone(), message).await.unwrap().into_future());
        }
        for answer in join_all(sent).await {
            answer.unwrap();
        }
        let mut left = batch;
        while left > 0 {
            let fetched = consumer.batch().max_messages(left).expires(WAIT).messages().await.unwrap();
            let fetched: Vec<_> = fetched.map(Result::unwrap).collect().await;
            left -= fetched.len();
            for acked in join_all(fetched.iter().map(|message| message.double_ack_with(AckKind::Ack))).await {
                acked.unwrap();
            }
        }
        count += batch;
    }
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    jetstream.delete_stream(STREAM).await.unwrap();
    rate
}

/// Messages that go through in a second, over the engine.
async fn run(queue: &Arc<dyn Queue>, batch: usize, time: Duration) -> f64 {
    let name = QueueName::new("engine").unwrap();
    queue.declare(&name).await.unwrap();
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < time {
        pass(queue, &name, batch).await;
        count += batch;
    }
    count as f64 / begun.elapsed().as_secs_f64()
}

/// Brings a batch through the queue.
async fn pass(queue: &Arc<dyn Queue>, name: &QueueName, batch: usize) {
    queue.push(name, messages(batch)).await.unwrap();
    let mut left = batch;
    while left > 0 {
        let pulled = queue.pull(name, left, WAIT).await.unwrap();
        left -= pulled.len();
        queue.ack(name, pulled.into_iter().map(|message| message.receipt).collect()).await.unwrap();
    }
}

async fn round_trips(url: &str) {
    let proxy = Proxy::start(url.rsplit("//").next().unwrap()).await;
    let queue = open(&proxy.address().to_string()).await;
    let name = QueueName::new("trips").unwrap();
    queue.declare(&name).await.unwrap();
    for batch in [1, BATCH] {
        let before = proxy.round_trips();
        for _ in 0..20 {
            pass(&queue, &name, batch).await;
        }
        let trips = (proxy.round_trips() - before) as f64 / (20 * batch) as f64;
        println!("batches of {batch}: {trips:.3} round trips for each message");
    }
    queue.close().await.unwrap();
}
