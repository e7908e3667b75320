//! Published to a quorum queue with confirms, consumed with a prefetch, acknowledged one by one.

use anyhow::{Result, ensure};
use futures_util::{StreamExt, future::try_join_all};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
        QueueDeclareOptions, QueueDeleteOptions,
    },
    types::{AMQPValue, FieldTable},
};
use tokio::sync::mpsc;

use super::{Change, Receipt, Taken};

const PREFETCH: u16 = 256;
const DURABLE: u8 = 2;

pub struct Broker {
    publishing: Channel,
    consuming: Channel,
    queue: String,
    _connections: [Connection; 2],
}

impl Broker {
    pub async fn open(url: &str, namespace: &str) -> Result<Self> {
        let connections = [connect(url).await?, connect(url).await?];
        let publishing = connections[0].create_channel().await?;
        publishing.confirm_select(ConfirmSelectOptions::default()).await?;
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        publishing.queue_declare(namespace.into(), options, arguments).await?;
        let consuming = connections[1].create_channel().await?;
        consuming.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
        Ok(Self { publishing, consuming, queue: namespace.into(), _connections: connections })
    }

    pub async fn push(&self, changes: &[Change]) -> Result<()> {
        let properties = BasicProperties::default().with_delivery_mode(DURABLE);
        let sent = changes.iter().map(|change| {
            let options = BasicPublishOptions::default();
            let (queue, properties) = (self.queue.as_str(), properties.clone());
            self.publishing.basic_publish("".into(), queue.into(), options, &change.content, properties)
        });
        for confirmed in try_join_all(try_join_all(sent).await?).await? {
            ensure!(confirmed.is_ack(), "the broker refused a message");
        }
        Ok(())
    }

    pub async fn pull(&self, taken: mpsc::Sender<Taken>) -> Result<()> {
        let options = BasicConsumeOptions::default();
        let queue = self.queue.as_str();
        let mut consumer =
            self.consuming.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?;
        while let Some(delivery) = consumer.next().await {
            let delivery = delivery?;
            let message = Taken { content: delivery.data.into(), receipt: Receipt::Rabbitmq(delivery.delivery_tag) };
            if taken.send(message).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    pub async fn ack(&self, receipts: Vec<Receipt>) -> Result<()> {
        for receipt in receipts {
            if let Receipt::Rabbitmq(tag) = receipt {
                self.consuming.basic_ack(tag, BasicAckOptions::default()).await?;
            }
        }
        Ok(())
    }
}

async fn connect(url: &str) -> Result<Connection> {
    Ok(Connection::connect(url, ConnectionProperties::default()).await?)
}

/// Flare removes its own queues with the subscription; what is left are those that begin with the name.
pub async fn remove(url: &str, namespace: &str) -> Result<()> {
    let channel = connect(url).await?.create_channel().await?;
    channel.queue_delete(namespace.into(), QueueDeleteOptions::default()).await?;
    Ok(())
}
