//! The suites that every engine passes, on a replica set and on a single server.

#![allow(clippy::unwrap_used, reason = "a test")]

mod server;

use std::sync::atomic::{AtomicUsize, Ordering};

use flare_core::ErrorKind;
use mongodb::bson::doc;

use server::{REPLICA_SET, STANDALONE, Scratch};

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

#[tokio::test(flavor = "multi_thread")]
async fn the_layout_is_made_once_and_a_newer_one_is_refused() {
    let Some(url) = server::url(STANDALONE) else { return };
    let scratch = Scratch::new(&url);
    let options = scratch.options(0);
    let schema = flare_mongodb::schema(&options).await.unwrap();
    assert!(schema.status().await.unwrap().iter().all(|step| step.applied_at.is_none()));
    assert_eq!(schema.up().await.unwrap().len(), schema.status().await.unwrap().len());
    assert!(schema.status().await.unwrap().iter().all(|step| step.applied_at.is_some()));
    assert!(schema.up().await.unwrap().is_empty());

    let client = mongodb::Client::with_uri_str(&url).await.unwrap();
    let migrations = client.database(options.database.as_deref().unwrap()).collection("migrations");
    migrations.insert_one(doc! { "_id": 99i64, "name": "of tomorrow" }).await.unwrap();
    let refused = flare_mongodb::open(&options).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("99"), "{refused}");
    scratch.drop().await;
}

/// A password is in no message and in no dump of the options.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_does_not_answer_is_named_without_its_password() {
    let options = flare_mongodb::Options {
        url: Some("mongodb://flare:hush@127.0.0.1:1/?directConnection=true".into()),
        timeout: std::time::Duration::from_millis(300),
        ..flare_mongodb::Options::default()
    };
    let error = flare_mongodb::open(&options).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.chain().contains("127.0.0.1:1"), "{}", error.chain());
    assert!(!format!("{error:?} {options:?}").contains("hush"));
}
