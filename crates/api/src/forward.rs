//! Sends on to the node that works what only that one can answer.
//!
//! Whoever called was asked for its rights here; the other node takes the request on a secret that stands in the row of
//! the lease, and never sends it on again.

use std::time::Duration;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use flare_node::lease::Owner;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri,
    header::{ACCEPT, CONNECTION, CONTENT_TYPE, RETRY_AFTER, TRANSFER_ENCODING},
    request::Parts,
};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioTimer,
};

use crate::{
    connection::Spawner,
    error::{self, ApiError},
    request_id,
};

/// Has the secret of the node that is asked.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("flare-forwarded");
/// The revision of the entities that the sender knows: the answer must not come from an older state.
pub(crate) const ENTITIES: HeaderName = HeaderName::from_static("flare-entities");

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// What goes on with a request, besides what is made for it.
const KEPT: [HeaderName; 5] = [
    CONTENT_TYPE,
    ACCEPT,
    request_id::HEADER,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];

/// Which node can answer a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// Every one.
    None,
    /// Every one, but the one that works knows more.
    Prefers,
    /// Only the one that works.
    Worker,
}

impl Need {
    pub fn of(method: &Method, path: &str) -> Self {
        let mut segments = path.split('/').skip(1);
        let mut next = || segments.next().unwrap_or_default();
        let (resources, _, subscriptions, _) = (next(), next(), next(), next());
        if (resources, subscriptions) != ("resources", "subscriptions") {
            return Self::None;
        }
        let is_reading = matches!(*method, Method::GET | Method::HEAD);
        match (next(), next()) {
            ("", _) if is_reading && path.split('/').count() == 5 => Self::Prefers,
            ("attempts", _) => Self::Prefers,
            ("test" | "lag" | "resync" | "replay" | "demand" | "messages", _)
            | ("dead-letters", "replay" | "discard") => Self::Worker,
            _ => Self::None,
        }
    }
}

/// Connections to other nodes.
pub(crate) struct Forwarder {
    pool: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Forwarder {
    /// None, and a word in the log, where there is no TLS to be had.
    pub fn new(spawner: Spawner) -> Option<Self> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let builder = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::aws_lc_rs::default_provider())
            .inspect_err(|error| tracing::error!(%error, "requests cannot be sent on to other nodes"));
        let connector = builder.ok()?.https_or_http().enable_http1().wrap_connector(http);
        Some(Self { pool: Client::builder(spawner).pool_timer(TokioTimer::new()).build(connector) })
    }

    /// The answer of the node that works, as it comes. `timeout` is for its beginning.
    pub async fn send(
        &self,
        to: &Owner,
        head: &Parts,
        body: Bytes,
        entities: u64,
        timeout: Duration,
    ) -> Result<Response, ApiError> {
        let request = request(to, head, body, entities)?;
        let answer = match tokio::time::timeout(timeout, self.pool.request(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                let detail = format!("the node that works, {} at {}, cannot be reached: {cause}", to.node, to.address);
                return Err(absent(detail));
            }
            Err(_) => {
                let detail = format!(
                    "the node that works, {} at {}, did not answer within {timeout:?}; what was asked for may or may \
                     not have been done, it can be repeated",
                    to.node, to.address
                );
                return Err(ApiError::new(error::TIMEOUT, detail).with_header(RETRY_AFTER, 1.into()));
            }
        };
        let (mut head, body) = answer.into_parts();
        head.headers.remove(CONNECTION);
        head.headers.remove(TRANSFER_ENCODING);
        head.extensions.clear();
        Ok(Response::from_parts(head, Body::new(body)))
    }
}

/// What only the node that works could answer, and there is none that could be asked.
pub(crate) fn absent(detail: impl Into<String>) -> ApiError {
    ApiError::new(error::WORKER_ABSENT, detail).with_header(RETRY_AFTER, 1.into())
}

fn request(to: &Owner, head: &Parts, body: Bytes, entities: u64) -> Result<Request<Full<Bytes>>, ApiError> {
    if to.address.is_empty() {
        let detail = format!(
            "the node that works, {}, does not say under which address others reach it; set `node.address` there",
            to.node
        );
        return Err(absent(detail));
    }
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let uri: Uri = format!("{}{target}", to.address)
        .parse()
        .map_err(|error| ApiError::internal(format!("the address of node {} is no URL: {error}", to.node)))?;
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    for name in KEPT {
        headers.extend(head.headers.get_all(&name).iter().map(|value| (name.clone(), value.clone())));
    }
    let mut secret = HeaderValue::from_str(to.secret.reveal())
        .map_err(|_| ApiError::internal(format!("the secret of node {} is damaged", to.node)))?;
    secret.set_sensitive(true);
    headers.insert(FORWARDED, secret);
    headers.insert(ENTITIES, entities.into());
    Ok(request)
}

/// The revision of the entities that the sender of a request knows.
pub(crate) fn entities_known(headers: &HeaderMap) -> u64 {
    headers.get(ENTITIES).and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_worker_does_is_asked_of_it() {
        let check = |method: Method, rest: &str, need: Need| {
            let path = format!("/resources/1/subscriptions/2{rest}");
            assert_eq!(Need::of(&method, &path), need, "{method} {path}");
        };
        for rest in ["/test", "/resync", "/replay", "/demand", "/messages/ack", "/dead-letters/replay"] {
            check(Method::POST, rest, Need::Worker);
        }
        for rest in ["/lag", "/lag/documents", "/replay", "/demand", "/messages"] {
            check(Method::GET, rest, Need::Worker);
        }
        check(Method::DELETE, "/replay", Need::Worker);
        check(Method::GET, "", Need::Prefers);
        check(Method::GET, "/attempts", Need::Prefers);
        check(Method::PUT, "", Need::None);
        check(Method::DELETE, "", Need::None);
        check(Method::GET, "/dead-letters", Need::None);
        for rest in ["/pause", "/resume", "/secret/rotate", "/nothing", "/"] {
            check(Method::POST, rest, Need::None);
        }
        for path in ["/", "/status", "/resources", "/resources/1/subscriptions", "/documents/http://a/messages"] {
            assert_eq!(Need::of(&Method::GET, path), Need::None, "{path}");
        }
    }
}
