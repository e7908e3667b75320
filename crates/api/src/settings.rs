//! The named maxima, times and keys of the API. The binary fills them in from the configuration.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use flare_core::egress::Egress;
use jiff::Timestamp;

#[derive(Clone, Debug)]
pub struct ApiSettings {
    /// Entities of a list when the request does not say.
    pub default_limit: usize,
    /// Entities of a list that a request may ask for.
    pub limit_max: usize,
    /// About the most content that one page of documents holds.
    pub page_bytes_max: usize,
    /// Time for a request after its body has arrived.
    pub timeout: Duration,
    /// Time for the head of a request, and the longest wait for more of a body.
    pub read_timeout: Duration,
    /// Time for a whole body. A bulk request has as much again to be processed.
    pub body_timeout: Duration,
    /// The largest body, and the largest document of a bulk request.
    pub body_bytes_max: usize,
    /// Documents of a bulk request.
    pub batch_max: usize,
    /// The largest body of a bulk request.
    pub batch_bytes_max: usize,
    /// All headers of a request together.
    pub header_bytes_max: usize,
    /// Path and query of a request.
    pub url_bytes_max: usize,
    /// Nesting of the JSON that describes a resource or a subscription.
    pub json_depth_max: usize,
    /// Connections open at once; past it a connection is answered with 503 and closed.
    pub connections_max: usize,
    /// How long a connection without a request is kept.
    pub idle_timeout: Duration,
    /// Time for requests in flight when the server stops.
    pub grace: Duration,
    /// SHA-256 of each bearer token.
    pub tokens: Vec<[u8; 32]>,
    /// Names that `Host` may have besides `localhost` and addresses; in lower case, without a port.
    pub hosts: Vec<String>,
    /// Web origins that may call, such as `https://console.company.com`; in lower case.
    pub origins: Vec<String>,
    pub delivery: DeliveryBounds,
    /// Where deliveries may go: an endpoint that can never be called is refused at once.
    pub egress: Arc<Egress>,
    pub version: String,
    pub started_at: Timestamp,
}

/// What a subscription gets when it does not say, and the most that it may ask for.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryBounds {
    pub timeout: Duration,
    pub timeout_max: Duration,
    pub concurrency: u16,
    pub concurrency_max: u16,
    pub rate_max: NonZeroU32,
    /// For subscriptions that do not say; without it nothing expires.
    pub ttl: Option<Duration>,
    pub ttl_max: Duration,
}

impl Default for DeliveryBounds {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(15),
            timeout_max: Duration::from_secs(60),
            concurrency: 16,
            concurrency_max: 256,
            rate_max: NonZeroU32::MAX,
            ttl: None,
            ttl_max: Duration::from_secs(30 * 24 * 3600),
        }
    }
}

impl Default for ApiSettings {
    fn default() -> Self {
        Self {
            default_limit: 30,
            limit_max: 1000,
            page_bytes_max: 8 << 20,
            timeout: Duration::from_secs(1),
            read_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_bytes_max: 1 << 20,
            batch_max: 10_000,
            batch_bytes_max: 32 << 20,
            header_bytes_max: 16 << 10,
            url_bytes_max: 4096,
            json_depth_max: 64,
            connections_max: 16_384,
            idle_timeout: Duration::from_secs(75),
            grace: Duration::from_secs(10),
            tokens: Vec::new(),
            hosts: Vec::new(),
            origins: Vec::new(),
            delivery: DeliveryBounds::default(),
            // A server listens on loopback unless it is told otherwise.
            egress: Arc::new(Egress::new(Vec::new(), Vec::new(), true)),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: Timestamp::now(),
        }
    }
}
