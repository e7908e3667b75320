//! A small client of the API: one request, one answer.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value as Json;

use crate::wait::within;

/// Keeps connections open between requests. Clones share them.
#[derive(Clone)]
pub struct Client {
    base: String,
    inner: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
}

/// The server gave no answer: it was not there, or it went away.
#[derive(Debug)]
pub struct Unanswered(pub String);

/// What the server answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// What was asked, for messages.
    asked: String,
}

impl Client {
    pub fn new(addr: SocketAddr) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let inner = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
        Self { base: format!("http://{addr}"), inner }
    }

    /// Sends a request with these headers and waits for the whole answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Answer, Unanswered> {
        let asked = format!("{method} {path}");
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).expect("the scenario asks for a request that can be sent");
        let exchange = async {
            let answer = self.inner.request(request).await.map_err(|error| format!("{error:?}"))?;
            let (head, body) = answer.into_parts();
            let body = body.collect().await.map_err(|error| format!("{error:?}"))?.to_bytes();
            Ok(Answer { status: head.status.as_u16(), headers: head.headers, body, asked: asked.clone() })
        };
        within(&asked, exchange).await.map_err(Unanswered)
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], Bytes::new()).await.unwrap()
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &[], Bytes::new()).await.unwrap()
    }

    pub async fn post(&self, path: &str, body: &Json) -> Answer {
        self.send(Method::POST, path, JSON, body.to_string()).await.unwrap()
    }

    pub async fn put(&self, path: &str, body: &Json) -> Answer {
        self.send(Method::PUT, path, JSON, body.to_string()).await.unwrap()
    }

    /// Publishes a document.
    pub async fn put_document(&self, url: &str, document: &Json) -> Answer {
        self.put(&document_path(url), document).await
    }

    /// Publishes a document to a server that may be gone.
    pub async fn try_put_document(&self, url: &str, document: &Json) -> Result<Answer, Unanswered> {
        self.send(Method::PUT, &document_path(url), JSON, document.to_string()).await
    }

    pub async fn get_document(&self, url: &str) -> Answer {
        self.get(&document_path(url)).await
    }

    pub async fn delete_document(&self, url: &str) -> Answer {
        self.delete(&document_path(url)).await
    }
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

fn document_path(url: &str) -> String {
    format!("/documents/{url}")
}

impl Answer {
    /// Fails the scenario unless the status is this one.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{} was answered with {}: {}", self.asked, self.status, self.text());
        self
    }

    /// Fails the scenario unless it is an error of this status and code, in the shape of every error.
    #[track_caller]
    pub fn expect_error(self, status: u16, code: &str) -> Self {
        let answer = self.expect(status);
        let error = &answer.json()["error"];
        assert_eq!(error["code"], code, "{}: {}", answer.asked, answer.text());
        for member in ["title", "detail", "requestId"] {
            assert!(error[member].is_string(), "{}: no {member} in {}", answer.asked, answer.text());
        }
        answer
    }

    #[track_caller]
    pub fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{}: {error}: {}", self.asked, self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}
