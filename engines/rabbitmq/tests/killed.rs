//! The broker is killed, stopped, full, and changes its mind about who may use it. In a file of its own, because nobody
//! else can use the server meanwhile.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use flare_contract::{receipts, server::control, wait::until};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use flare_core::{
    ErrorKind,
    queue::{Queue, QueueName},
};
use flare_rabbitmq::Options;
use server::{
    Afterwards, Server, fresh_name,
    load::{pull_all, survive},
    rabbitmqctl,
};

/// RabbitMQ 3.10 writes down a new quorum queue seconds after it has confirmed it; one that is killed before has the
/// queue again and never answers for it.
const WRITTEN_DOWN: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_killed_and_stopped_under_load_loses_nothing() {
    let Some(server) = Server::find_ours() else { return };
    let (queue, name) = (server.open().await, fresh_name());
    queue.declare(&name).await.unwrap();
    tokio::time::sleep(WRITTEN_DOWN).await;
    let is_over = AtomicBool::new(false);
    let faults = async {
        for command in ["kill", "down", "kill"] {
            tokio::time::sleep(Duration::from_millis(700)).await;
            control(command, "rabbitmq").await;
            until("the engine that is down is named", || {
                queue.trouble().is_some_and(|trouble| trouble.contains(&server.host()))
            })
            .await;
            control("up", "rabbitmq").await;
            until("the engine is up again", || queue.trouble().is_none()).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(survive(&queue, &name, &is_over), faults);
    queue.remove(&name).await.unwrap();
    queue.close().await.unwrap();
}

async fn push(queue: &Arc<dyn Queue>, name: &QueueName) -> flare_core::Result<()> {
    queue.push(name, vec![Bytes::from_static(b"{}")]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_without_memory_blocks_pushing_and_nothing_else() {
    let Some(server) = Server::find_ours() else { return };
    let options = Options { timeout: Duration::from_secs(1), ..server.options() };
    let (queue, name) = (flare_rabbitmq::open(&options).await.unwrap(), fresh_name());
    queue.declare(&name).await.unwrap();
    push(&queue, &name).await.unwrap();
    let full = Afterwards(&["set_vm_memory_high_watermark", "absolute", "1GB"]);
    rabbitmqctl(&["set_vm_memory_high_watermark", "absolute", "10MB"]);
    let error = loop {
        // The broker blocks who pushes once it has noticed.
        match push(&queue, &name).await {
            Ok(()) => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(error) => break error,
        }
    };
    for _ in 0..2 {
        let error = push(&queue, &name).await.unwrap_err();
        assert_eq!(error.chain(), "RabbitMQ has blocked publishers: low on memory");
    }
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(error.chain(), "RabbitMQ has blocked publishers: low on memory");
    assert_eq!(queue.trouble().unwrap(), "RabbitMQ has blocked publishers: low on memory");
    let taken = pull_all(&queue, &name, 1).await;
    queue.ack(&name, receipts(&taken)).await.unwrap();
    let other = fresh_name();
    queue.declare(&other).await.unwrap();
    queue.remove(&other).await.unwrap();
    drop(full);
    until("the broker takes messages again", || queue.trouble().is_none()).await;
    push(&queue, &name).await.unwrap();
    queue.remove(&name).await.unwrap();
    queue.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_can_be_closed_while_the_broker_blocks_it() {
    let Some(server) = Server::find_ours() else { return };
    let options = Options { timeout: Duration::from_secs(1), ..server.options() };
    let (queue, straight, name) = (flare_rabbitmq::open(&options).await.unwrap(), server.open().await, fresh_name());
    queue.declare(&name).await.unwrap();
    let _full = Afterwards(&["set_vm_memory_high_watermark", "absolute", "1GB"]);
    rabbitmqctl(&["set_vm_memory_high_watermark", "absolute", "10MB"]);
    while push(&queue, &name).await.is_ok() {}
    queue.close().await.unwrap();
    assert_eq!(push(&queue, &name).await.unwrap_err().kind(), ErrorKind::Unavailable);
    straight.remove(&name).await.unwrap();
    straight.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_refuses_our_login_is_asked_until_it_does_not() {
    let Some(server) = Server::find_ours() else { return };
    rabbitmqctl(&["add_user", "flare-test", "first"]);
    let _no_more = Afterwards(&["delete_user", "flare-test"]);
    rabbitmqctl(&["set_permissions", "flare-test", ".*", ".*", ".*"]);
    let url = Some(server.url.replace("guest:guest", "flare-test:first"));
    let (queue, name) = (flare_rabbitmq::open(&Options { url, ..Options::default() }).await.unwrap(), fresh_name());
    queue.declare(&name).await.unwrap();
    rabbitmqctl(&["change_password", "flare-test", "second"]);
    rabbitmqctl(&["close_all_user_connections", "flare-test", "for a test"]);
    until("the refusal is named", || {
        queue.trouble().is_some_and(|trouble| trouble.contains("refuses the user flare-test"))
    })
    .await;
    assert_eq!(push(&queue, &name).await.unwrap_err().kind(), ErrorKind::Unavailable);
    rabbitmqctl(&["change_password", "flare-test", "first"]);
    until("it is let in again", || queue.trouble().is_none()).await;
    push(&queue, &name).await.unwrap();
    queue.remove(&name).await.unwrap();
    // What may not be done is no reason to try again.
    rabbitmqctl(&["set_permissions", "flare-test", "^$", ".*", ".*"]);
    until_refused(&queue).await;
    queue.close().await.unwrap();
}

/// The broker remembers for a moment what a connection was allowed.
async fn until_refused(queue: &Arc<dyn Queue>) {
    for _ in 0..100 {
        let name = fresh_name();
        match queue.declare(&name).await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain());
                assert!(error.chain().contains(name.as_str()), "{}", error.chain());
                return;
            }
        }
    }
    panic!("a user without permissions may make queues");
}
