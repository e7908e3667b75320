//! The emulator is stopped under load. It keeps what it has only if it is stopped in peace: a kill empties it, which
//! the real service never does. In a file of its own, because nobody else can use it meanwhile.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use std::time::Duration;

use bytes::Bytes;
use flare_contract::{
    queue_load::survive,
    server::{are_ours, control},
};
use flare_core::{ErrorKind, queue::Declared};
use server::Lab;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_service_stopped_under_load_loses_nothing() {
    if !are_ours() {
        return;
    }
    let Some(lab) = Lab::open_with(|options| options.visibility = Duration::from_secs(3)).await else { return };
    let survived = survive(&lab.queue, &lab.straight, &lab.name, async {
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            control("down", "sqs").await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            control("up", "sqs").await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    })
    .await;
    println!("{survived:?}");
    assert!(survived.failures > 0, "the service was never away");
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_stop_and_after_a_kill_it_goes_on_without_a_restart() {
    if !are_ours() {
        return;
    }
    let Some(lab) = Lab::open_with(|options| options.visibility = Duration::from_secs(3)).await else { return };
    lab.queue.push(&lab.name, vec![Bytes::from_static(b"kept")]).await.unwrap();
    control("down", "sqs").await;
    let error = lab.queue.push(&lab.name, vec![Bytes::from_static(b"refused")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    assert_eq!(lab.queue.trouble(), Some(error.chain()));
    control("up", "sqs").await;
    assert_eq!(lab.queue.pull(&lab.name, 1, SOON).await.unwrap()[0].body, "kept");
    assert_eq!(lab.queue.trouble(), None);

    control("kill", "sqs").await;
    assert_eq!(lab.queue.pull(&lab.name, 1, SOON).await.unwrap_err().kind(), ErrorKind::Unavailable);
    control("up", "sqs").await;
    let error = lab.queue.push(&lab.name, vec![Bytes::from_static(b"nowhere")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "the emulator has lost the queue: {}", error.chain());
    assert_eq!(lab.queue.declare(&lab.name).await.unwrap(), Declared::Made);
    lab.queue.push(&lab.name, vec![Bytes::from_static(b"again")]).await.unwrap();
    assert_eq!(lab.straight.pull(&lab.name, 1, SOON).await.unwrap()[0].body, "again");
    lab.close().await;
}
