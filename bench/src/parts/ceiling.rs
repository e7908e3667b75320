//! The ceiling: what Flare could do if it had nothing to remember. The same server, channel and client, in memory:
//! PUT (collected, checked to be JSON, not parsed) → bounded channel → POST. Without a target it is the server alone.

use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::routing::put;
use axum::serve::ListenerExt;
use bytes::Bytes;
use clap::Args;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use serde::de::IgnoredAny;
use tokio::sync::{Mutex, mpsc};

use crate::http::listen;
use crate::parts::raw_client::{Client, client};
use crate::parts::{Listening, say};

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
    let listener = listen().await?;
    say(&Listening { addr: listener.local_addr()?, control: None })?;
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    Ok(axum::serve(listener, router).await?)
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
    let (sender, receiver) = mpsc::channel(CHANNEL_DOCUMENTS_MAX);
    let receiver = Arc::new(Mutex::new(receiver));
    let client = client(in_flight);
    for _ in 0..in_flight {
        tokio::spawn(post_documents(client.clone(), target.clone(), receiver.clone()));
    }
    sender
}

async fn post_documents(client: Client, target: Uri, documents: Arc<Mutex<mpsc::Receiver<Bytes>>>) {
    loop {
        let document = documents.lock().await.recv().await;
        let Some(document) = document else { return };
        if let Err(error) = post(&client, target.clone(), document).await {
            eprintln!("ceiling: {error:#}");
        }
    }
}

pub async fn post(client: &Client, target: Uri, body: Bytes) -> Result<StatusCode> {
    let request = Request::post(target).header(header::CONTENT_TYPE, "application/json").body(Full::new(body))?;
    let answer = client.request(request).await?;
    let status = answer.status();
    answer.into_body().collect().await?;
    Ok(status)
}
