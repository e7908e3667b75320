//! The reference for fan-out: the client alone, posting a 1 KiB document to one or many paths with nothing behind it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use clap::Args;
use http::Uri;
use http_body_util::Full;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::document::{Writer, unix_nanos};
use crate::parts::posting::post;
use crate::parts::say;
use crate::process::Usage;

pub type Client = hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>;

#[derive(Args, Clone)]
pub struct Options {
    /// Paths are `{target}/s/{n}`
    #[arg(long)]
    pub target: String,
    #[arg(long, default_value_t = 1)]
    pub paths: u64,
    #[arg(long, default_value_t = 64)]
    pub in_flight: usize,
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    pub posted: u64,
    pub seconds: f64,
    pub usage: Usage,
}

pub async fn run(options: &Options) -> Result<()> {
    let paths: Arc<[Uri]> =
        (0..options.paths).map(|path| format!("{}/s/{path}", options.target).parse()).collect::<Result<_, _>>()?;
    let (client, writer) = (client(options.in_flight), Arc::new(Writer::new()));
    let posted = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let deadline = start + Duration::from_secs_f64(options.seconds);
    let mut workers = JoinSet::new();
    for _ in 0..options.in_flight {
        let (client, writer, paths, posted) = (client.clone(), writer.clone(), paths.clone(), posted.clone());
        workers.spawn(async move {
            while Instant::now() < deadline {
                let sequence = posted.fetch_add(1, Ordering::Relaxed);
                let (path, document) = (sequence % paths.len() as u64, sequence / paths.len() as u64);
                let body = writer.body(document, 1, unix_nanos());
                let status = post(&client, paths[path as usize].clone(), body).await?;
                ensure!(status.is_success(), "the receiver answered {status}");
            }
            anyhow::Ok(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    say(&Outcome {
        posted: posted.load(Ordering::Relaxed),
        seconds: start.elapsed().as_secs_f64(),
        usage: Usage::of(std::process::id())?,
    })
}

pub fn client(in_flight: usize) -> Client {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(in_flight)
        .build(connector)
}
