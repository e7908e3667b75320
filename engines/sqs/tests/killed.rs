//! The emulator is stopped under load. It keeps what it has only if it is stopped in peace: a kill empties it, which
//! the real service never does. In a file of its own, because nobody else can use it meanwhile.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use std::time::Duration;

use bytes::Bytes;
use flare_contract::queue_load::survive;
use flare_core::{ErrorKind, queue::Declared};
use server::{Lab, control};

const SOON: Duration = Duration::from_secs(20);

/// Only a server that was started by `dev/servers` is: FLARE_TEST_SERVERS=1.
fn is_ours() -> bool {
    let is_ours = std::env::var("FLARE_TEST_SERVERS").as_deref() == Ok("1");
    if !is_ours {
        println!("skipped: FLARE_TEST_SERVERS is not 1, so the server is not ours to kill");
    }
    is_ours
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_stopped_under_load_loses_nothing() {
    if !is_ours() {
        return;
    }
    let Some(lab) = Lab::open_with(|options| options.visibility = Duration::from_secs(3)).await else { return };
    let survived = survive(&lab.queue, &lab.straight, &lab.name, async {
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            control("down").await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            control("up").await;
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
    if !is_ours() {
        return;
    }
    let Some(lab) = Lab::open_with(|options| options.visibility = Duration::from_secs(3)).await else { return };
    lab.queue.push(&lab.name, vec![Bytes::from_static(b"kept")]).await.unwrap();
    control("down").await;
    let error = lab.queue.push(&lab.name, vec![Bytes::from_static(b"refused")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    assert_eq!(lab.queue.trouble(), Some(error.chain()));
    control("up").await;
    assert_eq!(lab.queue.pull(&lab.name, 1, SOON).await.unwrap()[0].body, "kept");
    assert_eq!(lab.queue.trouble(), None);

    control("kill").await;
    assert_eq!(lab.queue.pull(&lab.name, 1, SOON).await.unwrap_err().kind(), ErrorKind::Unavailable);
    control("up").await;
    let error = lab.queue.push(&lab.name, vec![Bytes::from_static(b"nowhere")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "the emulator has lost the queue: {}", error.chain());
    assert_eq!(lab.queue.declare(&lab.name).await.unwrap(), Declared::Made);
    lab.queue.push(&lab.name, vec![Bytes::from_static(b"again")]).await.unwrap();
    assert_eq!(lab.straight.pull(&lab.name, 1, SOON).await.unwrap()[0].body, "again");
    lab.close().await;
}
