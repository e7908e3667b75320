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
use flare_core::TokenId;
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
    error::{self, ApiError},
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
        let guard = Guard::new(&settings, Box::new(issued));
        let connections = Arc::new(Semaphore::new(settings.connections_max));
        let shared = Arc::new(Shared { node, settings, guard, supervisor, stop, connections });
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
        caller.check(&head, &self.shared.node)?;
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

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
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
