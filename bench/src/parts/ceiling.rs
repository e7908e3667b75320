//! The ceiling: what Flare could do if it had nothing to remember. The same server, channel and client, in memory:
//! PUT (collected, checked to be JSON, not parsed) → bounded channel → POST. Without a target it is the server alone.

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::routing::put;
use bytes::Bytes;
use clap::Args;
use http::{StatusCode, Uri};
use serde::de::IgnoredAny;
use tokio::sync::mpsc;

use crate::parts::posting::Posting;
use crate::parts::serve;

const CHANNEL_DOCUMENTS_MAX: usize = 1024;

#[derive(Args)]
pub struct Options {
    /// Where the documents are posted; none makes it the server alone
    #[arg(long)]
    pub target: Option<Uri>,
    #[arg(long, default_value_t = 64)]
    pub in_flight: usize,
}

type Documents = Option<mpsc::Sender<Bytes>>;

pub async fn run(options: &Options) -> Result<()> {
    let documents = options.target.as_ref().map(|target| start_posting(target, options.in_flight));
    let router = Router::new().route("/documents/{*url}", put(accept)).with_state(documents);
    serve(router).await
}

async fn accept(State(documents): State<Documents>, body: Bytes) -> StatusCode {
    if serde_json::from_slice::<IgnoredAny>(&body).is_err() {
        return StatusCode::UNPROCESSABLE_ENTITY;
    }
    match documents {
        Some(documents) if documents.send(body).await.is_err() => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::ACCEPTED,
    }
}

fn start_posting(target: &Uri, in_flight: usize) -> mpsc::Sender<Bytes> {
    let (sender, items) = mpsc::channel(CHANNEL_DOCUMENTS_MAX);
    Posting { items, content: Bytes::clone, posted: None }.start(target, in_flight);
    sender
}
