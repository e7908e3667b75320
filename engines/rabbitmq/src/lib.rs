//! RabbitMQ as a queue: for teams that already run it.
//!
//! Messages are pushed with confirms over one connection ([`publish`]) and pulled by consumers over another
//! ([`line`], [`deliveries`]), so that a broker that blocks publishers still hands out messages and takes
//! acknowledgements. Both are made again when they break ([`link`]). Questions about queues go over a third one
//! ([`admin`]).

mod address;
mod admin;
mod deliveries;
mod failure;
mod ledger;
mod line;
mod link;
mod publish;
mod session;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{
    Error, Result,
    queue::{Declared, Depth, Message, Queue, QueueLimits, QueueName, Receipt},
};
use tokio::{task::AbortHandle, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::{
    address::Address,
    admin::Admin,
    deliveries::{Deliveries, Verdict},
    line::Lines,
    link::Link,
    publish::Publishers,
};

/// How the engine reaches the broker, and how much it takes of it.
#[derive(Clone)]
pub struct Options {
    /// `amqp://user:password@host:port/vhost`, or `amqps://` for TLS; several hosts as `one:5672,two:5672`. It takes
    /// the place of the five settings that follow.
    pub url: Option<String>,
    /// Brokers of one cluster as `host:port`, tried in turn.
    pub addrs: Vec<String>,
    pub vhost: String,
    pub username: String,
    pub password: String,
    /// Whether the connections are encrypted.
    pub tls: bool,
    /// A file of certificates (PEM) of the authorities that may sign for the broker, in place of those of the web.
    pub ca: Option<PathBuf>,
    /// Of which type queues are made.
    pub queue_type: QueueType,
    /// Messages of one queue that a node may have and not have acknowledged.
    pub prefetch: u16,
    /// How long a call may take, connecting included.
    pub timeout: Duration,
    /// A connection over which nothing came for twice this long is given up. Whole seconds.
    pub heartbeat: Duration,
}

/// What the broker keeps messages in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueType {
    /// Copies on several brokers, which agree on them.
    Quorum,
    /// On the disk of one broker.
    Classic,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            url: None,
            addrs: vec!["127.0.0.1:5672".into()],
            vhost: "/".into(),
            username: "guest".into(),
            password: "guest".into(),
            tls: false,
            ca: None,
            queue_type: QueueType::Quorum,
            prefetch: 256,
            timeout: Duration::from_secs(5),
            heartbeat: Duration::from_secs(10),
        }
    }
}

/// The URL and the password are left out.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("addrs", &self.addrs)
            .field("vhost", &self.vhost)
            .field("username", &self.username)
            .field("tls", &self.tls)
            .field("ca", &self.ca)
            .field("queue_type", &self.queue_type)
            .field("prefetch", &self.prefetch)
            .field("timeout", &self.timeout)
            .field("heartbeat", &self.heartbeat)
            .finish_non_exhaustive()
    }
}

/// Messages are hints: small. Longer ones are refused before the broker closes the channel over them.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Opens the queue: fails if no broker answers now, and reconnects by itself from then on.
pub async fn open(options: &Options) -> Result<Arc<dyn Queue>> {
    let address = Arc::new(Address::read(options)?);
    let stop = CancellationToken::new();
    let stops = stop.clone().drop_guard();
    let (publishing, consuming) = tokio::try_join!(
        Link::open(address.clone(), "publisher", stop.clone()),
        Link::open(address.clone(), "consumer", stop.clone())
    )?;
    let admin = Arc::new(Admin::new(address, options.queue_type));
    let deliveries = Arc::new(Deliveries::new(options.prefetch)?);
    Ok(Arc::new(RabbitQueue {
        publishers: Publishers::start(&publishing),
        lines: Lines::start(admin.clone(), deliveries.clone(), consuming.clone(), stop.clone()),
        admin,
        deliveries,
        publishing,
        consuming,
        prefetch: options.prefetch,
        stop,
        _stops: stops,
    }))
}

/// The implementation of the port. When it is gone, its connections end.
struct RabbitQueue {
    publishing: Arc<Link>,
    consuming: Arc<Link>,
    publishers: Publishers,
    admin: Arc<Admin>,
    deliveries: Arc<Deliveries>,
    lines: Arc<Lines>,
    prefetch: u16,
    stop: CancellationToken,
    _stops: DropGuard,
}

impl RabbitQueue {
    fn check(&self) -> Result<()> {
        if self.stop.is_cancelled() { Err(closed()) } else { Ok(()) }
    }

    async fn settle(&self, receipts: &[Receipt], verdict: Verdict) -> Result<()> {
        self.check()?;
        let settling = self.deliveries.settle(receipts, verdict);
        let late =
            |_| Error::unavailable("RabbitMQ takes no acknowledgements at present; the messages will come again");
        tokio::time::timeout(self.consuming.timeout(), settling).await.map_err(late)
    }
}

#[async_trait]
impl Queue for RabbitQueue {
    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    fn limits(&self) -> QueueLimits {
        QueueLimits { message_bytes_max: MESSAGE_BYTES_MAX, taken_max: usize::from(self.prefetch) }
    }

    fn trouble(&self) -> Option<String> {
        self.publishing.trouble().or_else(|| self.consuming.trouble())
    }

    async fn declare(&self, queue: &QueueName) -> Result<Declared> {
        self.check()?;
        self.admin.declare(queue).await
    }

    async fn remove(&self, queue: &QueueName) -> Result<()> {
        self.check()?;
        self.lines.leave(queue).await;
        self.admin.delete(queue).await
    }

    async fn push(&self, queue: &QueueName, messages: Vec<Bytes>) -> Result<()> {
        self.check()?;
        if let Some(long) = messages.iter().find(|message| message.len() > MESSAGE_BYTES_MAX) {
            let length = long.len();
            return Err(Error::invalid(format!("a message has {length} bytes; {MESSAGE_BYTES_MAX} are allowed")));
        }
        self.publishers.push(queue, messages).await
    }

    async fn pull(&self, queue: &QueueName, max: usize, wait: Duration) -> Result<Vec<Message>> {
        self.check()?;
        self.lines.pull(queue, max, Instant::now() + wait).await
    }

    async fn ack(&self, _: &QueueName, receipts: Vec<Receipt>) -> Result<()> {
        self.settle(&receipts, Verdict::Done).await
    }

    async fn nack(&self, _: &QueueName, receipts: Vec<Receipt>) -> Result<()> {
        self.settle(&receipts, Verdict::Again).await
    }

    async fn depth(&self, queue: &QueueName) -> Result<Depth> {
        self.check()?;
        let waiting = self.admin.count(queue).await?;
        let (buffered, held) = self.lines.holds(queue);
        Ok(Depth { ready: waiting + buffered, taken: held.saturating_sub(buffered) })
    }

    async fn close(&self) -> Result<()> {
        self.stop.cancel();
        tokio::join!(self.publishing.ended(), self.consuming.ended(), self.admin.close());
        Ok(())
    }
}

fn closed() -> Error {
    Error::unavailable("the queue was closed")
}

/// A task of the engine: it ends with the queue or with its connection.
#[allow(clippy::disallowed_methods, reason = "engines know no supervisor; the task ends with its queue or connection")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::spawn(task).abort_handle()
}
