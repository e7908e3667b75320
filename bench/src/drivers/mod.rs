//! What a team would write by hand over the bare driver of each engine: the rows or messages of Flare in groups, with the
//! same durability, and nothing decided, locked or looked up. The measure of what an engine costs over its server.

use std::fmt::{self, Display, Formatter};

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::ValueEnum;
use tokio::sync::mpsc;

use crate::document;

mod cassandra;
mod mongodb;
mod nats;
mod postgres;
mod rabbitmq;
mod sqs;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    Postgres,
    Mongodb,
    Cassandra,
    Rabbitmq,
    Nats,
    Sqs,
}

impl Engine {
    pub fn is_queue(self) -> bool {
        matches!(self, Self::Rabbitmq | Self::Nats | Self::Sqs)
    }

    /// Where `dev/servers env` says that the server is.
    pub fn variable(self) -> String {
        format!("FLARE_TEST_{}_URL", self.to_string().to_uppercase())
    }

    /// The same address, with which the driver asks nobody for others.
    pub fn direct(self, url: &str) -> String {
        if self == Self::Mongodb { mongodb::direct(url) } else { url.to_owned() }
    }

    /// The lines of configuration with which Flare keeps its data, or its queues, in `namespace`.
    pub fn config(self, url: &str, namespace: &str) -> String {
        match self {
            Self::Postgres => {
                format!("[repository]\nengine = \"postgres\"\nurl = \"{url}\"\nschema = \"{namespace}\"\n")
            }
            Self::Mongodb => {
                format!("[repository]\nengine = \"mongodb\"\nurl = \"{url}\"\ndatabase = \"{namespace}\"\n")
            }
            Self::Cassandra => cassandra::config(url, namespace),
            Self::Rabbitmq => format!("[task]\nengine = \"rabbitmq\"\nurl = \"{url}\"\n{}", prefix(namespace)),
            Self::Nats => format!("[task]\nengine = \"nats\"\naddrs = [\"{url}\"]\n{}", prefix(namespace)),
            Self::Sqs => sqs::config(url, namespace),
        }
    }
}

/// The names of the queues begin with it, or the stream has it.
fn prefix(namespace: &str) -> String {
    format!("queue-subscription-delivery = \"{namespace}\"\n")
}

impl Display for Engine {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Postgres => "postgres",
            Self::Mongodb => "mongodb",
            Self::Cassandra => "cassandra",
            Self::Rabbitmq => "rabbitmq",
            Self::Nats => "nats",
            Self::Sqs => "sqs",
        })
    }
}

/// A document as it was put, with its place in the order of all.
#[derive(Clone)]
pub struct Change {
    pub sequence: i64,
    pub number: i64,
    pub revision: i64,
    pub url: String,
    pub content: Bytes,
}

impl Change {
    pub fn read(sequence: i64, url: String, content: Bytes) -> Option<Self> {
        let receipt = document::read(&content)?;
        Some(Self { sequence, number: receipt.document as i64, revision: receipt.revision as i64, url, content })
    }

    fn text(&self) -> &str {
        // The server has checked that it is JSON.
        std::str::from_utf8(&self.content).unwrap_or_default()
    }
}

/// A store under the loop: each call is one durable group.
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub enum Database {
    Postgres(postgres::Database),
    Mongodb(mongodb::Database),
    Cassandra(cassandra::Database),
}

impl Database {
    /// None for the engines of queues.
    pub async fn open(engine: Engine, url: &str, namespace: &str) -> Result<Option<Self>> {
        let opened = match engine {
            Engine::Postgres => postgres::Database::open(url, namespace).await.map(Self::Postgres),
            Engine::Mongodb => mongodb::Database::open(url, namespace).await.map(Self::Mongodb),
            Engine::Cassandra => cassandra::Database::open(url, namespace).await.map(Self::Cassandra),
            Engine::Rabbitmq | Engine::Nats | Engine::Sqs => return Ok(None),
        };
        opened.map(Some).with_context(|| format!("open {engine}"))
    }

    pub async fn write(&self, changes: &[Change]) -> Result<()> {
        match self {
            Self::Postgres(database) => database.write(changes).await,
            Self::Mongodb(database) => database.write(changes).await,
            Self::Cassandra(database) => database.write(changes).await,
        }
    }

    /// Remembers which revisions the subscriber has.
    pub async fn record(&self, delivered: &[Change]) -> Result<()> {
        match self {
            Self::Postgres(database) => database.record(delivered).await,
            Self::Mongodb(database) => database.record(delivered).await,
            Self::Cassandra(database) => database.record(delivered).await,
        }
    }
}

/// A broker under the loop. Documents go through the queue; what was posted is acknowledged.
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub enum Broker {
    Rabbitmq(rabbitmq::Broker),
    Nats(nats::Broker),
    Sqs(sqs::Broker),
}

/// A message, and what acknowledges it.
pub struct Taken {
    pub content: Bytes,
    pub receipt: Receipt,
}

pub enum Receipt {
    Rabbitmq(u64),
    Nats(Box<async_nats::jetstream::Message>),
    Sqs(String),
}

impl Broker {
    /// None for the engines of stores.
    pub async fn open(engine: Engine, url: &str, namespace: &str) -> Result<Option<Self>> {
        let opened = match engine {
            Engine::Rabbitmq => rabbitmq::Broker::open(url, namespace).await.map(Self::Rabbitmq),
            Engine::Nats => nats::Broker::open(url, namespace).await.map(Self::Nats),
            Engine::Sqs => sqs::Broker::open(url, namespace).await.map(Self::Sqs),
            Engine::Postgres | Engine::Mongodb | Engine::Cassandra => return Ok(None),
        };
        opened.map(Some).with_context(|| format!("open {engine}"))
    }

    /// Ends when the broker has all of them for good.
    pub async fn push(&self, changes: &[Change]) -> Result<()> {
        match self {
            Self::Rabbitmq(broker) => broker.push(changes).await,
            Self::Nats(broker) => broker.push(changes).await,
            Self::Sqs(broker) => broker.push(changes).await,
        }
    }

    /// Hands on what comes, until nobody takes it.
    pub async fn pull(&self, taken: mpsc::Sender<Taken>) -> Result<()> {
        match self {
            Self::Rabbitmq(broker) => broker.pull(taken).await,
            Self::Nats(broker) => broker.pull(taken).await,
            Self::Sqs(broker) => broker.pull(taken).await,
        }
    }

    pub async fn ack(&self, receipts: Vec<Receipt>) -> Result<()> {
        match self {
            Self::Rabbitmq(broker) => broker.ack(receipts).await,
            Self::Nats(_) => nats::ack(receipts).await,
            Self::Sqs(broker) => broker.ack(receipts).await,
        }
    }
}

/// Removes what a namespace holds.
pub async fn remove(engine: Engine, url: &str, namespace: &str) -> Result<()> {
    match engine {
        Engine::Postgres => postgres::remove(url, namespace).await,
        Engine::Mongodb => mongodb::remove(url, namespace).await,
        Engine::Cassandra => cassandra::remove(url, namespace).await,
        Engine::Rabbitmq => rabbitmq::remove(url, namespace).await,
        Engine::Nats => nats::remove(url, namespace).await,
        Engine::Sqs => sqs::remove(url, namespace).await,
    }
    .with_context(|| format!("remove {namespace} from {engine}"))
}
