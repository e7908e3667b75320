//! Several nodes and many queues on one broker.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use flare_contract::receipts;
use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use flare_core::{ErrorKind, queue::Declared};
use flare_rabbitmq::{Options, QueueType};
use futures_util::future::join_all;
use server::{Server, fresh_name, load::pull_all};

const SOON: Duration = Duration::from_secs(20);

fn texts(range: std::ops::Range<usize>) -> Vec<Bytes> {
    range.map(|number| Bytes::from(format!("{{\"message\": {number}}}"))).collect()
}

/// The first node has them all in its buffer, and stays open.
#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_pulls_any_more_goes_to_others() {
    let Some(server) = Server::find() else { return };
    let (one, two, name) = (server.open().await, server.open().await, fresh_name());
    one.declare(&name).await.unwrap();
    one.push(&name, texts(0..10)).await.unwrap();
    let taken = pull_all(&one, &name, 1).await;
    let others = pull_all(&two, &name, 9).await;
    let bodies: BTreeSet<_> = taken.iter().chain(&others).map(|message| message.body.clone()).collect();
    assert_eq!(bodies, texts(0..10).into_iter().collect());
    // What was pulled is still the first node's.
    one.ack(&name, receipts(&taken)).await.unwrap();
    two.nack(&name, receipts(&others)).await.unwrap();
    assert_eq!(pull_all(&one, &name, 9).await.len(), 9);
    one.remove(&name).await.unwrap();
    one.close().await.unwrap();
    two.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_had_that_is_gone_without_a_word_comes_to_others() {
    let Some(server) = Server::find() else { return };
    let (one, two, name) = (server.open().await, server.open().await, fresh_name());
    one.declare(&name).await.unwrap();
    one.push(&name, texts(0..10)).await.unwrap();
    assert_eq!(pull_all(&one, &name, 2).await.len(), 2);
    drop(one);
    assert_eq!(pull_all(&two, &name, 10).await.len(), 10);
    two.remove(&name).await.unwrap();
    two.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_has_no_more_than_the_prefetch() {
    let Some(server) = Server::find() else { return };
    let options = Options { prefetch: 5, ..server.options() };
    let (one, two, name) = (flare_rabbitmq::open(&options).await.unwrap(), server.open().await, fresh_name());
    assert_eq!(one.limits().taken_max, 5);
    one.declare(&name).await.unwrap();
    one.push(&name, texts(0..12)).await.unwrap();
    let taken = pull_all(&one, &name, 5).await;
    assert_eq!(one.pull(&name, 5, Duration::from_millis(300)).await.unwrap(), []);
    assert_eq!(pull_all(&two, &name, 7).await.len(), 7);
    one.ack(&name, receipts(&taken[..2])).await.unwrap();
    one.push(&name, texts(12..14)).await.unwrap();
    assert_eq!(pull_all(&one, &name, 2).await.len(), 2);
    one.remove(&name).await.unwrap();
    one.close().await.unwrap();
    two.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_queues_share_few_channels() {
    const QUEUES: usize = 300;
    let Some(server) = Server::find() else { return };
    let url = Some(format!("{}?channel_max=40", server.url));
    // They are made faster.
    let options = Options { url, queue_type: QueueType::Classic, timeout: SOON, ..Options::default() };
    let queue = flare_rabbitmq::open(&options).await.unwrap();
    let names: Vec<_> = (0..QUEUES).map(|_| fresh_name()).collect();
    for made in join_all(names.iter().map(|name| queue.declare(name))).await {
        assert_eq!(made.unwrap(), Declared::Made);
    }
    let pulling = join_all(names.iter().map(|name| queue.pull(name, 10, SOON)));
    let pushing = join_all(names.iter().enumerate().map(|(number, name)| queue.push(name, texts(number..number + 1))));
    let (pulled, pushed) = tokio::join!(pulling, pushing);
    pushed.into_iter().for_each(|pushed| pushed.unwrap());
    for (number, messages) in pulled.into_iter().enumerate() {
        let messages = messages.unwrap();
        assert_eq!(messages.iter().map(|message| message.body.clone()).collect::<Vec<_>>(), texts(number..number + 1));
        queue.ack(&names[number], receipts(&messages)).await.unwrap();
    }
    assert_eq!(queue.trouble(), None);
    join_all(names.iter().map(|name| queue.remove(name))).await.into_iter().for_each(|removed| removed.unwrap());
    queue.close().await.unwrap();
}

/// Messages that come back are handed to any caller by the driver.
#[tokio::test(flavor = "multi_thread")]
async fn only_those_who_push_to_a_missing_queue_are_told_so() {
    let Some(server) = Server::find() else { return };
    let (queue, there) = (server.open().await, fresh_name());
    queue.declare(&there).await.unwrap();
    for _ in 0..5 {
        let missing: Vec<_> = (0..100).map(|_| fresh_name()).collect();
        let good = join_all((0..20).map(|_| queue.push(&there, texts(0..3))));
        let bad = join_all(missing.iter().map(|name| queue.push(name, texts(0..1))));
        let (good, bad) = tokio::join!(good, bad);
        good.into_iter().for_each(|pushed| pushed.unwrap());
        for refused in bad {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
        }
    }
    assert_eq!(queue.depth(&there).await.unwrap().ready, 300);
    queue.remove(&there).await.unwrap();
    queue.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_of_another_type_does_not_fit() {
    let Some(server) = Server::find() else { return };
    let classic = Options { queue_type: QueueType::Classic, ..server.options() };
    let (classic, quorum, name) = (flare_rabbitmq::open(&classic).await.unwrap(), server.open().await, fresh_name());
    classic.declare(&name).await.unwrap();
    let refused = quorum.declare(&name).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.chain().contains("x-queue-type") && refused.chain().contains(name.as_str()), "{}", refused.chain());
    // The channel that this has closed is replaced.
    assert_eq!(quorum.depth(&name).await.unwrap().ready, 0);
    quorum.remove(&name).await.unwrap();
    classic.close().await.unwrap();
    quorum.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_long_is_refused_and_harms_nobody() {
    let Some(server) = Server::find() else { return };
    let (queue, name) = (server.open().await, fresh_name());
    queue.declare(&name).await.unwrap();
    let long = vec![b'a'; queue.limits().message_bytes_max + 1];
    assert_eq!(queue.push(&name, vec![long.into()]).await.unwrap_err().kind(), ErrorKind::Invalid);
    queue.push(&name, texts(0..2000)).await.unwrap();
    assert_eq!(queue.depth(&name).await.unwrap().ready, 2000);
    queue.remove(&name).await.unwrap();
    queue.close().await.unwrap();
}
