//! The engine keeps the contract, against the emulator; and what is only so with SQS.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use flare_contract::receipts;
use std::{collections::HashMap, time::Duration};

use aws_sdk_sqs::types::QueueAttributeName as Name;
use bytes::Bytes;
use flare_core::{
    ErrorKind,
    queue::{Declared, QueueName},
};
use flare_sqs::Options;
use server::{Server, fresh_name, open};

const SOON: Duration = Duration::from_secs(20);

fn texts(count: usize) -> Vec<Bytes> {
    (0..count).map(|number| Bytes::from(format!("message {number}"))).collect()
}

async fn attributes(server: &Server, queue: &QueueName) -> HashMap<Name, String> {
    let client = server.client();
    let url = client.get_queue_url().queue_name(queue.as_str()).send().await.unwrap().queue_url.unwrap();
    let asked = client.get_queue_attributes().queue_url(url).attribute_names(Name::All).send().await.unwrap();
    asked.attributes.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sqs_engine_keeps_the_contract() {
    let Some(server) = Server::find() else { return };
    flare_contract::check_queue(|| server.open()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_not_there_is_named_without_the_secret() {
    let options = Options {
        region: Some("eu-central-1".into()),
        key: Some("akid".into()),
        secret: Some("hush".into()),
        endpoint: Some("http://127.0.0.1:1".into()),
        timeout: Duration::from_secs(1),
        ..Options::default()
    };
    let queue = open(&options).await;
    let error = queue.declare(&fresh_name()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.chain();
    assert!(text.contains("127.0.0.1:1") && text.contains("refused") && !text.contains("hush"), "{text}");
    assert!(queue.trouble().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_made_with_settings_that_fit() {
    let Some(server) = Server::find() else { return };
    let queue = open(&Options { visibility: Duration::from_secs(45), ..server.options() }).await;
    let name = fresh_name();
    assert_eq!(queue.declare(&name).await.unwrap(), Declared::Made);
    let attributes = attributes(&server, &name).await;
    assert_eq!(attributes[&Name::VisibilityTimeout], "45");
    assert_eq!(attributes[&Name::MessageRetentionPeriod], "1209600");
    assert_eq!(attributes[&Name::ReceiveMessageWaitTimeSeconds], "20");
    assert_eq!(attributes.get(&Name::RedrivePolicy), None);
    queue.remove(&name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_given_back_too_often_goes_to_the_dead_letters() {
    let Some(server) = Server::find() else { return };
    let (name, dead) = (fresh_name(), fresh_name());
    let dead_letter = Some(dead.as_str().into());
    let queue = open(&Options { dead_letter, receives_before_dead: 2, ..server.options() }).await;
    queue.declare(&name).await.unwrap();
    queue.push(&name, texts(1)).await.unwrap();
    for _ in 0..2 {
        let taken = queue.pull(&name, 1, SOON).await.unwrap();
        queue.nack(&name, receipts(&taken)).await.unwrap();
    }
    assert_eq!(queue.pull(&name, 1, Duration::from_millis(100)).await.unwrap(), []);
    assert_eq!(queue.pull(&dead, 1, SOON).await.unwrap().len(), 1);
    queue.remove(&name).await.unwrap();
    queue.remove(&dead).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_redrive_policy_and_settings_of_a_queue_that_is_there_stay() {
    let Some(server) = Server::find() else { return };
    let (name, dead) = (fresh_name(), fresh_name());
    let client = server.client();
    client.create_queue().queue_name(dead.as_str()).send().await.unwrap();
    let target = attributes(&server, &dead).await[&Name::QueueArn].clone();
    let policy = format!(r#"{{"deadLetterTargetArn":"{target}","maxReceiveCount":"7"}}"#);
    let making = client.create_queue().queue_name(name.as_str()).attributes(Name::RedrivePolicy, &policy);
    making.attributes(Name::VisibilityTimeout, "5").send().await.unwrap();
    let before = attributes(&server, &name).await;
    let queue = open(&Options { dead_letter: Some("flare-other".into()), ..server.options() }).await;
    assert_eq!(queue.declare(&name).await.unwrap(), Declared::There);
    let after = attributes(&server, &name).await;
    assert!(before[&Name::RedrivePolicy].contains('7'));
    for attribute in [Name::RedrivePolicy, Name::VisibilityTimeout, Name::MessageRetentionPeriod] {
        assert_eq!(before[&attribute], after[&attribute]);
    }
    queue.remove(&name).await.unwrap();
    queue.remove(&dead).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_not_made_where_that_is_turned_off() {
    let Some(server) = Server::find() else { return };
    let queue = open(&Options { create: false, ..server.options() }).await;
    let name = fresh_name();
    let error = queue.declare(&name).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.chain().contains(name.as_str()) && error.chain().contains("create"), "{}", error.chain());
    server.open().await.declare(&name).await.unwrap();
    assert_eq!(queue.declare(&name).await.unwrap(), Declared::There);
    queue.remove(&name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_sqs_does_not_take_are_refused_before_they_are_sent() {
    let Some(server) = Server::find() else { return };
    let queue = server.open().await;
    let name = fresh_name();
    queue.declare(&name).await.unwrap();
    let long = Bytes::from(vec![b'a'; queue.limits().message_bytes_max + 1]);
    for wrong in [Bytes::new(), long, Bytes::from_static(b"\xff")] {
        let error = queue.push(&name, vec![Bytes::from_static(b"right"), wrong]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain());
    }
    assert_eq!(queue.depth(&name).await.unwrap().ready, 0);
    queue.remove(&name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_gets_more_than_one_call_can_bring() {
    let Some(server) = Server::find() else { return };
    let queue = server.open().await;
    let name = fresh_name();
    queue.declare(&name).await.unwrap();
    queue.push(&name, texts(95)).await.unwrap();
    let pulled = queue.pull(&name, 80, SOON).await.unwrap();
    assert!(pulled.len() > 10 && pulled.len() <= 80, "{}", pulled.len());
    queue.remove(&name).await.unwrap();
}

/// Without a region nobody knows where to ask. The chain of AWS would ask the machine, which takes long.
#[tokio::test(flavor = "multi_thread")]
async fn an_option_that_cannot_be_is_refused() {
    let error = flare_sqs::open(&Options { receives: 0, ..Options::default() }).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
