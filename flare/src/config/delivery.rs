//! The section `delivery`: defaults and maxima of what is sent to subscriptions.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::Duration;
use super::host::HostName;
use super::size::ByteSize;
use super::target::DeliveryTarget;

/// How documents are sent to subscriptions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Delivery {
    /// The time that a client has to answer, when its subscription does not say.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
    pub timeout: Duration,
    /// The longest time that a subscription may ask for.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
    pub timeout_max: Duration,
    /// How many requests are sent to a subscription at once, when it does not say.
    #[schemars(range(min = 1, max = 65_536))]
    pub concurrency: usize,
    /// The most that a subscription may ask for.
    #[schemars(range(min = 1, max = 65_536))]
    pub concurrency_max: usize,
    /// The most requests per second that a subscription may ask for.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub rate_max: u32,
    /// How long Flare tries to deliver a revision, when its subscription does not say; "0s" sets no limit but that of the
    /// retries.
    #[schemars(extend("x-maximum" = "8760h"))]
    pub ttl: Duration,
    /// The longest time that a subscription may ask for.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "8760h"))]
    pub ttl_max: Duration,
    /// A subscription to which nothing could be delivered for so long is disabled; "0s" never does.
    #[schemars(extend("x-maximum" = "8760h"))]
    pub disable_after: Duration,
    /// How long the log of attempts is kept; "0s" keeps none.
    #[schemars(extend("x-maximum" = "8760h"))]
    pub attempts_retention: Duration,
    /// How long dead letters are kept; "0s" keeps them until they are discarded or sent again.
    #[schemars(extend("x-maximum" = "8760h"))]
    pub dead_letters_retention: Duration,
    /// Whether the log of attempts keeps what was sent and the beginning of what was answered.
    pub keep_bodies: bool,
    /// How many requests this node has in flight, over all subscriptions.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub node_concurrency: usize,
    /// A request that is in flight for longer counts no longer against `node-concurrency` but against `slow-max`, so that
    /// slow clients do not hold up the others.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
    pub slow_after: Duration,
    /// How many slow requests this node has in flight.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub slow_max: usize,
    /// How much of the body of an answer is read and thrown away to keep the connection; past it, the connection is
    /// closed.
    #[schemars(extend("x-maximum" = "64MiB"))]
    pub response_body_max: ByteSize,
    /// The longest time that a delivery may stay unrecorded: after a crash, what was delivered within it may be sent
    /// again.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
    pub record_delay: Duration,
    /// The longest `Retry-After` of a client that is honoured.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "720h"))]
    pub retry_after_max: Duration,
    /// The name of this system for clients whose subscriptions have `endpoint.handshake`: it stands in
    /// `WebHook-Request-Origin`, and all nodes of the system have the same.
    pub origin: HostName,
    /// The time that a connection to a client has to be established, TLS included.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "10m"))]
    pub connect_timeout: Duration,
    /// How long an unused connection to a client is kept open.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "24h"))]
    pub idle_timeout: Duration,
    /// How many documents of one subscription may wait for a retry; past it, none of its other documents is taken up
    /// until one resolves.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub retries_max: usize,
    /// Memory for the most recent changes, which are delivered without reading the disk.
    #[schemars(extend("x-minimum" = "1MiB", "x-maximum" = "1TiB"))]
    pub tail_max: ByteSize,
    /// Networks, addresses and host names to which deliveries may go although they are not public, and by http:// too.
    /// Otherwise deliveries go to public addresses, by https:// only; and to loopback, if `http.addr` is loopback. A
    /// name allows all addresses that it leads to.
    pub allow: Vec<DeliveryTarget>,
    /// Networks, addresses and host names to which deliveries may not go, whatever `allow` says.
    pub deny: Vec<DeliveryTarget>,
    /// A PEM file with the certificates of authorities that are trusted besides those of the web.
    pub ca: PathBuf,
    /// A PEM file with the certificate that Flare shows to clients that ask for one (mutual TLS), and its chain.
    pub certificate: PathBuf,
    /// A PEM file with the private key of `certificate`.
    pub key: PathBuf,
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(15),
            timeout_max: Duration::from_secs(60),
            concurrency: 16,
            concurrency_max: 256,
            rate_max: 100_000,
            ttl: Duration::from_secs(0),
            ttl_max: Duration::from_secs(30 * 24 * 3600),
            disable_after: Duration::from_secs(5 * 24 * 3600),
            attempts_retention: Duration::from_secs(24 * 3600),
            dead_letters_retention: Duration::from_secs(30 * 24 * 3600),
            keep_bodies: false,
            node_concurrency: 1024,
            slow_after: Duration::from_secs(1),
            slow_max: 8192,
            response_body_max: ByteSize::kib(64),
            record_delay: Duration::from_millis(100),
            retry_after_max: Duration::from_secs(3600),
            origin: HostName::flare(),
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            retries_max: 256,
            tail_max: ByteSize::mib(32),
            allow: Vec::new(),
            deny: Vec::new(),
            ca: PathBuf::new(),
            certificate: PathBuf::new(),
            key: PathBuf::new(),
        }
    }
}
