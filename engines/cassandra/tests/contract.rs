//! The Cassandra engine keeps the contract, on a real server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::Keyspaces;
use flare_core::{ErrorKind, port::Store};
use futures_util::future::join_all;

/// Creating a table takes Cassandra a good while, so that the cases share a keyspace, which is emptied in between.
#[tokio::test(flavor = "multi_thread")]
async fn the_cassandra_engine_keeps_the_contract() {
    let Some(server) = common::server() else { return };
    let keyspaces = Keyspaces::new(&server).await;
    flare_contract::check_store(|| open_emptied(&keyspaces)).await;
    keyspaces.drop_all(0..1).await;
}

const TABLES: [&str; 12] = [
    "log",
    "changes",
    "heads",
    "feed",
    "entities",
    "state",
    "agreed",
    "standings",
    "versions",
    "retries",
    "dead_letters",
    "attempts",
];

async fn open_emptied(keyspaces: &Keyspaces) -> Store {
    let schema = flare_cassandra::schema(&keyspaces.options(0)).await.unwrap();
    schema.up().await.unwrap();
    let empty = TABLES.map(|table| format!("TRUNCATE {}.{table}", keyspaces.name(0)));
    join_all(empty.iter().map(|text| keyspaces.define(text))).await;
    flare_cassandra::open(&keyspaces.options(0)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_was_given_is_there_when_it_is_opened_again() {
    let Some(server) = common::server() else { return };
    let keyspaces = Keyspaces::new(&server).await;
    flare_contract::check_reopening(|data| {
        let options = keyspaces.options(data);
        async move { flare_cassandra::open(&options).await.unwrap() }
    })
    .await;
    keyspaces.drop_all(0..2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_it() {
    let Some(server) = common::server() else { return };
    let keyspaces = Keyspaces::new(&server).await;
    flare_contract::check_sharing(|data| {
        let options = keyspaces.options(data);
        async move { flare_cassandra::open(&options).await.unwrap() }
    })
    .await;
    keyspaces.drop_all(0..6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_a_newer_version_is_refused() {
    let Some(server) = common::server() else { return };
    let keyspaces = Keyspaces::new(&server).await;
    let schema = flare_cassandra::schema(&keyspaces.options(0)).await.unwrap();
    assert!(schema.status().await.unwrap().iter().all(|step| step.applied_at.is_none()));
    let taken = schema.up().await.unwrap();
    assert!(!taken.is_empty());
    assert!(schema.up().await.unwrap().is_empty());
    assert!(schema.status().await.unwrap().iter().all(|step| step.applied_at.is_some()));
    let newer = format!("INSERT INTO {}.migrations (number, name) VALUES (99, 'later')", keyspaces.name(0));
    keyspaces.define(&newer).await;
    let error = flare_cassandra::open(&keyspaces.options(0)).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("99"), "{error}");
    keyspaces.drop_all(0..1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_named() {
    let options = flare_cassandra::Options {
        hosts: vec!["127.0.0.1:1".into()],
        username: Some("flare".into()),
        password: Some("hidden".into()),
        ..Default::default()
    };
    let error = flare_cassandra::open(&options).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.chain().contains("127.0.0.1:1") && !error.chain().contains("hidden"), "{}", error.chain());
}
