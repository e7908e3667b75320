//! Published to a work-queue stream, each waited for; fetched by a durable pull consumer; acknowledged twice.

use anyhow::{Context, Result, anyhow};
use async_nats::jetstream::{
    self,
    consumer::{PullConsumer, pull},
    stream,
};
use futures_util::{StreamExt, future::try_join_all};
use tokio::sync::mpsc;

use super::{Change, Receipt, Taken};

const TAKEN_MAX: i64 = 10_000;
const FETCH: usize = 256;

pub struct Broker {
    jetstream: jetstream::Context,
    consumer: PullConsumer,
    subject: String,
}

impl Broker {
    pub async fn open(url: &str, namespace: &str) -> Result<Self> {
        let jetstream = connect(url).await?;
        let subject = format!("{namespace}.documents");
        let config = stream::Config {
            name: namespace.into(),
            subjects: vec![format!("{namespace}.*")],
            retention: stream::RetentionPolicy::WorkQueue,
            discard: stream::DiscardPolicy::New,
            ..stream::Config::default()
        };
        let stream = jetstream.create_stream(config).await?;
        let config = pull::Config {
            durable_name: Some("worker".into()),
            filter_subject: subject.clone(),
            max_ack_pending: TAKEN_MAX,
            ..pull::Config::default()
        };
        let consumer = stream.create_consumer(config).await?;
        Ok(Self { jetstream, consumer, subject })
    }

    pub async fn push(&self, changes: &[Change]) -> Result<()> {
        let sent = changes.iter().map(|change| self.jetstream.publish(self.subject.clone(), change.content.clone()));
        let answers = try_join_all(sent).await?;
        try_join_all(answers.into_iter().map(IntoFuture::into_future)).await?;
        Ok(())
    }

    pub async fn pull(&self, taken: mpsc::Sender<Taken>) -> Result<()> {
        let mut messages = self.consumer.stream().max_messages_per_batch(FETCH).messages().await?;
        while let Some(message) = messages.next().await {
            let message = message?;
            let content = message.payload.clone();
            if taken.send(Taken { content, receipt: Receipt::Nats(Box::new(message)) }).await.is_err() {
                break;
            }
        }
        Ok(())
    }
}

pub async fn ack(receipts: Vec<Receipt>) -> Result<()> {
    let acks = receipts.iter().map(|receipt| async move {
        match receipt {
            Receipt::Nats(message) => message.double_ack().await.map_err(|error| anyhow!(error)),
            Receipt::Rabbitmq(_) | Receipt::Sqs(_) => Ok(()),
        }
    });
    try_join_all(acks).await.map(drop)
}

async fn connect(url: &str) -> Result<jetstream::Context> {
    Ok(jetstream::new(async_nats::connect(url).await?))
}

pub async fn remove(url: &str, namespace: &str) -> Result<()> {
    connect(url).await?.delete_stream(namespace).await.map(drop).context("delete the stream")
}
