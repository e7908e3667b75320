//! The sections `task` and `aws`: which queue changes go through, and its options.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ByteSize, Duration, Secret};

/// The queue through which changes reach subscriptions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Task {
    /// The engine.
    pub engine: TaskEngine,
    /// Who has a queue of its own.
    pub queues: TaskQueues,
    /// How many changes of one subscription may be in its queue at a time; what else it is behind on stays in the
    /// repository. Read by the queue engines.
    #[schemars(range(min = 1, max = 100_000))]
    pub window: usize,
    /// Reserved: which partitions of a resource a change concerns is found without a queue in this version.
    #[schemars(length(min = 1))]
    pub queue_subscription_bucket: String,
    /// Reserved: which subscriptions of a partition want a change is found without a queue in this version.
    #[schemars(length(min = 1))]
    pub queue_subscription_spread: String,
    /// What the names of the queues of deliveries begin with: letters, digits, "-" and "_". With the engine "nats" it is the
    /// name of the stream. Read by the queue engines.
    #[schemars(length(min = 1, max = 43))]
    pub queue_subscription_delivery: String,
    /// The address of the server as one URL, such as "amqp://user:password@host:5672/vhost", "nats://user:password@host:4222",
    /// or for the engine "sqs" that of an endpoint that is not the region's. It is never shown.
    pub url: Secret,
    /// The servers as "host:port", in place of `url`. The default is this machine with the usual port. Read by the engines
    /// "rabbitmq" and "nats".
    pub addrs: Vec<String>,
    /// The user name at the server. Read by the engines "rabbitmq" and "nats".
    pub username: String,
    /// The password of `username`. It is never shown.
    pub password: Secret,
    /// A PEM file with the certificates of authorities that may sign for the server, in place of those of the web. Read by the
    /// engines "rabbitmq" and "nats".
    pub ca: PathBuf,
    /// A file with the credentials of a user (".creds"). Read by the engine "nats".
    pub credentials: PathBuf,
    /// How long a call to the server may take.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "10m"))]
    pub timeout: Duration,
    /// How long after a node has gone without a word the messages that it held come to another one: the visibility timeout of
    /// SQS, the ack wait of NATS. Read by the engines "sqs" and "nats"; RabbitMQ knows when a connection is gone.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "12h"))]
    pub hold: Duration,
    /// How many messages of one queue a node holds at most. Read by the engine "rabbitmq".
    #[schemars(range(min = 1, max = 65_535))]
    pub prefetch: u16,
    /// Of which type queues are made: "quorum", which are replicated, or "classic". Read by the engine "rabbitmq".
    pub queue_type: TaskQueueType,
    /// How many copies of the stream the servers keep, if Flare makes it. Read by the engine "nats".
    #[schemars(range(min = 1, max = 5))]
    pub replicas: u8,
    /// How much the stream may hold, if Flare makes it. Read by the engine "nats".
    #[schemars(extend("x-minimum" = "1MiB", "x-maximum" = "1TiB"))]
    pub stream_max: ByteSize,
    /// How many requests for messages of one queue are under way at once, of ten messages each. Read by the engine "sqs".
    #[schemars(range(min = 1, max = 64))]
    pub receives_max: u16,
    /// Make queues that are missing. Read by the engine "sqs".
    pub create: bool,
    /// The queue for messages that were received too often, if Flare makes queues. Read by the engine "sqs".
    pub dead_letter_queue: String,
    /// How often a message is received before it goes to `dead-letter-queue`. Read by the engine "sqs".
    #[schemars(range(min = 1, max = 1000))]
    pub dead_letter_receives: u16,
}

impl Default for Task {
    fn default() -> Self {
        Self {
            engine: TaskEngine::Repository,
            queues: TaskQueues::Auto,
            window: 1000,
            queue_subscription_bucket: "flare-subscription-bucket".to_owned(),
            queue_subscription_spread: "flare-subscription-spread".to_owned(),
            queue_subscription_delivery: "flare-subscription-delivery".to_owned(),
            url: Secret::default(),
            addrs: Vec::new(),
            username: String::new(),
            password: Secret::default(),
            ca: PathBuf::new(),
            credentials: PathBuf::new(),
            timeout: Duration::from_secs(5),
            hold: Duration::from_secs(30),
            prefetch: 256,
            queue_type: TaskQueueType::Quorum,
            replicas: 1,
            stream_max: ByteSize::mib(1024),
            receives_max: 4,
            create: true,
            dead_letter_queue: String::new(),
            dead_letter_receives: 100,
        }
    }
}

/// The engines of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TaskEngine {
    /// changes are read from the repository itself, where they are written together with the documents: the fastest
    Repository,
    /// the same, under the name that goes with the repository engine "memory"
    Memory,
    /// through queues of RabbitMQ
    Rabbitmq,
    /// through queues of Amazon SQS, or of a server that speaks its language
    Sqs,
    /// through a stream of NATS JetStream
    Nats,
}

/// Who has a queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TaskQueues {
    /// as it suits the engine: subscriptions with "rabbitmq", slots with "sqs" and "nats"
    Auto,
    /// every subscription, made while it is `preparing` and removed with it
    Subscription,
    /// every slot (`domain.slots`): for very many subscriptions
    Slot,
}

/// The types of queues of RabbitMQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TaskQueueType {
    /// copies on several brokers, which agree on them
    Quorum,
    /// on the disk of one broker
    Classic,
}

/// The AWS account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Aws {
    /// The access key. Without one, credentials come from the usual places of AWS: its environment variables, the shared
    /// configuration files, the container or the machine.
    pub key: String,
    /// The secret of the access key. It is never shown.
    pub secret: Secret,
    /// The token of credentials that are temporary. It is never shown.
    pub session_token: Secret,
    /// The profile in the shared configuration files.
    pub profile: String,
    /// The region, such as "us-east-1". Without one, it comes from the same places.
    pub region: String,
}
