//! Requests to the server that the options name.

use anyhow::Context;
use bytes::Bytes;
use http::Method;
use http::header::{HeaderName, HeaderValue};

pub use flare_client::{Body, NDJSON, segment};

use super::error::Error;
use super::options::{Options, ServerUrl};
use crate::version::VERSION;

/// A client of one server, whose failures are told to people.
pub struct Client {
    server: ServerUrl,
    client: flare_client::Client,
}

impl Client {
    /// A client of the server that the options name. Connects with the first request.
    pub fn new(options: &Options) -> anyhow::Result<Self> {
        let agent = HeaderValue::try_from(format!("flare/{VERSION}")).context("the version is no header")?;
        let authorization = options.token.as_ref().map(|token| token.header().clone());
        let server = options.url.clone();
        let client = flare_client::Client::new(server.as_str(), agent, authorization, options.timeout.get());
        Ok(Self { server, client: client.context("cannot set up TLS")? })
    }

    /// Sends a request for a path of the server and reads the whole answer; an answer that is not a success is an error.
    pub async fn send(&self, method: Method, path: &str, body: Option<Body>) -> Result<Bytes, Error> {
        self.client.send(method, path, body).await.map_err(|failure| Error::of(&self.server, failure))
    }

    /// As [`Client::send`], with a further header.
    pub async fn send_with_header(
        &self,
        method: Method,
        path: &str,
        (name, value): (&'static str, HeaderValue),
    ) -> Result<Bytes, Error> {
        let header = (HeaderName::from_static(name), value);
        let answer = self.client.send_with_header(method, path, header).await;
        answer.map_err(|failure| Error::of(&self.server, failure))
    }
}
