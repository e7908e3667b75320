//! The suites that every engine passes, on a replica set and on a single server.

#![allow(clippy::unwrap_used, reason = "a test")]

mod server;

use std::sync::atomic::{AtomicUsize, Ordering};

use server::Scratch;

const REPLICA_SET: &str = "FLARE_TEST_MONGODB_URL";
const STANDALONE: &str = "FLARE_TEST_MONGODB_STANDALONE_URL";

async fn check_store(variable: &str) {
    let Some(url) = server::url(variable) else { return };
    let scratch = Scratch::new(&url);
    let opened = AtomicUsize::new(0);
    flare_contract::check_store(|| async {
        let number = opened.fetch_add(1, Ordering::Relaxed);
        flare_mongodb::open(&scratch.options(number)).await.unwrap()
    })
    .await;
    scratch.drop().await;
}

async fn check_reopening(variable: &str) {
    let Some(url) = server::url(variable) else { return };
    let scratch = Scratch::new(&url);
    flare_contract::check_reopening(|number| {
        let options = scratch.options(number);
        async move { flare_mongodb::open(&options).await.unwrap() }
    })
    .await;
    scratch.drop().await;
}

async fn check_sharing(variable: &str) {
    let Some(url) = server::url(variable) else { return };
    let scratch = Scratch::new(&url);
    flare_contract::check_sharing(|number| {
        let options = scratch.options(number);
        async move { flare_mongodb::open(&options).await.unwrap() }
    })
    .await;
    scratch.drop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_set_keeps_the_contract_of_a_store() {
    check_store(REPLICA_SET).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_set_is_reopened() {
    check_reopening(REPLICA_SET).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_set_is_shared() {
    check_sharing(REPLICA_SET).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_server_keeps_the_contract_of_a_store() {
    check_store(STANDALONE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_server_is_reopened() {
    check_reopening(STANDALONE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_server_is_shared() {
    check_sharing(STANDALONE).await;
}
