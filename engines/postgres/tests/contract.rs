//! The engine keeps the contract, against a real server.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use flare_core::ErrorKind;
use flare_postgres::Options;
use server::Server;

#[tokio::test(flavor = "multi_thread")]
async fn the_postgres_engine_keeps_the_contract() {
    let Some(server) = Server::find() else { return };
    let opened = std::sync::atomic::AtomicUsize::new(0);
    flare_contract::check_store(|| async {
        let number = opened.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        server.open(&format!("store{number}")).await
    })
    .await;
    server.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_was_given_is_there_when_it_is_opened_again() {
    let Some(server) = Server::find() else { return };
    flare_contract::check_reopening(|data| {
        let server = &server;
        async move { server.open(&format!("again{data}")).await }
    })
    .await;
    server.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_nodes_share_the_data() {
    let Some(server) = Server::find() else { return };
    flare_contract::check_sharing(|data| {
        let server = &server;
        async move { server.open(&format!("shared{data}")).await }
    })
    .await;
    server.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_named_without_the_password() {
    let options = Options {
        url: Some("postgres://me:secret@127.0.0.1:1/flare".into()),
        timeout: std::time::Duration::from_secs(1),
        ..Options::default()
    };
    let error = flare_postgres::open(&options).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.chain();
    assert!(text.contains("127.0.0.1:1/flare") && text.contains("refused") && !text.contains("secret"), "{text}");
}
