//! The named maxima and times of a node. The binary fills them in from the configuration.

use std::{sync::Arc, time::Duration};

use flare_core::{Result, egress::Egress};
use uuid::Uuid;

use crate::lease::{Claim, Password};

use crate::tasks::TaskSettings;

#[derive(Clone, Debug)]
pub struct Settings {
    /// What this process is among the nodes that share the data.
    pub membership: Membership,
    /// How often to look for streams, outlets and tokens that other nodes have written.
    pub follow_interval: Duration,
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
    /// Where deliveries may go.
    pub egress: Arc<Egress>,
    /// Whom deliveries trust, and how they identify themselves; by default the authorities of the web, and not at all.
    pub tls: Option<rustls::ClientConfig>,
    /// Time for what is in flight when the node stops.
    pub grace: Duration,
    /// How long changes are kept that a newer one has replaced.
    pub retention: Duration,
    /// How long the log of attempts is kept; zero keeps none.
    pub attempts_retention: Duration,
    /// How long what was given up is kept; zero keeps it until it is discarded.
    pub dead_letters_retention: Duration,
    /// Keep what was sent and answered in the log of attempts.
    pub keep_bodies: bool,
    /// An outlet that only fails for so long is disabled; zero never does.
    pub disable_after: Duration,
    /// How often all outlets are compared with what there is; zero never does.
    pub resync_interval: Duration,
    /// How often what is past its retention is removed.
    pub sweep_interval: Duration,
    /// The queue through which outlets get their changes; without one they read the feed.
    pub tasks: Option<TaskSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            membership: Membership::default(),
            follow_interval: Duration::from_millis(200),
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
            // A server listens on loopback unless it is told otherwise.
            egress: Arc::new(Egress::new(Vec::new(), Vec::new(), true)),
            tls: None,
            grace: Duration::from_secs(10),
            retention: Duration::from_secs(7 * 24 * 3600),
            attempts_retention: Duration::from_secs(24 * 3600),
            dead_letters_retention: Duration::from_secs(30 * 24 * 3600),
            keep_bodies: false,
            disable_after: Duration::from_secs(5 * 24 * 3600),
            resync_interval: Duration::from_secs(24 * 3600),
            sweep_interval: Duration::from_secs(600),
            tasks: None,
        }
    }
}

/// What a node does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Roles {
    /// It answers clients.
    pub api: bool,
    /// It delivers, when it is its turn.
    pub worker: bool,
}

impl Roles {
    pub const BOTH: Self = Self { api: true, worker: true };

    /// As in the configuration.
    pub fn names(self) -> Vec<&'static str> {
        [(self.api, "api"), (self.worker, "worker")].iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect()
    }
}

/// One process among those that share the data.
#[derive(Clone, Debug)]
pub struct Membership {
    pub roles: Roles,
    /// Drawn anew by each process.
    pub node: Uuid,
    /// The URL under which other nodes reach it.
    pub address: String,
    /// What other nodes show when they send a request on to this one.
    pub secret: Password,
    /// How long one who works may be silent.
    pub lease: Duration,
}

impl Membership {
    /// A new process. An error is a system without random bytes.
    pub fn new(roles: Roles, address: String, lease: Duration) -> Result<Self> {
        Ok(Self { roles, node: Uuid::now_v7(), address, secret: Password::generate()?, lease })
    }

    pub(crate) fn claim(&self) -> Claim {
        Claim { node: self.node, address: self.address.clone(), secret: self.secret.clone(), time: self.lease }
    }
}

/// Alone, nobody else reaches it.
impl Default for Membership {
    fn default() -> Self {
        Self {
            roles: Roles::BOTH,
            node: Uuid::now_v7(),
            address: String::new(),
            secret: Password::default(),
            lease: Duration::from_secs(10),
        }
    }
}
