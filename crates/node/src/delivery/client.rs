//! The HTTP client of deliveries: pooled keep-alive connections, HTTP/1.1 and, by ALPN, HTTP/2. No redirects.

use std::{error::Error, sync::Arc};

use bytes::Bytes;
use flare_core::egress::Refused;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, rt::Executor};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;

use super::connect::{GuardedConnector, Resolve, SystemResolver};
use crate::{
    settings::Settings,
    supervisor::{Failure, Supervisor},
};

/// How much of the body of an answer is shown to people.
const ANSWER_BYTES_KEPT: usize = 1024;

/// What an endpoint said.
pub(crate) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// The beginning of the body.
    pub body: Vec<u8>,
    /// How much of the body was read.
    pub body_bytes: usize,
}

pub(crate) struct Client {
    inner: legacy::Client<HttpsConnector<GuardedConnector>, Full<Bytes>>,
    response_bytes_max: usize,
    supervisor: Supervisor,
}

impl Client {
    pub fn new(settings: &Settings, supervisor: &Supervisor) -> Result<Self, rustls::Error> {
        let resolver: Arc<dyn Resolve> = Arc::new(SystemResolver);
        Self::resolving_by(&resolver, settings, supervisor)
    }

    fn resolving_by(
        resolver: &Arc<dyn Resolve>,
        settings: &Settings,
        supervisor: &Supervisor,
    ) -> Result<Self, rustls::Error> {
        let builder = HttpsConnectorBuilder::new();
        let builder = match &settings.tls {
            Some(tls) => builder.with_tls_config(tls.clone()),
            None => builder.with_provider_and_webpki_roots(rustls::crypto::aws_lc_rs::default_provider())?,
        };
        let connector = builder
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(GuardedConnector::new(settings, resolver));
        let inner = legacy::Client::builder(Supervised(supervisor.clone()))
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .timer(hyper_util::rt::TokioTimer::new())
            .pool_idle_timeout(settings.idle_timeout)
            .pool_max_idle_per_host(settings.requests_max)
            .build(connector);
        Ok(Self { inner, response_bytes_max: settings.response_bytes_max, supervisor: supervisor.clone() })
    }

    /// Sends the request and reads the answer to its end, or as far as it is allowed to go on.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Answer, String> {
        // A node that has slept through its turn sends nothing that another one may be sending.
        self.supervisor.in_time().await;
        let response = self.inner.request(request).await.map_err(|error| describe(&error))?;
        self.drain(response).await
    }

    /// A connection can be used again only when the answer was read. A body past the bound is dropped, and with it
    /// the connection: the status is known, and no client makes Flare read for ever.
    async fn drain(&self, response: Response<Incoming>) -> Result<Answer, String> {
        let (parts, mut body) = response.into_parts();
        let mut answer = Answer { status: parts.status, headers: parts.headers, body: Vec::new(), body_bytes: 0 };
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { break };
            let Some(data) = frame.data_ref() else { continue };
            answer.body_bytes += data.len();
            if answer.body_bytes > self.response_bytes_max {
                break;
            }
            let room = ANSWER_BYTES_KEPT - answer.body.len();
            answer.body.extend_from_slice(&data[..data.len().min(room)]);
        }
        Ok(answer)
    }
}

/// The error with its causes, in one line. An address that is not allowed says all that there is to say.
fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(refused) = cause.downcast_ref::<Refused>() {
            return refused.to_string();
        }
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// Runs the tasks of connections under the supervisor.
#[derive(Clone)]
struct Supervised(Supervisor);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Supervised {
    fn execute(&self, task: F) {
        self.0.spawn("delivery-connection", Failure::IsLogged, task);
    }
}

#[cfg(test)]
mod tests;
