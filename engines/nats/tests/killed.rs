//! The server is killed under load. In a file of its own, because nobody else can use the server meanwhile.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use std::time::Duration;

use flare_contract::{
    queue_load::survive,
    server::{are_ours, control},
};
use server::Lab;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_or_stopped_under_load_loses_nothing() {
    if !are_ours() {
        return;
    }
    let Some(lab) = Lab::open_with(|options| options.ack_wait = Duration::from_secs(2)).await else { return };
    let survived = survive(&lab.queue, &lab.straight, &lab.name, async {
        for command in ["kill", "down", "kill"] {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            control(command, "nats").await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert!(lab.straight.trouble().is_some_and(|trouble| trouble.contains(&lab.server.host())));
            control("up", "nats").await;
        }
        tokio::time::sleep(Duration::from_millis(1500)).await;
    })
    .await;
    println!("{survived:?}");
    assert!(survived.failures > 0, "the server was never away");
    lab.close().await;
}
