//! Requests to the API of a Flare server. What answers mean, and how failures are told, is left to the callers.

mod failure;

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{HeaderName, Method, Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

pub use self::failure::{Failure, is_temporary};

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// The content type of one JSON document.
pub const JSON: &str = "application/json";

/// The content type of many JSON documents, one per line.
pub const NDJSON: &str = "application/x-ndjson";

/// A connection pool to one server, with what every request to it carries.
pub struct Client {
    /// Without a slash at its end: a path of the API can be appended.
    server: String,
    agent: HeaderValue,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// The body of a request with its content type.
pub struct Body {
    /// The content type.
    pub kind: &'static str,
    /// The bytes.
    pub bytes: Bytes,
}

impl Body {
    /// A JSON body.
    pub fn json(bytes: impl Into<Bytes>) -> Self {
        Self { kind: JSON, bytes: bytes.into() }
    }
}

impl Client {
    /// A client of the server at a URL. Connects with the first request. `authorization` is the value of the header.
    pub fn new(
        server: impl Into<String>,
        agent: HeaderValue,
        authorization: Option<HeaderValue>,
        timeout: Duration,
    ) -> Result<Self, rustls::Error> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(provider)?
            .https_or_http()
            .enable_http1()
            .build();
        let pool = Pool::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        Ok(Self { server: server.into(), agent, authorization, timeout, pool })
    }

    /// Sends a request for a path of the server and reads the whole answer; an answer that is not a success is a
    /// failure.
    pub async fn send(&self, method: Method, path: &str, body: Option<Body>) -> Result<Bytes, Failure> {
        self.send_request(self.request(method, path, body)?).await
    }

    /// As [`Client::send`], with a further header.
    pub async fn send_with_header(
        &self,
        method: Method,
        path: &str,
        (name, value): (HeaderName, HeaderValue),
    ) -> Result<Bytes, Failure> {
        let mut request = self.request(method, path, None)?;
        request.headers_mut().insert(name, value);
        self.send_request(request).await
    }

    async fn send_request(&self, request: Request<Full<Bytes>>) -> Result<Bytes, Failure> {
        let answer = tokio::time::timeout(self.timeout, self.exchange(request)).await;
        answer.unwrap_or(Err(Failure::Timeout { after: self.timeout }))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Bytes, Failure> {
        let answer = self.pool.request(request).await.map_err(|cause| Failure::unreachable(&cause))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|cause| Failure::broken(cause.as_ref()))?.to_bytes();
        if head.status.is_success() {
            return Ok(body);
        }
        let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Err(Failure::Refused { status: head.status, body, retry_after: retry_after.map(Duration::from_secs) })
    }

    fn request(&self, method: Method, path: &str, body: Option<Body>) -> Result<Request<Full<Bytes>>, Failure> {
        let uri: Uri = format!("{}{path}", self.server).parse().map_err(|_| Failure::Path(path.to_owned()))?;
        let mut request = Request::new(Full::new(body.as_ref().map(|body| body.bytes.clone()).unwrap_or_default()));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, self.agent.clone());
        if let Some(body) = body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(body.kind));
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        Ok(request)
    }
}

/// The header value of a bearer token, which is not shown; `None` if it cannot be one.
pub fn bearer(token: &str) -> Option<HeaderValue> {
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).ok().filter(|_| !token.is_empty())?;
    header.set_sensitive(true);
    Some(header)
}

/// The text as one segment of a path, percent-encoded.
pub fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    // A lone dot segment would be removed by what normalizes paths.
    match encoded.as_str() {
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        _ => encoded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_holds_any_text() {
        let check = |text: &str, expected: &str| assert_eq!(segment(text), expected);
        check("0190-ab_c.~", "0190-ab_c.~");
        check("http://a.com/users/1?x=y z", "http%3A%2F%2Fa.com%2Fusers%2F1%3Fx%3Dy%20z");
        check("é", "%C3%A9");
        check("..", "%2E%2E");
    }

    #[test]
    fn a_token_is_not_shown() {
        assert!(!format!("{:?}", bearer("hunter2").unwrap()).contains("hunter2"));
        assert!(bearer("a\nb").is_none());
        assert!(bearer("").is_none());
    }
}
