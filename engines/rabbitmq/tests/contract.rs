//! The engine keeps the contract, against a real broker.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use flare_rabbitmq::{Options, QueueType};
use server::Server;

#[tokio::test(flavor = "multi_thread")]
async fn the_rabbitmq_engine_keeps_the_contract() {
    let Some(server) = Server::find() else { return };
    flare_contract::check_queue(|| server.open()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_keeps_the_contract_with_classic_queues() {
    let Some(server) = Server::find() else { return };
    let options = Options { queue_type: QueueType::Classic, ..server.options() };
    flare_contract::check_queue(|| async { flare_rabbitmq::open(&options).await.unwrap() }).await;
}
