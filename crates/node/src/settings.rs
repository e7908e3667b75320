//! The named maxima and times of a node. The binary fills them in from the configuration.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Depth of JSON that is read.
    pub json_depth_max: usize,
    /// Work is organised in so many slots of outlets; a node owns slots.
    pub slots: u16,
    /// Requests in flight on this node.
    pub requests_max: usize,
    /// A request in flight for longer than this counts as slow: it gives its place to others.
    pub slow_after: Duration,
    /// Slow requests in flight on this node.
    pub slow_requests_max: usize,
    pub connect_timeout: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// Bytes of an answer that are read; a longer answer costs the connection.
    pub response_bytes_max: usize,
    /// The longest wait that a client may ask for with `Retry-After`.
    pub retry_after_max: Duration,
    /// The name under which Flare asks endpoints for their consent: that of a system, not of a machine.
    pub origin: String,
    /// The longest time that a delivery stays unrecorded: what a crash may repeat.
    pub record_delay: Duration,
    /// Documents of one outlet that wait for a retry; past it no further document is taken up.
    pub retries_max: usize,
    /// Memory for recent changes.
    pub tail_bytes_max: usize,
    /// Time for what is in flight when the node stops.
    pub grace: Duration,
    /// How long changes are kept that a newer one has replaced.
    pub retention: Duration,
    /// How often that is looked after.
    pub sweep_interval: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            json_depth_max: 64,
            slots: 64,
            requests_max: 1024,
            slow_after: Duration::from_secs(1),
            slow_requests_max: 8192,
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            response_bytes_max: 64 << 10,
            retry_after_max: Duration::from_secs(3600),
            origin: "flare".to_owned(),
            record_delay: Duration::from_millis(100),
            retries_max: 256,
            tail_bytes_max: 32 << 20,
            grace: Duration::from_secs(10),
            retention: Duration::from_secs(7 * 24 * 3600),
            sweep_interval: Duration::from_secs(600),
        }
    }
}
