//! What the node says about itself, on the wire.

use flare_node::{Duty, Node, Status};
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
    pub node: NodeShown<'a>,
    /// The node that delivers; none if no node does at present.
    pub worker: Option<WorkerShown>,
    pub repository: EngineShown<'a>,
    /// The queue that changes go through, on the node that works, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub queue: Option<EngineShown<'a>>,
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
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeShown<'a> {
    /// Another one after each start.
    #[schema(format = "uuid")]
    pub id: String,
    #[schema(examples("running"))]
    pub state: &'static str,
    /// What it was started for: `api`, `worker`, or both.
    pub roles: Vec<&'static str>,
    /// What it does besides answering: it `works`; it `waits` for the worker to be gone; or it `stands-by`, without the
    /// role worker.
    #[schema(examples("works"))]
    pub work: &'static str,
    /// Since when that is so.
    #[schema(format = "date-time")]
    pub work_since: String,
    /// Why it could not begin to work when it was its turn.
    pub reason: Option<&'a str>,
    pub pid: u32,
    /// Connections to the API that are open.
    #[schema(minimum = 0)]
    pub connections: u64,
}

/// The node that delivers.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WorkerShown {
    #[schema(format = "uuid")]
    pub id: String,
    /// Where other nodes reach it.
    pub address: Option<String>,
    /// The number of its turn: who worked later has a larger one. Absent where one node has the data to itself.
    pub epoch: Option<u64>,
    /// When it last said so, by its own clock.
    #[schema(format = "date-time")]
    pub heard_at: Option<String>,
}

impl WorkerShown {
    pub fn of(node: &Node, duty: &Duty) -> Option<Self> {
        if !node.is_shared() {
            let id = node.membership().node.to_string();
            return Some(Self { id, address: None, epoch: None, heard_at: None });
        }
        let owner = duty.worker.as_ref()?;
        Some(Self {
            id: owner.node.to_string(),
            address: Some(owner.address.clone()).filter(|address| !address.is_empty()),
            epoch: Some(owner.epoch),
            heard_at: Some(owner.heard_at.to_string()),
        })
    }
}

/// A store or a queue.
#[derive(Serialize, ToSchema)]
pub(crate) struct EngineShown<'a> {
    pub engine: &'static str,
    /// Whether it works.
    pub healthy: bool,
    /// Why it does not.
    pub reason: Option<&'a str>,
}

impl<'a> EngineShown<'a> {
    pub fn new(engine: &'static str, trouble: Option<&'a str>) -> Self {
        Self { engine, healthy: trouble.is_none(), reason: trouble }
    }
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
    /// What does not work all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
}
