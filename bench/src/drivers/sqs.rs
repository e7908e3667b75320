//! Ten messages in a call, and as many calls at the same time as the engine makes.

use anyhow::{Context, Result, ensure};
use aws_sdk_sqs::{
    Client,
    config::{Credentials, Region},
    types::{DeleteMessageBatchRequestEntry, SendMessageBatchRequestEntry},
};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::{sync::mpsc, task::JoinSet};

use super::{Change, Receipt, Taken, prefix};

const ENTRIES: usize = 10;
const CALLS: usize = 4;
const REGION: &str = "eu-central-1";
const KEY: &str = "test";

pub struct Broker {
    client: Client,
    url: String,
}

impl Broker {
    pub async fn open(url: &str, namespace: &str) -> Result<Self> {
        let client = connect(url);
        let made = client.create_queue().queue_name(namespace).send().await?;
        Ok(Self { client, url: made.queue_url.context("a queue without an address")? })
    }

    pub async fn push(&self, changes: &[Change]) -> Result<()> {
        let calls = changes.chunks(ENTRIES).map(|changes| async move {
            let mut sending = self.client.send_message_batch().queue_url(&self.url);
            for (number, change) in changes.iter().enumerate() {
                let entry = SendMessageBatchRequestEntry::builder().id(number.to_string());
                sending = sending.entries(entry.message_body(change.text()).build()?);
            }
            let answer = sending.send().await?;
            ensure!(answer.failed.is_empty(), "{:?}", answer.failed);
            Ok(())
        });
        stream::iter(calls.collect::<Vec<_>>()).buffer_unordered(CALLS).try_collect::<()>().await
    }

    pub async fn pull(&self, taken: mpsc::Sender<Taken>) -> Result<()> {
        let mut loops = JoinSet::new();
        for _ in 0..CALLS {
            loops.spawn(receive(self.client.clone(), self.url.clone(), taken.clone()));
        }
        while let Some(ended) = loops.join_next().await {
            ended??;
        }
        Ok(())
    }

    pub async fn ack(&self, receipts: Vec<Receipt>) -> Result<()> {
        let receipts: Vec<String> = receipts
            .into_iter()
            .filter_map(|receipt| match receipt {
                Receipt::Sqs(handle) => Some(handle),
                Receipt::Rabbitmq(_) | Receipt::Nats(_) => None,
            })
            .collect();
        let calls = receipts.chunks(ENTRIES).map(|handles| async move {
            let mut deleting = self.client.delete_message_batch().queue_url(&self.url);
            for (number, handle) in handles.iter().enumerate() {
                let entry = DeleteMessageBatchRequestEntry::builder().id(number.to_string());
                deleting = deleting.entries(entry.receipt_handle(handle).build()?);
            }
            deleting.send().await?;
            anyhow::Ok(())
        });
        stream::iter(calls.collect::<Vec<_>>()).buffer_unordered(CALLS).try_collect::<()>().await
    }
}

async fn receive(client: Client, url: String, taken: mpsc::Sender<Taken>) -> Result<()> {
    loop {
        let receiving = client.receive_message().queue_url(&url).max_number_of_messages(ENTRIES as i32);
        for message in receiving.wait_time_seconds(1).send().await?.messages.unwrap_or_default() {
            let (Some(body), Some(handle)) = (message.body, message.receipt_handle) else { continue };
            if taken.send(Taken { content: body.into(), receipt: Receipt::Sqs(handle) }).await.is_err() {
                return Ok(());
            }
        }
    }
}

fn connect(url: &str) -> Client {
    let config = aws_sdk_sqs::Config::builder()
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .region(Region::new(REGION))
        .credentials_provider(Credentials::new(KEY, KEY, None, None, "bench"))
        .endpoint_url(url);
    Client::from_conf(config.build())
}

pub fn config(url: &str, namespace: &str) -> String {
    let task = format!("[task]\nengine = \"sqs\"\nurl = \"{url}\"\n{}", prefix(namespace));
    format!("{task}[aws]\nkey = \"{KEY}\"\nsecret = \"{KEY}\"\nregion = \"{REGION}\"\n")
}

pub async fn remove(url: &str, namespace: &str) -> Result<()> {
    let client = connect(url);
    let queues = client.list_queues().queue_name_prefix(namespace).send().await?;
    for queue in queues.queue_urls.unwrap_or_default() {
        client.delete_queue().queue_url(queue).send().await?;
    }
    Ok(())
}
