//! A broker that takes connections and says nothing. In a file of its own, because it counts threads of the process.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use flare_contract::wait::until;
use std::time::Duration;

use flare_core::ErrorKind;
use flare_rabbitmq::Options;
use tokio::net::TcpListener;

/// The threads that the driver has, one for each connection.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("lapin")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_says_nothing_is_left_without_a_trace() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Some(format!("amqp://guest:guest@{}", listener.local_addr().unwrap()));
    let error = flare_rabbitmq::open(&Options { url, timeout: Duration::from_millis(300), ..Options::default() }).await;
    let error = error.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.chain().contains("does not answer"), "{}", error.chain());
    until("all threads are gone", || threads() == 0).await;
}
