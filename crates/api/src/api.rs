//! Answers one request: admits it, dispatches it, and finishes the answer.
//!
//! Documents are dispatched here, before the router: their URL is in the path and must not be decoded on the way, and
//! theirs is the path that has to be short.

use std::{fmt, net::IpAddr, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use flare_core::{TokenId, url::DocumentUrl};
use flare_node::{Node, Supervisor};
use futures_util::FutureExt;
use http::{
    HeaderValue, Method, Request, StatusCode, Uri,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, CONTENT_LENGTH, RETRY_AFTER, VARY,
    },
    request::Parts,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::{
    access::Caller,
    audit::Audit,
    body::{BodyLimits, collect},
    connection::Spawner,
    error::{self, ApiError, Subject},
    forward::{self, Forwarder, Need},
    guard::Guard,
    request_id::{self, RequestId},
    routes::{self, documents},
    settings::ApiSettings,
};

/// Headers of answers that pages of a listed origin may read.
const EXPOSED: &str = "flare-revision, flare-updated-at, idempotency-replayed, location, retry-after, x-request-id";

/// The API of a node. Clones are one API.
#[derive(Clone)]
pub struct Api {
    shared: Arc<Shared>,
    router: Router,
}

/// What all handlers know.
pub(crate) struct Shared {
    pub node: Arc<Node>,
    pub settings: ApiSettings,
    guard: Guard,
    /// There where several nodes share the data.
    forwarder: Option<Forwarder>,
    pub supervisor: Supervisor,
    /// Set when the server stops.
    pub stop: CancellationToken,
    /// A place for each connection that may be open.
    pub connections: Arc<Semaphore>,
}

impl Shared {
    pub fn connections_open(&self) -> usize {
        self.settings.connections_max - self.connections.available_permits()
    }
}

impl Api {
    pub fn new(node: Arc<Node>, settings: ApiSettings, supervisor: Supervisor, stop: CancellationToken) -> Self {
        let issued = {
            let node = node.clone();
            move |text: &[u8]| node.tokens().presented(text)
        };
        let guard = Guard::new(&settings, node.membership().secret.clone(), Box::new(issued));
        let connections = Arc::new(Semaphore::new(settings.connections_max));
        let forwarder = if node.is_shared() { Forwarder::new(Spawner(supervisor.clone())) } else { None };
        let shared = Arc::new(Shared { node, settings, guard, forwarder, supervisor, stop, connections });
        Self { router: routes::router(shared.clone()), shared }
    }

    /// Answers a request that came from `peer`. A handler that panics is answered with 500.
    pub async fn answer<B>(&self, request: Request<B>, peer: IpAddr) -> Response
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let name = RequestName { method: request.method().clone(), uri: request.uri().clone() };
        let id = RequestId::sent(request.headers());
        let mut audit = Audit::of(&name, id.as_ref(), peer);
        let response = AssertUnwindSafe(self.respond(request, peer, &mut audit.caller)).catch_unwind().await;
        let response = response.unwrap_or_else(|_| Err(ApiError::internal("a handler panicked")));
        let response = finish(response, id, &name);
        audit.close(&response);
        response
    }

    /// Says who called in `caller`, as soon as it is known.
    async fn respond<B>(&self, request: Request<B>, peer: IpAddr, caller: &mut Caller) -> Result<Response, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let (head, body) = request.into_parts();
        if self.shared.node.is_shared() && self.shared.guard.has_unknown_token(&head) {
            self.look_again().await?;
        }
        let admission = self.shared.guard.admit(&head, peer)?;
        *caller = admission.caller;
        if let Some(origin) = admission.origin {
            let mut response = if admission.is_preflight {
                preflight()
            } else {
                self.dispatch(caller, head, body).await.unwrap_or_else(IntoResponse::into_response)
            };
            response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            response.headers_mut().append(VARY, HeaderValue::from_static("origin"));
            response.headers_mut().insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
            return Ok(response);
        }
        self.dispatch(caller, head, body).await
    }

    async fn dispatch<B>(&self, caller: &Caller, mut head: Parts, body: B) -> Result<Response, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        if self.shared.node.is_shared() {
            self.prepare(caller, &head).await?;
        }
        caller.check(&head, &self.shared.node)?;
        if !matches!(caller, Caller::Node) && !self.shared.node.works() {
            match Need::of(&head.method, head.uri.path()) {
                Need::Worker => return self.forward(&head, body).await,
                // What is known here is better than nothing.
                Need::Prefers => {
                    if let Ok(response) = self.forward(&head, Body::empty()).await
                        && response.status() != StatusCode::SERVICE_UNAVAILABLE
                    {
                        return Ok(response);
                    }
                }
                Need::None => {}
            }
        }
        if head.uri.path().starts_with(documents::PREFIX) {
            return documents::answer(&self.shared, &head, body).await;
        }
        head.extensions.insert(caller.clone());
        let request = Request::from_parts(head, Body::new(body));
        let mut router = self.router.clone();
        match Service::<Request<Body>>::call(&mut router, request).await {
            Ok(response) => Ok(response),
            Err(never) => match never {},
        }
    }

    /// Among several nodes: refuses what this one does not do, and finds out about what others have just made.
    async fn prepare(&self, caller: &Caller, head: &Parts) -> Result<(), ApiError> {
        let node = &self.shared.node;
        let path = head.uri.path();
        if matches!(caller, Caller::Node) {
            if Need::of(&head.method, path) == Need::None {
                return Err(ApiError::new(error::FORBIDDEN, "other nodes ask only for what a worker does"));
            }
            if !node.works() {
                return Err(forward::absent("the request was sent on to this node, which does not work any more"));
            }
            if forward::entities_known(&head.headers) > node.entities_revision() {
                self.look_again().await?;
            }
        } else if !node.membership().roles.api && !matches!(path, "/" | "/status" | "/health" | "/ready") {
            let detail = "this node has only the role \"worker\" (`node.roles`); send the request to one that has the \
                          role \"api\"";
            return Err(ApiError::new(error::NO_API, detail));
        }
        if is_unknown(node, head) { self.look_again().await } else { Ok(()) }
    }

    async fn look_again(&self) -> Result<(), ApiError> {
        self.shared.node.look_again().await.map_err(|error| ApiError::of(&error, Subject::Resource))
    }

    /// Has the node that works answer.
    async fn forward<B>(&self, head: &Parts, body: B) -> Result<Response, ApiError>
    where
        B: http_body::Body<Data = Bytes>,
    {
        let (node, settings) = (&self.shared.node, &self.shared.settings);
        let duty = node.duty();
        let worker = duty.worker.as_ref().filter(|worker| worker.node != node.membership().node);
        let (Some(worker), Some(forwarder)) = (worker, &self.shared.forwarder) else {
            return Err(forward::absent(duty.absence()));
        };
        let body = match head.method {
            Method::GET | Method::HEAD => Bytes::new(),
            _ => collect(body, BodyLimits::single(settings)).await?,
        };
        // The other node has its time, and this one some more to be told of it.
        let timeout = routes::time_for(head.uri.path(), settings) + settings.timeout;
        forwarder.send(worker, head, body, node.entities_revision(), timeout).await
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}

/// Whether the path speaks of something that this node does not know.
fn is_unknown(node: &Node, head: &Parts) -> bool {
    let path = head.uri.path();
    if let Some(url) = path.strip_prefix(documents::PREFIX) {
        let url = DocumentUrl::from_request(url, head.uri.query());
        return url.is_ok_and(|url| node.stream_of(&url).is_none());
    }
    let mut segments = path.split('/').skip(1);
    let mut next = || segments.next().unwrap_or_default();
    match (next(), next(), next(), next()) {
        ("resources", id, "subscriptions", sid) if !sid.is_empty() => match (id.parse(), sid.parse()) {
            (Ok(id), Ok(sid)) => node.outlet(id, sid).is_none(),
            _ => false,
        },
        ("resources", id, ..) => id.parse().is_ok_and(|id| node.stream(id).is_none()),
        ("tokens", id, ..) => id.parse().is_ok_and(|id| node.tokens().get(id).is_none()),
        _ => false,
    }
}

/// Bounds what a handler does after the body has arrived.
pub(crate) async fn within<T>(
    timeout: Duration,
    work: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    match tokio::time::timeout(timeout, work).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let detail = format!(
                "there was no result within {timeout:?}; a write may or may not have been kept, it can be repeated"
            );
            Err(ApiError::new(error::TIMEOUT, detail).with_header(RETRY_AFTER, HeaderValue::from_static("1")))
        }
    }
}

/// Renders an error, and names the request where the client named it or something went wrong.
fn finish(response: Result<Response, ApiError>, id: Option<RequestId>, name: &RequestName) -> Response {
    let mut response = response.unwrap_or_else(IntoResponse::into_response);
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        let id = id.unwrap_or_else(RequestId::make);
        let mut rendered = error.render(&id, name);
        // What was added on the way out stays, but for the length of the body that is replaced.
        response.headers_mut().remove(CONTENT_LENGTH);
        rendered.headers_mut().extend(std::mem::take(response.headers_mut()));
        rendered.headers_mut().insert(request_id::HEADER, id.header());
        return rendered;
    }
    if let Some(id) = id {
        response.headers_mut().insert(request_id::HEADER, id.header());
    }
    response
}

fn preflight() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE"));
    let allowed = "authorization, content-type, flare-revision, idempotency-key, traceparent, tracestate, x-request-id";
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(allowed));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// A request in the log.
pub(crate) struct RequestName {
    pub method: Method,
    pub uri: Uri,
}

impl RequestName {
    /// Without the query, and without what should be the id of a token but could be the token itself.
    pub fn path(&self) -> &str {
        let path = self.uri.path();
        match path.strip_prefix("/tokens/") {
            Some(id) if id.parse::<TokenId>().is_err() => "/tokens/[hidden]",
            _ => path,
        }
    }
}

impl fmt::Display for RequestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path())
    }
}
