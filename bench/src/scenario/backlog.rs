//! A large backlog behind an endpoint that is down, against the same backlog of a paused subscription: memory, what another
//! subscription notices, and how fast it drains when the endpoint is back.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use super::pull::post;
use super::{endpoint, ingest, progress, ratio};
use crate::lab::{Lab, Traffic, Until};
use crate::process::Usage;
use crate::report::Row;
use crate::sample::Sample;
use crate::server::Server;

const DOCUMENTS_PER_SECOND: f64 = 100.0;
const GROWTH_MIB_GOAL: f64 = 64.0;
const P99_GROWTH_MAX: f64 = 0.10;
const DRAIN_GOAL: f64 = 0.7;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(600);
const MIB: f64 = 1024.0 * 1024.0;

struct Behind {
    server: Server,
    path: String,
    resource: String,
}

pub async fn run(lab: &Lab) -> Result<Vec<Row>> {
    let name = "backlog";
    let mut down = behind(lab, "down").await?;
    let mut paused = behind(lab, "paused").await?;
    let memory = |behind: &Behind| Usage::of(behind.server.subject.pid).map(|usage| usage.rss_bytes as f64 / MIB);
    let growth = memory(&down)? - memory(&paused)?;

    for behind in [&down, &paused] {
        behind.server.subscribe_to(std::slice::from_ref(&behind.resource), 1, |outlet| endpoint(lab, outlet)).await?;
    }
    let traffic = Traffic {
        documents: lab.scale.backlog,
        resources: 1,
        outlets: 1,
        until: Until::Seconds(lab.scale.latency_seconds),
        rate: Some(DOCUMENTS_PER_SECOND),
    };
    let (mut down_runs, mut paused_runs) = (Vec::new(), Vec::new());
    for round in 1..=lab.scale.rounds {
        progress(name, &format!("round {round}"));
        paused_runs.push(lab.measure(&mut paused.server.subject, &traffic).await?);
        down_runs.push(lab.measure(&mut down.server.subject, &traffic).await?);
    }
    let others = Row::new(name, "others, paused", paused_runs);
    let others_down = Row::new(name, "others, down", down_runs);
    let noticed = ratio(others_down.sample.p99_ms, others.sample.p99_ms);

    progress(name, "drain");
    lab.reset().await?;
    post(&paused.server, &format!("{}/resume", paused.path), json!({})).await?;
    let normal = Row::new(name, "drain, resumed", vec![drain(lab, &paused).await?]);
    lab.reset().await?;
    lab.open_gate().await?;
    let back = Row::new(name, "drain, back", vec![drain(lab, &down).await?]);
    let share = ratio(back.sample.deliveries_per_second, normal.sample.deliveries_per_second);
    let subject = format!("{} documents", lab.scale.backlog);
    Ok(vec![
        Row::new(name, subject, Vec::new()).at_most(growth, GROWTH_MIB_GOAL, "MiB"),
        others,
        others_down.flat(noticed, 1.0, P99_GROWTH_MAX),
        normal,
        back.at_least(share, DRAIN_GOAL),
    ])
}

/// A server with a subscription that is behind on every document.
async fn behind(lab: &Lab, how: &str) -> Result<Behind> {
    let name = "backlog";
    progress(name, &format!("load {} documents, {how}", lab.scale.backlog));
    let mut server = Server::start(lab).await?;
    let resource = server.resources(1).await?.remove(0);
    // Only the endpoint of the one is behind the gate.
    let url = if how == "paused" { endpoint(lab, 1) } else { format!("http://{}/gate/1", lab.receiver) };
    let body = json!({
        "name": "behind",
        "endpoint": { "url": url },
        "delivery": { "concurrency": 64, "retry": { "maxDelayTarget": 5, "numRetries": 100, "numMaxDelayRetries": 90 } },
    });
    let path = server.subscription(&resource, &body).await?;
    if how == "paused" {
        post(&server, &format!("{path}/pause"), json!({})).await?;
    }
    let traffic =
        Traffic { documents: lab.scale.backlog, until: Until::Count(lab.scale.backlog), ..ingest::traffic(lab) };
    lab.measure(&mut server.subject, &traffic).await?;
    lab.settle(&server.subject).await?;
    Ok(Behind { server, path, resource })
}

/// From the first delivery on, until all are there.
async fn drain(lab: &Lab, behind: &Behind) -> Result<Sample> {
    let before = Usage::of(behind.server.subject.pid)?;
    let asked = Instant::now();
    let mut first: Option<Instant> = None;
    loop {
        let count = lab.stats().await?.count;
        if count > 0 {
            first.get_or_insert_with(Instant::now);
        }
        if count >= lab.scale.backlog {
            break;
        }
        ensure!(asked.elapsed() < DRAIN_TIME_MAX, "{count} of {} documents drained", lab.scale.backlog);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = first.unwrap_or(asked).elapsed();
    let after = Usage::of(behind.server.subject.pid)?;
    let documents = lab.scale.backlog as f64;
    Ok(Sample {
        deliveries_per_second: Some(documents / took.as_secs_f64().max(1e-6)),
        cpu_micros: Some((after.cpu_micros - before.cpu_micros) as f64 / documents),
        ..Sample::of_memory(&after)
    })
}
