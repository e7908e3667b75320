//! A backlog that a client pulls, against the same backlog pushed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{endpoint, ingest, progress, ratio};
use crate::http::{Connection, excerpt};
use crate::lab::{Lab, Traffic, Until};
use crate::process::Usage;
use crate::report::Row;
use crate::sample::Sample;
use crate::server::Server;

const GOAL: f64 = 0.5;
const LIMIT: usize = 100;
const CONNECTIONS: usize = 8;
const TIME_MAX: Duration = Duration::from_secs(120);

pub async fn run(lab: &Lab) -> Result<Vec<Row>> {
    let name = "pull";
    let (mut pushed, mut pulled) = (Vec::new(), Vec::new());
    for round in 1..=lab.scale.rounds {
        progress(name, &format!("round {round}: push"));
        pushed.push(push(lab).await?);
        progress(name, &format!("round {round}: pull"));
        pulled.push(pull(lab).await?);
    }
    let (push, pull) = (Row::new(name, "push", pushed), Row::new(name, format!("pull × {LIMIT}"), pulled));
    let share = ratio(pull.sample.deliveries_per_second, push.sample.deliveries_per_second);
    Ok(vec![push, pull.at_least(share, GOAL)])
}

/// A server with a subscription that is behind on every document.
async fn behind(lab: &Lab, members: Value) -> Result<(Server, String)> {
    let mut server = Server::start(lab).await?;
    let ids = server.resources(1).await?;
    let mut body = json!({ "name": "s", "endpoint": { "url": endpoint(lab, 0) }, "delivery": { "concurrency": 64 } });
    if let (Some(body), Some(members)) = (body.as_object_mut(), members.as_object()) {
        body.extend(members.clone());
    }
    let path = server.subscription(&ids[0], &body).await?;
    post(&server, &format!("{path}/pause"), json!({})).await?;
    let traffic = Traffic { until: Until::Count(lab.scale.documents), ..ingest::traffic(lab) };
    lab.measure(&mut server.subject, &traffic).await?;
    lab.settle(&server.subject).await?;
    Ok((server, path))
}

pub async fn post(server: &Server, path: &str, body: Value) -> Result<Bytes> {
    let mut connection = Connection::open(server.subject.addr).await?;
    let (status, answer) = connection.call(Method::POST, path, Bytes::from(body.to_string())).await?;
    ensure!(status.is_success(), "POST {path} answered {status}: {}", excerpt(&answer));
    Ok(answer)
}

async fn push(lab: &Lab) -> Result<Sample> {
    let (server, path) = behind(lab, json!({})).await?;
    lab.reset().await?;
    let (start, before) = (Instant::now(), Usage::of(server.subject.pid)?);
    post(&server, &format!("{path}/resume"), json!({})).await?;
    while lab.stats().await?.count < lab.scale.documents {
        ensure!(start.elapsed() < TIME_MAX, "not pushed in {TIME_MAX:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    sample(lab, &server, start.elapsed(), &before)
}

async fn pull(lab: &Lab) -> Result<Sample> {
    let (server, path) = behind(lab, json!({ "mode": "passive" })).await?;
    post(&server, &format!("{path}/resume"), json!({})).await?;
    let (start, before) = (Instant::now(), Usage::of(server.subject.pid)?);
    let done = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        clients.spawn(pull_all(server.subject.addr, path.clone(), done.clone(), lab.scale.documents));
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    sample(lab, &server, start.elapsed(), &before)
}

#[derive(Deserialize)]
struct Messages {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    receipt: String,
}

/// Pulls and acknowledges until all documents are done.
async fn pull_all(addr: std::net::SocketAddr, path: String, done: Arc<AtomicU64>, documents: u64) -> Result<()> {
    let start = Instant::now();
    let mut connection = Connection::open(addr).await?;
    let (pull, ack) = (format!("{path}/messages?limit={LIMIT}&wait=200ms"), format!("{path}/messages/ack"));
    while done.load(Ordering::Relaxed) < documents {
        ensure!(start.elapsed() < TIME_MAX, "not pulled in {TIME_MAX:?}");
        let (status, answer) = connection.call(Method::GET, &pull, Bytes::new()).await?;
        if !status.is_success() {
            bail!("GET {pull} answered {status}: {}", excerpt(&answer));
        }
        let Messages { messages } = serde_json::from_slice(&answer)?;
        if messages.is_empty() {
            continue;
        }
        let receipts: Vec<_> = messages.into_iter().map(|message| message.receipt).collect();
        let count = receipts.len() as u64;
        let body = Bytes::from(json!({ "receipts": receipts }).to_string());
        let (status, answer) = connection.call(Method::POST, &ack, body).await?;
        ensure!(status.is_success(), "POST {ack} answered {status}: {}", excerpt(&answer));
        done.fetch_add(count, Ordering::Relaxed);
    }
    Ok(())
}

fn sample(lab: &Lab, server: &Server, took: Duration, before: &Usage) -> Result<Sample> {
    let after = Usage::of(server.subject.pid)?;
    let documents = lab.scale.documents as f64;
    Ok(Sample {
        deliveries_per_second: Some(documents / took.as_secs_f64()),
        cpu_micros: Some((after.cpu_micros - before.cpu_micros) as f64 / documents),
        ..Sample::of_memory(&after)
    })
}
