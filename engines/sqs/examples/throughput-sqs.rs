//! What the engine costs over its driver: the same messages in the same batches, with and without the engine.
//!
//! `FLARE_TEST_SQS_URL=… cargo run --release -p flare-sqs --example throughput-sqs [SECONDS]`
//!
//! - *driver*: a loop that sends ten messages with one call, receives them and deletes them; and as many such loops at
//!   the same time as the engine makes calls at the same time.
//! - *engine*: `push`, `pull` and `ack` of batches.
//!
//! Then calls for each message, counted on the wire. An emulator is far slower than either: look at the ratio.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement, not a server")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use aws_sdk_sqs::{
    Client,
    config::{Credentials, Region},
    types::{DeleteMessageBatchRequestEntry, SendMessageBatchRequestEntry},
};
use bytes::Bytes;
use flare_contract::proxy::Proxy;
use flare_core::queue::{Queue, QueueName};
use flare_sqs::Options;
use futures_util::future::join_all;

const ENTRIES: usize = 10;
const MESSAGE_BYTES: usize = 150;
const WAIT: Duration = Duration::from_secs(20);
const QUEUE: &str = "flare-throughput";

#[tokio::main]
async fn main() {
    let seconds = std::env::args().nth(1).map_or(5, |seconds| seconds.parse().expect("SECONDS is a number"));
    let url = std::env::var("FLARE_TEST_SQS_URL").expect("FLARE_TEST_SQS_URL names a service");
    let time = Duration::from_secs(seconds);
    let name = QueueName::new(QUEUE).unwrap();
    let queue = open(&url).await;
    println!("{:<8} {:>8} {:>12} {:>14}", "what", "batch", "messages/s", "of the driver");
    for (batch, loops) in [(ENTRIES, 1), (250, 4)] {
        queue.declare(&name).await.unwrap();
        let driver = drive(&url, loops, time).await;
        println!("{:<8} {batch:>8} {driver:>12.0}", "driver");
        let engine = run(&queue, &name, batch, time).await;
        println!("{:<8} {batch:>8} {engine:>12.0} {:>14.2}", "engine", engine / driver);
        queue.remove(&name).await.unwrap();
    }
    queue.declare(&name).await.unwrap();
    round_trips(&url, &name).await;
    queue.remove(&name).await.unwrap();
}

async fn open(url: &str) -> Arc<dyn Queue> {
    let options = Options {
        region: Some("eu-central-1".into()),
        key: Some("test".into()),
        secret: Some("test".into()),
        endpoint: Some(url.into()),
        ..Options::default()
    };
    flare_sqs::open(&options).await.unwrap()
}

/// Messages that go through in a second, over the driver.
async fn drive(url: &str, loops: usize, time: Duration) -> f64 {
    let http = aws_smithy_http_client::Builder::new().build_http();
    let config = aws_sdk_sqs::Config::builder()
        .http_client(http)
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .endpoint_url(url);
    let client = Client::from_conf(config.build());
    let queue_url = client.get_queue_url().queue_name(QUEUE).send().await.unwrap().queue_url.unwrap();
    let begun = Instant::now();
    let counts = join_all((0..loops).map(|_| drive_loop(&client, &queue_url, begun, time))).await;
    counts.into_iter().sum::<usize>() as f64 / begun.elapsed().as_secs_f64()
}

async fn drive_loop(client: &Client, url: &str, begun: Instant, time: Duration) -> usize {
    let mut count = 0;
    while begun.elapsed() < time {
        let mut sending = client.send_message_batch().queue_url(url);
        for number in 0..ENTRIES {
            let entry = SendMessageBatchRequestEntry::builder().id(number.to_string());
            sending = sending.entries(entry.message_body("a".repeat(MESSAGE_BYTES)).build().unwrap());
        }
        sending.send().await.unwrap();
        let mut left = ENTRIES;
        while left > 0 {
            let receiving = client.receive_message().queue_url(url).max_number_of_messages(left as i32);
            let messages = receiving.wait_time_seconds(1).send().await.unwrap().messages.unwrap_or_default();
            // Other loops may have taken ours; then the rest is theirs.
            if messages.is_empty() {
                break;
            }
            let mut deleting = client.delete_message_batch().queue_url(url);
            for (number, message) in messages.iter().enumerate() {
                let entry = DeleteMessageBatchRequestEntry::builder().id(number.to_string());
                let receipt = message.receipt_handle.as_deref().unwrap();
                deleting = deleting.entries(entry.receipt_handle(receipt).build().unwrap());
            }
            deleting.send().await.unwrap();
            left -= messages.len();
            count += messages.len();
        }
    }
    count
}

/// Messages that go through in a second, over the engine.
async fn run(queue: &Arc<dyn Queue>, name: &QueueName, batch: usize, time: Duration) -> f64 {
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < time {
        pass(queue, name, batch).await;
        count += batch;
    }
    count as f64 / begun.elapsed().as_secs_f64()
}

/// Brings a batch through the queue.
async fn pass(queue: &Arc<dyn Queue>, name: &QueueName, batch: usize) {
    queue.push(name, vec![Bytes::from(vec![b'a'; MESSAGE_BYTES]); batch]).await.unwrap();
    let mut left = batch;
    while left > 0 {
        let pulled = queue.pull(name, left, WAIT).await.unwrap();
        left -= pulled.len();
        queue.ack(name, pulled.into_iter().map(|message| message.receipt).collect()).await.unwrap();
    }
}

async fn round_trips(url: &str, name: &QueueName) {
    let proxy = Proxy::start(url.rsplit("//").next().unwrap()).await;
    let queue = open(&format!("http://{}", proxy.address())).await;
    queue.declare(name).await.unwrap();
    for batch in [1, 250] {
        let before = proxy.round_trips();
        for _ in 0..5 {
            pass(&queue, name, batch).await;
        }
        let trips = (proxy.round_trips() - before) as f64 / (5 * batch) as f64;
        println!("batches of {batch}: {trips:.3} calls for each message");
    }
    queue.close().await.unwrap();
}
