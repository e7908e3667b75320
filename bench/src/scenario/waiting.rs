//! Many clients that wait for a message of a passive subscription: they must cost next to nothing, and be told at once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Method;
use serde_json::json;
use tokio::task::JoinSet;

use super::progress;
use crate::document::{self, Writer, unix_nanos};
use crate::http::Connection;
use crate::lab::Lab;
use crate::process::Usage;
use crate::report::Row;
use crate::sample::Sample;
use crate::server::Server;

const CPU_PERCENT_GOAL: f64 = 2.0;
const TOLD_MS_GOAL: f64 = 50.0;
/// Clients that share a subscription.
const SHARING: u64 = 100;
const WAIT: &str = "20s";

pub async fn run(lab: &Lab) -> Result<Vec<Row>> {
    let name = "waiting";
    let clients = lab.scale.waiting;
    let server = Server::start(lab).await?;
    let resource = server.resources(1).await?.remove(0);
    let mut waiting = JoinSet::new();
    progress(name, &format!("let {clients} clients wait"));
    for subscription in 0..clients.div_ceil(SHARING) {
        let body = json!({ "name": format!("s{subscription}"), "endpoint": { "url": "http://127.0.0.1/" }, "mode": "passive" });
        let path = server.subscription(&resource, &body).await?;
        for _ in 0..SHARING.min(clients) {
            let mut connection = Connection::open(server.subject.addr).await?;
            let pull = format!("{path}/messages?limit=1&wait={WAIT}");
            waiting.spawn(async move {
                let (status, answer) = connection.call(Method::GET, &pull, Bytes::new()).await?;
                ensure!(status.is_success(), "GET {pull} answered {status}");
                Ok((answer.len() > br#"{"messages":[]}"#.len(), Instant::now()))
            });
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, start) = (Usage::of(server.subject.pid)?, Instant::now());
    tokio::time::sleep(Duration::from_secs_f64(lab.scale.seconds)).await;
    let after = Usage::of(server.subject.pid)?;
    let percent = (after.cpu_micros - before.cpu_micros) as f64 / start.elapsed().as_micros() as f64 * 100.0;

    let sent = Instant::now();
    let put = Writer::new().body(0, 1, unix_nanos());
    Connection::open(server.subject.addr).await?.call(Method::PUT, &document::path(0, 1), put).await?;
    let subscriptions = clients.div_ceil(SHARING);
    let mut told = Vec::new();
    while (told.len() as u64) < subscriptions {
        let (has_message, at) = waiting.join_next().await.context("a subscription was not told")???;
        if has_message {
            told.push(at.duration_since(sent).as_secs_f64() * 1e3);
        }
    }
    let slowest = told.into_iter().fold(0.0, f64::max);
    let row = Row::new(name, format!("{clients} clients"), vec![Sample::of_memory(&after)]);
    let told = Row::new(name, format!("{subscriptions} told"), Vec::new());
    Ok(vec![row.at_most(percent, CPU_PERCENT_GOAL, "% CPU"), told.at_most(slowest, TOLD_MS_GOAL, "ms")])
}
