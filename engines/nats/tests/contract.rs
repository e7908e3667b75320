//! The engine keeps the contract, against a real server; and what is only so with NATS.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use flare_contract::receipts;
use std::time::Duration;

use async_nats::jetstream::stream;
use bytes::Bytes;
use flare_core::{
    ErrorKind,
    queue::{Declared, QueueName},
};
use flare_nats::Options;
use futures_util::future::join_all;
use server::{Server, open};

const BRIEFLY: Duration = Duration::from_millis(300);

fn text(text: &'static str) -> Vec<Bytes> {
    vec![Bytes::from_static(text.as_bytes())]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nats_engine_keeps_the_contract() {
    let Some(server) = Server::find() else { return };
    flare_contract::check_queue(|| server.open()).await;
    server.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_named_without_the_password() {
    let options = Options {
        addrs: vec!["nats://me:secret@127.0.0.1:1".into()],
        timeout: Duration::from_secs(1),
        ..Options::default()
    };
    let error = flare_nats::open(&options).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.chain();
    assert!(text.contains("127.0.0.1:1") && text.contains("refused") && !text.contains("secret"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_is_a_work_queue_with_limits() {
    let Some(server) = Server::find() else { return };
    open(&Options { max_age: Duration::from_secs(3600), max_bytes: 1 << 20, ..server.options() }).await;
    let config = server.jetstream().await.get_stream(&server.stream).await.unwrap().cached_info().config.clone();
    assert_eq!(config.retention, stream::RetentionPolicy::WorkQueue);
    assert_eq!(config.storage, stream::StorageType::File);
    assert_eq!(config.discard, stream::DiscardPolicy::New);
    assert_eq!((config.max_age, config.max_bytes), (Duration::from_secs(3600), 1 << 20));
    assert!(config.max_message_size > 0);
    server.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_for_which_the_server_has_no_room_says_what_to_do() {
    let Some(server) = Server::find() else { return };
    let error = flare_nats::open(&Options { max_bytes: 1 << 60, ..server.options() }).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.chain().contains("stream-max"), "{}", error.chain());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_stream_refuses_and_loses_nothing() {
    let Some(server) = Server::find() else { return };
    let queue = open(&Options { max_bytes: 4096, ..server.options() }).await;
    let name = QueueName::new("full").unwrap();
    queue.declare(&name).await.unwrap();
    let mut pushed = 0;
    let error = loop {
        match queue.push(&name, vec![Bytes::from(vec![b'a'; 500])]).await {
            Ok(()) => pushed += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.chain().contains("maximum bytes exceeded"), "{}", error.chain());
    assert_eq!(queue.trouble(), Some(error.chain()));
    let messages = queue.pull(&name, 100, BRIEFLY).await.unwrap();
    assert!(pushed > 1 && messages.len() == pushed, "{} of {pushed}", messages.len());
    queue.ack(&name, receipts(&messages)).await.unwrap();
    queue.push(&name, text("there is room again")).await.unwrap();
    assert_eq!(queue.trouble(), None);
    server.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_consumers_of_others_are_left_alone() {
    let Some(server) = Server::find() else { return };
    let jetstream = server.jetstream().await;
    let config = stream::Config {
        name: server.stream.clone(),
        subjects: vec![format!("{}.*", server.stream)],
        ..stream::Config::default()
    };
    jetstream.create_stream(config).await.unwrap();
    let error = flare_nats::open(&server.options()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.chain().contains("is no work queue"), "{}", error.chain());
    server.clean_up().await;

    let queue = server.open().await;
    let name = QueueName::new("theirs").unwrap();
    let theirs = async_nats::jetstream::consumer::pull::Config {
        durable_name: Some("theirs".into()),
        filter_subject: format!("{}.other", server.stream),
        ..Default::default()
    };
    let stream = jetstream.get_stream(&server.stream).await.unwrap();
    stream.create_consumer(theirs).await.unwrap();
    let error = queue.declare(&name).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain());
    server.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_have_changed_reach_a_queue_that_is_there() {
    let Some(server) = Server::find() else { return };
    let name = QueueName::new("adjusted").unwrap();
    server.open().await.declare(&name).await.unwrap();
    let changed = Options { ack_wait: Duration::from_secs(7), taken_max: 3, ..server.options() };
    let queue = open(&changed).await;
    assert_eq!(queue.limits().taken_max, 3);
    assert_eq!(queue.declare(&name).await.unwrap(), Declared::There);
    queue.push(&name, vec![Bytes::from_static(b"a"); 5]).await.unwrap();
    let taken = queue.pull(&name, 5, Duration::from_secs(20)).await.unwrap();
    assert_eq!(taken.len(), 3, "no more than that may be taken");
    assert_eq!(queue.pull(&name, 5, BRIEFLY).await.unwrap(), []);
    queue.ack(&name, receipts(&taken)).await.unwrap();
    assert_eq!(queue.pull(&name, 5, Duration::from_secs(20)).await.unwrap().len(), 2);
    server.clean_up().await;
}

/// A node that does not know yet that a queue was removed pushes into nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_pushed_into_a_removed_queue_is_not_in_one_made_later() {
    let Some(server) = Server::find() else { return };
    let (one, two) = (server.open().await, server.open().await);
    let name = QueueName::new("removed").unwrap();
    one.declare(&name).await.unwrap();
    two.push(&name, text("before")).await.unwrap();
    one.remove(&name).await.unwrap();
    two.push(&name, text("after")).await.unwrap();
    assert_eq!(one.declare(&name).await.unwrap(), Declared::Made);
    assert_eq!(server.messages().await, 0);
    assert_eq!(one.pull(&name, 1, BRIEFLY).await.unwrap(), []);
    two.push(&name, text("now")).await.unwrap();
    assert_eq!(one.pull(&name, 5, Duration::from_secs(20)).await.unwrap()[0].body, "now");
    server.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_finds_a_queue_removed_removes_what_he_has_pushed_since() {
    let Some(server) = Server::find() else { return };
    let (one, two) = (server.open().await, server.open().await);
    let name = QueueName::new("removed").unwrap();
    one.declare(&name).await.unwrap();
    two.push(&name, text("before")).await.unwrap();
    one.remove(&name).await.unwrap();
    two.push(&name, text("after")).await.unwrap();
    assert_eq!(server.messages().await, 1);
    assert_eq!(two.pull(&name, 1, BRIEFLY).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(two.push(&name, text("later")).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(server.messages().await, 0);
    server.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_queues_share_a_connection() {
    const QUEUES: usize = 300;
    let Some(server) = Server::find() else { return };
    let (one, two) = (server.open().await, server.open().await);
    let names: Vec<_> = (0..QUEUES).map(|number| QueueName::new(format!("many-{number}")).unwrap()).collect();
    for some in names.chunks(50) {
        join_all(some.iter().map(|name| one.declare(name))).await.into_iter().for_each(|made| {
            assert_eq!(made.unwrap(), Declared::Made);
        });
    }
    let (pulled, ()) =
        tokio::join!(join_all(names.iter().map(|name| one.pull(name, 10, Duration::from_secs(60)))), async {
            for name in &names {
                two.push(name, vec![Bytes::from(name.as_str().to_owned())]).await.unwrap();
            }
        });
    for (name, messages) in names.iter().zip(pulled) {
        let messages = messages.unwrap();
        assert!(messages.len() == 1 && messages[0].body == name.as_str());
    }
    server.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_long_is_refused_before_it_is_sent() {
    let Some(server) = Server::find() else { return };
    let queue = server.open().await;
    let name = QueueName::new("long").unwrap();
    queue.declare(&name).await.unwrap();
    let long = Bytes::from(vec![b'a'; queue.limits().message_bytes_max + 1]);
    let error = queue.push(&name, vec![Bytes::from_static(b"short"), long]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain());
    assert_eq!(queue.depth(&name).await.unwrap().ready, 0);
    server.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_gone_takes_its_queues_along() {
    let Some(server) = Server::find() else { return };
    let queue = server.open().await;
    let name = QueueName::new("orphan").unwrap();
    queue.declare(&name).await.unwrap();
    server.clean_up().await;
    let error = queue.push(&name, text("lost")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{}", error.chain());
    let error = queue.pull(&name, 1, BRIEFLY).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{}", error.chain());
    assert_eq!(queue.declare(&name).await.unwrap(), Declared::Made);
    queue.push(&name, text("found")).await.unwrap();
    server.clean_up().await;
}
