//! The server is killed under load. In a file of its own, because nobody else can use the server meanwhile.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use std::time::Duration;

use flare_contract::server::{are_ours, control};
use server::lab::{Lab, survive};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_under_load_loses_and_doubles_nothing() {
    if !are_ours() {
        return;
    }
    let Some(lab) = Lab::open("killed").await else { return };
    survive(&lab, async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(700)).await;
            control("kill", "postgres").await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            control("up", "postgres").await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    })
    .await;
    lab.close().await;
}
