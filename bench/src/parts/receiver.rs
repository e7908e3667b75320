//! The subscribers, all in one process: counts the POSTs to `/s/{outlet}`, their latency, and whether every outlet is
//! up to date and none went backwards. A POST to `/hang/…` is never answered, one to `/gate/…` gets a 503 until the gate is
//! open. A second port is for control: `GET /stats`, `POST /reset`, `POST /gate/open`.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::document::{self, unix_nanos};
use crate::histogram::Histogram;
use crate::http::listen;
use crate::parts::{Listening, say};
use crate::process::Usage;

/// Made at once, so that growing the table does not show up as latency.
const PAIRS_EXPECTED: usize = 1 << 20;
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    pub count: u64,
    pub p50_nanos: u64,
    pub p99_nanos: u64,
    pub max_nanos: u64,
    pub last_at_nanos: u64,
    /// The newest revision of each (outlet, document), added up.
    pub revision_sum: u64,
    /// Deliveries of a revision that the outlet had already.
    pub repeated: u64,
    /// Deliveries of an older revision than the outlet had: a broken promise.
    pub backwards: u64,
    pub unreadable: u64,
    pub hanging: u64,
    pub cpu_micros: u64,
}

struct Tally {
    stats: Stats,
    latency: Histogram,
    newest: HashMap<(u32, u64), u64>,
    gate_is_open: bool,
}

impl Default for Tally {
    fn default() -> Self {
        let newest = HashMap::with_capacity(PAIRS_EXPECTED);
        Self { stats: Stats::default(), latency: Histogram::default(), newest, gate_is_open: false }
    }
}

type Shared = Arc<Mutex<Tally>>;

pub async fn run() -> Result<()> {
    let (deliveries, control) = (listen().await?, listen().await?);
    say(&Listening { addr: deliveries.local_addr()?, control: Some(control.local_addr()?) })?;
    let tally = Shared::default();
    tokio::join!(serve(deliveries, tally.clone(), receive), serve(control, tally, answer_control));
    Ok(())
}

async fn serve<F, A>(listener: TcpListener, tally: Shared, answer: F)
where
    F: Fn(Shared, Request<Incoming>) -> A + Copy + Send + 'static,
    A: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors: those who wait get their turn when others have left.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let tally = tally.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(tally.clone(), request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            // A connection that the sender cuts is the sender's business.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn receive(tally: Shared, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return status(StatusCode::BAD_REQUEST) };
    if head.uri.path().starts_with("/hang/") {
        tally.lock().stats.hanging += 1;
        pending::<()>().await;
    }
    if head.uri.path().starts_with("/gate/") && !tally.lock().gate_is_open {
        return status(StatusCode::SERVICE_UNAVAILABLE);
    }
    let outlet = head.uri.path().rsplit('/').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    tally.lock().record(outlet, &body.to_bytes());
    status(StatusCode::OK)
}

impl Tally {
    fn record(&mut self, outlet: u32, body: &[u8]) {
        let now = unix_nanos();
        self.stats.count += 1;
        self.stats.last_at_nanos = now;
        let Some(receipt) = document::read(body) else {
            self.stats.unreadable += 1;
            return;
        };
        self.latency.record(now.saturating_sub(receipt.sent_at_nanos));
        let newest = self.newest.entry((outlet, receipt.document)).or_default();
        if receipt.revision > *newest {
            self.stats.revision_sum += receipt.revision - *newest;
            *newest = receipt.revision;
        } else if receipt.revision == *newest {
            self.stats.repeated += 1;
        } else {
            self.stats.backwards += 1;
        }
    }
}

async fn answer_control(tally: Shared, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let mut tally = tally.lock();
    match request.uri().path() {
        "/stats" => {
            tally.stats.p50_nanos = tally.latency.quantile(0.5);
            tally.stats.p99_nanos = tally.latency.quantile(0.99);
            tally.stats.max_nanos = tally.latency.max();
            tally.stats.cpu_micros = Usage::of(std::process::id()).map_or(0, |usage| usage.cpu_micros);
            let text = serde_json::to_vec(&tally.stats).expect("the statistics are plain numbers");
            Response::new(Full::from(text))
        }
        "/reset" => {
            tally.stats = Stats::default();
            tally.latency = Histogram::default();
            tally.newest.clear();
            tally.gate_is_open = false;
            status(StatusCode::NO_CONTENT)
        }
        "/gate/open" => {
            tally.gate_is_open = true;
            status(StatusCode::NO_CONTENT)
        }
        _ => status(StatusCode::NOT_FOUND),
    }
}

fn status(code: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = code;
    response
}
