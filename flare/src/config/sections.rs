//! The sections of the configuration. Their doc comments and defaults are the sample file and the reference, so they
//! are written for the people who run Flare.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::address::ListenAddr;
use super::delivery::Delivery;
use super::duration::Duration;
use super::host::{HostName, WebOrigin};
use super::repository::Repository;
use super::secret::Token;
use super::size::ByteSize;
use super::task::{Aws, Task};

/// Everything that can be configured, one field per section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Config {
    /// The server of the API.
    pub http: Http,
    /// Where documents, subscriptions and what every client has are kept.
    pub repository: Repository,
    /// The queue through which changes reach subscriptions.
    pub task: Task,
    /// The AWS account.
    pub aws: Aws,
    /// How documents are sent to subscriptions.
    pub delivery: Delivery,
    /// This process.
    pub node: Node,
    /// How the work is divided.
    pub domain: Domain,
    /// What Flare says about itself.
    pub log: Log,
    /// Who may call the API.
    pub security: Security,
}

/// The server of the API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Http {
    /// The address to listen on, `host:port`. Without a host, as in ":8080", on all interfaces; requests from elsewhere
    /// than this machine then need a token.
    pub addr: ListenAddr,
    /// How many entities a list has when the request does not say.
    #[schemars(range(min = 1, max = 100_000))]
    pub default_limit: usize,
    /// How many entities a request may ask for at most.
    #[schemars(range(min = 1, max = 100_000))]
    pub limit_max: usize,
    /// The time that a request has to be processed after its body has arrived; then it is answered with 503.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub timeout: Duration,
    /// The time that a client has to send the head of a request, and the longest wait for more of a body.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
    pub read_timeout: Duration,
    /// The time that a client has to send a whole body.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "24h"))]
    pub body_timeout: Duration,
    /// The largest body of a request; a larger one is answered with 413 as soon as it is exceeded.
    #[schemars(extend("x-minimum" = "1KiB", "x-maximum" = "1GiB"))]
    pub body_max: ByteSize,
    /// How many documents a bulk request may hold.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub batch_max: usize,
    /// The largest body of a bulk request. Each of its documents is held to `body-max`.
    #[schemars(extend("x-minimum" = "1KiB", "x-maximum" = "1GiB"))]
    pub batch_body_max: ByteSize,
    /// How deep the JSON of a request may be nested.
    #[schemars(range(min = 8, max = 120))]
    pub json_depth_max: usize,
    /// The size of all headers of a request together.
    #[schemars(extend("x-minimum" = "8KiB", "x-maximum" = "1MiB"))]
    pub header_max: ByteSize,
    /// The length of the URL of a request, in bytes.
    #[schemars(range(min = 256, max = 65_536))]
    pub url_max: usize,
    /// How many connections are open at once; past it, a new one is answered with 503 and closed.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub connections_max: usize,
    /// How long a connection without a request is kept open.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "24h"))]
    pub idle_timeout: Duration,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            addr: ListenAddr::loopback(8080),
            default_limit: 30,
            limit_max: 1000,
            timeout: Duration::from_secs(1),
            read_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_max: ByteSize::mib(1),
            batch_max: 10_000,
            batch_body_max: ByteSize::mib(32),
            json_depth_max: 64,
            header_max: ByteSize::kib(16),
            url_max: 4096,
            connections_max: 16_384,
            idle_timeout: Duration::from_secs(75),
        }
    }
}

/// This process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Node {
    /// What this process does. With a repository that several nodes can share, processes may have one role each: as
    /// many as you like answer the API, and of those that may work, one does and the others wait for it.
    pub roles: Vec<Role>,
    /// The URL under which other nodes reach this one, such as "http://10.0.0.7:8080": nodes of the role "api" send on
    /// to the one that works what only it can answer. Empty stands for `http.addr`, where that is one address. Such
    /// requests carry a secret: keep them in a network of your own.
    pub address: String,
    /// With a repository that several nodes can share, one of them works at a time and the others wait. One that was not
    /// heard of for so long counts as gone, and another one takes over. All nodes have the same.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "10m"))]
    pub lease: Duration,
    /// The time that requests and deliveries in flight have to finish when Flare is stopped.
    #[schemars(extend("x-maximum" = "1h"))]
    pub grace: Duration,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            roles: vec![Role::Api, Role::Worker],
            address: String::new(),
            lease: Duration::from_secs(10),
            grace: Duration::from_secs(10),
        }
    }
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// answers the API: takes documents, and knows resources, subscriptions and tokens
    Api,
    /// delivers documents when it is its turn
    Worker,
}

/// How the work is divided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Domain {
    /// How many slots share the subscriptions. A slot is the piece of the work that one node owns.
    #[schemars(range(min = 1, max = 4096))]
    pub slots: u16,
    /// How long a revision is kept after a newer one has replaced it, for subscriptions that want every revision and for
    /// replays; "0s" keeps only the newest. The newest revision of a document is always kept.
    #[schemars(extend("x-maximum" = "87600h"))]
    pub retention: Duration,
    /// How often revisions past their retention, and other things that nobody needs, are removed.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "24h"))]
    pub sweep_interval: Duration,
    /// How often every subscription is compared with the documents, and what it lacks is sent; "0s" never does.
    #[schemars(extend("x-maximum" = "8760h"))]
    pub resync_interval: Duration,
}

impl Default for Domain {
    fn default() -> Self {
        Self {
            slots: 64,
            retention: Duration::from_secs(7 * 24 * 3600),
            sweep_interval: Duration::from_secs(600),
            resync_interval: Duration::from_secs(24 * 3600),
        }
    }
}

/// What Flare says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Log {
    /// The lowest level that is written.
    pub level: LogLevel,
    /// Where the log goes.
    pub output: LogOutput,
    /// The form of a line.
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: LogLevel::Info, output: LogOutput::Stdout, format: LogFormat::Human }
    }
}

/// Levels of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// every step
    Debug,
    /// what an operator wants to know
    Info,
    /// what may need attention
    Warn,
    /// what needs attention
    Error,
}

/// Where the log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogOutput {
    /// standard output
    Stdout,
    /// standard error
    Stderr,
    /// nowhere
    Discard,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// for people
    Human,
    /// one JSON object per line
    Json,
}

/// Who may call the API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Security {
    /// Bearer tokens for requests that do not come from this machine: the token itself, of 16 characters or more, or
    /// "sha256:" and the hexadecimal digest of it. They may do everything; `flare token` makes tokens that may do less.
    pub tokens: Vec<Token>,
    /// Host names under which the API may be called, besides "localhost" and the address of `http.addr`. Without a port.
    pub hosts: Vec<HostName>,
    /// Web origins from which browsers may call the API, such as "https://console.company.com".
    pub origins: Vec<WebOrigin>,
}
