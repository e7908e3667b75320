//! The routes, and what they share.

pub(crate) mod bulk;
pub(crate) mod documents;
pub(crate) mod life;
pub(crate) mod overview;
pub(crate) mod passive;
pub(crate) mod replay;
pub(crate) mod resources;
pub(crate) mod secret;
pub(crate) mod subscriptions;
pub(crate) mod tokens;

use std::{sync::Arc, time::Duration};

use aws_lc_rs::digest;
use axum::{
    Router,
    body::Body,
    extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use flare_core::{OutletId, StreamId, port::Idempotency};
use flare_node::{Supervisor, supervisor::Failure};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts};
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::{
    api::{Shared, within},
    body::{BodyLimits, collect},
    error::{self, ApiError},
    settings::ApiSettings,
};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
const KEY_BYTES_MAX: usize = 255;

/// All paths but those of single documents.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(overview::root))
        .route("/status", get(overview::status))
        .route("/health", get(overview::health))
        .route("/ready", get(overview::ready))
        .route("/openapi.json", get(overview::openapi))
        .route("/docs", get(overview::docs))
        .route("/resources", get(resources::list).post(resources::create))
        .route("/resources/{id}", get(resources::show).delete(resources::delete))
        .route("/resources/{id}/documents", get(documents::list))
        .route("/resources/{id}/subscriptions", get(subscriptions::list).post(subscriptions::create))
        .route(
            "/resources/{id}/subscriptions/{sid}",
            get(subscriptions::show).put(subscriptions::update).delete(subscriptions::delete),
        )
        .merge(subscription_routes())
        .route("/tokens", get(tokens::list).post(tokens::create))
        .route("/tokens/{tid}", get(tokens::show).delete(tokens::revoke))
        .route("/resources/{id}/subscriptions/{sid}/secret/rotate", post(secret::rotate))
        .route(bulk::PATH, post(bulk::write))
        .route_layer(from_fn_with_state(shared.clone(), bounded))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(shared)
}

/// What is below one subscription.
fn subscription_routes() -> Router<Arc<Shared>> {
    let below = |rest: &str| format!("/resources/{{id}}/subscriptions/{{sid}}/{rest}");
    Router::new()
        .route(&below("pause"), post(life::pause))
        .route(&below("resume"), post(life::resume))
        .route(&below("test"), post(life::test))
        .route(&below("lag"), get(life::lag))
        .route(&below("lag/documents"), get(life::lag_documents))
        .route(&below("resync"), post(life::resync))
        .route(&below("replay"), get(replay::show).post(replay::start).delete(replay::cancel))
        .route(&below("attempts"), get(life::attempts))
        .route(&below("dead-letters"), get(life::dead_letters))
        .route(&below("dead-letters/replay"), post(life::replay_dead_letters))
        .route(&below("dead-letters/discard"), post(life::discard_dead_letters))
        .route(&below("demand"), get(passive::demand).post(passive::add_demand))
        .route(passive::MESSAGES_PATH, get(passive::pull))
        .route(&below("messages/ack"), post(passive::ack))
        .route(&below("messages/nack"), post(passive::nack))
        .route(&below("messages/extend"), post(passive::extend))
}

/// Reads the body within its limits, then gives the handler its time.
async fn bounded(
    State(shared): State<Arc<Shared>>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let settings = &shared.settings;
    let is_bulk = path.as_str() == bulk::PATH;
    let limits = if is_bulk { BodyLimits::batch(settings) } else { BodyLimits::single(settings) };
    let timeout = time_for(path.as_str(), settings);
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        // Nothing reads the body.
        return within(timeout, async { Ok(next.run(request).await) }).await;
    }
    let (head, body) = request.into_parts();
    let request = Request::from_parts(head, Body::from(collect(body, limits).await?));
    within(timeout, to_its_end(&shared.supervisor, next.run(request))).await
}

/// The time of a request after its body has arrived.
pub(crate) fn time_for(path: &str, settings: &ApiSettings) -> Duration {
    let ends_with = |last: &str| path.ends_with(last);
    if ends_with(passive::MESSAGES_END) {
        return passive::WAIT_MAX + settings.timeout;
    }
    if ends_with("/test") {
        return settings.delivery.timeout_max + settings.timeout;
    }
    // The work of a bulk write grows with its body, so it gets the time of a body. The others look at every document of
    // the resource.
    if path == bulk::PATH || ends_with("/resync") || ends_with("/lag") {
        return settings.body_timeout;
    }
    settings.timeout
}

/// Runs a write in a task of its own: when the client goes away or the time is up, only the waiting ends. A write that
/// was dropped half way could leave the node's memory and its store apart.
async fn to_its_end(
    supervisor: &Supervisor,
    write: impl Future<Output = Response> + Send + 'static,
) -> Result<Response, ApiError> {
    let (tell, told) = oneshot::channel();
    supervisor.spawn("http write", Failure::IsLogged, async move {
        // Nobody may be waiting any more.
        let _ = tell.send(write.await);
    });
    told.await.map_err(|_| ApiError::internal("a handler panicked"))
}

async fn unknown_path(request: Request) -> ApiError {
    let detail = format!("there is nothing at {:?}; /docs lists the paths", request.uri().path());
    ApiError::new(error::NOT_FOUND, detail)
}

/// The router adds the `Allow` header.
async fn wrong_method(request: Request) -> ApiError {
    let detail = format!("{} is not allowed at {:?}; see the Allow header", request.method(), request.uri().path());
    ApiError::new(error::METHOD_NOT_ALLOWED, detail)
}

/// The `{id}` of a path. What cannot be an id names nothing.
pub(crate) struct ResourcePath(pub StreamId);

impl<S: Send + Sync> FromRequestParts<S> for ResourcePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = path_parameter(parts, state, "id").await;
        id.parse().map(Self).map_err(|_| no_resource(&id))
    }
}

/// The `{id}` and `{sid}` of a path.
pub(crate) struct SubscriptionPath(pub StreamId, pub OutletId);

impl<S: Send + Sync> FromRequestParts<S> for SubscriptionPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let ResourcePath(stream) = ResourcePath::from_request_parts(parts, state).await?;
        let id = path_parameter(parts, state, "sid").await;
        id.parse().map(|outlet| Self(stream, outlet)).map_err(|_| no_subscription(&id))
    }
}

async fn path_parameter<S: Send + Sync>(parts: &mut Parts, state: &S, name: &str) -> String {
    let Ok(parameters) = RawPathParams::from_request_parts(parts, state).await else { return String::new() };
    parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_owned()).unwrap_or_default()
}

pub(crate) fn no_resource(id: &dyn std::fmt::Display) -> ApiError {
    ApiError::new(error::RESOURCE_NOT_FOUND, format!("resource {id} does not exist"))
}

pub(crate) fn no_subscription(id: &dyn std::fmt::Display) -> ApiError {
    ApiError::new(error::SUBSCRIPTION_NOT_FOUND, format!("subscription {id} does not exist"))
}

/// A JSON answer.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Result<Response, ApiError> {
    let body =
        serde_json::to_vec(value).map_err(|error| ApiError::internal(format!("could not write JSON: {error}")))?;
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The answer to a creation: the entity, where it is, and whether the same request had made it before.
pub(crate) fn created(value: &impl Serialize, location: &str, is_replay: bool) -> Result<Response, ApiError> {
    let mut response = json(StatusCode::CREATED, value)?;
    let location = HeaderValue::from_str(location).expect("ids are visible ASCII");
    response.headers_mut().insert(header::LOCATION, location);
    if is_replay {
        response.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

pub(crate) fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// What `curl -d` says when it is not told otherwise: it is read as JSON, so that the first command a person types works.
/// A web page cannot use this to call from elsewhere, because its `Origin` is checked.
const CURL_DEFAULT: &str = "application/x-www-form-urlencoded";

/// A body that describes an entity must be JSON, or not say what it is.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    match media_type(headers).as_deref() {
        None | Some("application/json" | CURL_DEFAULT) => Ok(()),
        Some(other) => Err(unsupported(other, "application/json")),
    }
}

/// The media type of the body, in lower case and without parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?;
    let value = value.to_str().unwrap_or("unreadable");
    let essence = value.split(';').next().unwrap_or_default().trim();
    (!essence.is_empty()).then(|| essence.to_ascii_lowercase())
}

pub(crate) fn unsupported(seen: &str, allowed: &str) -> ApiError {
    ApiError::new(error::UNSUPPORTED_TYPE, format!("the Content-Type is {seen:?}, it must be {allowed}"))
}

/// The client's key for a creation, and what it stands for.
pub(crate) fn idempotency(parts: &Parts, body: &Bytes) -> Result<Option<Idempotency>, ApiError> {
    let Some(value) = parts.headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = value
        .to_str()
        .ok()
        .filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()));
    let Some(key) = key else {
        let detail = format!("Idempotency-Key must be 1 to {KEY_BYTES_MAX} visible ASCII characters without spaces");
        return Err(ApiError::new(error::INVALID_HEADER, detail));
    };
    let mut context = digest::Context::new(&digest::SHA256);
    for part in [parts.method.as_str(), parts.uri.path()] {
        context.update(part.as_bytes());
        context.update(b"\n");
    }
    context.update(body);
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(context.finish().as_ref());
    Ok(Some(Idempotency { key: key.to_owned(), fingerprint, at: Timestamp::now() }))
}
