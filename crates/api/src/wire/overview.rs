//! What the node says about itself, on the wire.

use flare_node::Status;
use serde::Serialize;
use utoipa::ToSchema;

/// Who answers.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Overview<'a> {
    #[schema(examples("flare"))]
    pub name: &'static str,
    pub version: &'a str,
    pub start_time_epoch_secs: i64,
    pub current_time_epoch_secs: i64,
    #[schema(examples("123seconds"))]
    pub uptime: String,
}

/// How the node is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatusShown<'a> {
    pub version: &'a str,
    #[schema(format = "date-time")]
    pub started_at: String,
    #[schema(minimum = 0)]
    pub uptime_seconds: i64,
    pub node: NodeShown,
    pub repository: RepositoryShown<'a>,
    #[schema(minimum = 0)]
    pub resources: u64,
    #[schema(minimum = 0)]
    pub subscriptions: u64,
    /// The place of the newest change in the order of all changes.
    #[schema(minimum = 0)]
    pub sequence: u64,
    pub deliveries: DeliveriesShown,
}

/// This process.
#[derive(Serialize, ToSchema)]
pub(crate) struct NodeShown {
    #[schema(examples("running"))]
    pub state: &'static str,
    pub pid: u32,
    /// Connections to the API that are open.
    #[schema(minimum = 0)]
    pub connections: u64,
}

/// The store.
#[derive(Serialize, ToSchema)]
pub(crate) struct RepositoryShown<'a> {
    pub engine: &'static str,
    /// Whether writes succeed.
    pub healthy: bool,
    /// Why they do not.
    pub reason: Option<&'a str>,
}

/// Counted since the node started, but for `inFlight` and `retriesWaiting`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeliveriesShown {
    #[schema(minimum = 0)]
    pub in_flight: u64,
    #[schema(minimum = 0)]
    pub retries_waiting: u64,
    #[schema(minimum = 0)]
    pub delivered: u64,
    #[schema(minimum = 0)]
    pub failed_attempts: u64,
    #[schema(minimum = 0)]
    pub discarded: u64,
    #[schema(minimum = 0)]
    pub given_up: u64,
}

impl From<&Status> for DeliveriesShown {
    fn from(status: &Status) -> Self {
        let counts = status.deliveries;
        Self {
            in_flight: counts.in_flight,
            retries_waiting: counts.retries_waiting,
            delivered: counts.delivered,
            failed_attempts: counts.failed_attempts,
            discarded: counts.discarded,
            given_up: counts.given_up,
        }
    }
}

/// The node runs; or it is ready.
#[derive(Serialize, ToSchema)]
pub(crate) struct Fine {
    #[schema(examples("ok", "ready"))]
    pub status: &'static str,
}
