//! What the node says about itself, and the pages that describe the API.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use flare_node::{Status, Work};
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;

use super::json;
use crate::{
    api::Shared,
    error::{self, ApiError},
    openapi::{self, Always, Asked},
    wire::overview::{EngineShown, Fine, NodeShown, Overview, StatusShown, WorkerShown},
};

/// The page may run its own script and style and read the OpenAPI page, and nothing else.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                              connect-src 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'";

/// Who answers.
#[utoipa::path(get, path = "/", operation_id = "getOverview", tag = "node",
    responses((status = 200, description = "Name, version and uptime", body = Overview), Asked))]
pub(crate) async fn root(State(shared): State<Arc<Shared>>) -> Result<Response, ApiError> {
    let now = Timestamp::now();
    let started_at = shared.settings.started_at;
    let overview = Overview {
        name: "flare",
        version: &shared.settings.version,
        start_time_epoch_secs: started_at.as_second(),
        current_time_epoch_secs: now.as_second(),
        uptime: format!("{}seconds", uptime_seconds(started_at, now)),
    };
    json(StatusCode::OK, &overview)
}

/// How the node is.
#[utoipa::path(get, path = "/status", operation_id = "getStatus", tag = "node",
    responses((status = 200, description = "Repository, counts and deliveries", body = StatusShown), Asked))]
pub(crate) async fn status(State(shared): State<Arc<Shared>>) -> Result<Response, ApiError> {
    let (status, membership) = (shared.node.status(), shared.node.membership());
    let started_at = shared.settings.started_at;
    let shown = StatusShown {
        version: &shared.settings.version,
        started_at: started_at.to_string(),
        uptime_seconds: uptime_seconds(started_at, Timestamp::now()),
        node: NodeShown {
            id: membership.node.to_string(),
            state: if shared.stop.is_cancelled() { "stopping" } else { "running" },
            roles: membership.roles.names(),
            work: match status.duty.work {
                Work::Works => "works",
                Work::Waits => "waits",
                Work::StandsBy => "stands-by",
            },
            work_since: status.duty.since.to_string(),
            reason: status.duty.trouble.as_deref(),
            pid: std::process::id(),
            connections: shared.connections_open() as u64,
        },
        worker: WorkerShown::of(&shared.node, &status.duty),
        repository: EngineShown::new(status.engine, status.trouble.as_deref()),
        queue: status.queue.as_ref().map(|queue| EngineShown::new(queue.engine, queue.trouble.as_deref())),
        resources: status.streams as u64,
        subscriptions: status.outlets as u64,
        sequence: status.sequence.0,
        deliveries: (&status).into(),
    };
    json(StatusCode::OK, &shown)
}

/// Whether the process runs.
///
/// Needs no token.
#[utoipa::path(get, path = "/health", operation_id = "getHealth", tag = "node", security(()),
    responses((status = 200, description = "It runs", body = Fine), Always))]
pub(crate) async fn health() -> Result<Response, ApiError> {
    json(StatusCode::OK, &Fine { status: "ok", reason: None })
}

/// Whether the node can take writes.
///
/// Needs no token. The 503 says why it cannot. A node that waits for its turn to work, or never does, can; so can one whose
/// queue is away.
#[utoipa::path(get, path = "/ready", operation_id = "getReady", tag = "node", security(()),
    responses((status = 200, description = "It can", body = Fine), Always))]
pub(crate) async fn ready(State(shared): State<Arc<Shared>>) -> Result<Response, ApiError> {
    if shared.stop.is_cancelled() {
        return Err(ApiError::new(error::NOT_READY, "the node is stopping"));
    }
    let status = shared.node.status();
    match status.trouble {
        Some(trouble) => {
            let detail = format!("the repository ({}) is in trouble: {trouble}", status.engine);
            Err(ApiError::new(error::NOT_READY, detail))
        }
        None => json(StatusCode::OK, &Fine { status: "ready", reason: queue_trouble(&status) }),
    }
}

/// Documents are taken and delivered all the same, around the queue.
fn queue_trouble(status: &Status) -> Option<String> {
    let queue = status.queue.as_ref()?;
    let trouble = queue.trouble.as_ref()?;
    Some(format!("deliveries go around the queue ({}), which is in trouble: {trouble}", queue.engine))
}

/// This API as OpenAPI 3.1.
#[utoipa::path(get, path = "/openapi.json", operation_id = "getOpenApi", tag = "node",
    responses((status = 200, description = "The OpenAPI page", body = serde_json::Value,
        content_type = "application/json"), Asked))]
pub(crate) async fn openapi(State(shared): State<Arc<Shared>>) -> Response {
    let page = openapi::openapi_json(&shared.settings);
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], page).into_response()
}

/// This API as a page for people.
#[utoipa::path(get, path = "/docs", operation_id = "getDocs", tag = "node",
    responses((status = 200, description = "A page that needs nothing else", body = String,
        content_type = "text/html"), Asked))]
pub(crate) async fn docs() -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, include_str!("../docs.html")).into_response()
}

/// Zero when the clock was set back.
fn uptime_seconds(started_at: Timestamp, now: Timestamp) -> i64 {
    (now.as_second() - started_at.as_second()).max(0)
}
