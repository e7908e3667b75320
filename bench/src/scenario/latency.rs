//! From PUT sent to receipt at a load that leaves the machine mostly idle.

use anyhow::Result;

use super::{end_to_end, endpoint, progress};
use crate::lab::{Lab, Traffic, Until};
use crate::report::Row;
use crate::server::Server;

const DOCUMENTS_PER_SECOND: f64 = 100.0;
const P50_MS_GOAL: f64 = 5.0;
const P99_MS_GOAL: f64 = 25.0;

pub async fn run(lab: &Lab) -> Result<Vec<Row>> {
    let name = "latency, 100/s";
    let mut ceiling = lab.ceiling(true).await?;
    let mut flare = Server::start(lab).await?;
    flare.subscribe(1, 1, |outlet| endpoint(lab, outlet)).await?;
    let traffic = Traffic {
        documents: 1000.min(lab.scale.documents),
        until: Until::Seconds(lab.scale.latency_seconds),
        rate: Some(DOCUMENTS_PER_SECOND),
        ..end_to_end::traffic(lab)
    };
    lab.warm(&mut ceiling, &traffic).await?;
    lab.warm(&mut flare.subject, &traffic).await?;

    let (mut ceiling_runs, mut flare_runs) = (Vec::new(), Vec::new());
    for round in 1..=lab.scale.rounds {
        progress(name, &format!("round {round}"));
        ceiling_runs.push(lab.measure(&mut ceiling, &traffic).await?);
        flare_runs.push(lab.measure(&mut flare.subject, &traffic).await?);
    }
    let (ceiling, flare) = (Row::new(name, "ceiling", ceiling_runs), Row::new(name, "flare, p50", flare_runs));
    let (p50, p99) = (flare.sample.p50_ms.unwrap_or(f64::NAN), flare.sample.p99_ms.unwrap_or(f64::NAN));
    let tail = Row::new(name, "flare, p99", Vec::new()).at_most(p99, P99_MS_GOAL, "ms");
    Ok(vec![ceiling, flare.at_most(p50, P50_MS_GOAL, "ms"), tail])
}
