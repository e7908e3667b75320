//! The server is killed under load. In a file of its own, because nobody else can use the server meanwhile.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use std::time::Duration;

use server::lab::{Lab, survive};

/// Only with a server that was started by `dev/servers`: FLARE_TEST_SERVERS=1.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_under_load_loses_and_doubles_nothing() {
    if std::env::var("FLARE_TEST_SERVERS").as_deref() != Ok("1") {
        println!("skipped: FLARE_TEST_SERVERS is not 1, so the server is not ours to kill");
        return;
    }
    let Some(lab) = Lab::open("killed").await else { return };
    survive(&lab, async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(700)).await;
            server::control("kill").await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            server::control("up").await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    })
    .await;
    lab.close().await;
}
