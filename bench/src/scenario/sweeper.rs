//! What traffic notices while sweeps and resyncs run all the time.

use anyhow::Result;

use super::{end_to_end, endpoint, progress, ratio};
use crate::lab::{Lab, Traffic, Until};
use crate::report::Row;
use crate::server::Server;

const DOCUMENTS_PER_SECOND: f64 = 100.0;
const P99_GROWTH_MAX: f64 = 0.10;
const OUTLETS: u64 = 10;
const NEVER: &str = "[domain]\nresync-interval = \"0s\"\n";
const ALL_THE_TIME: &str = "[domain]\nretention = \"1s\"\nsweep-interval = \"1s\"\nresync-interval = \"1s\"\n";

pub async fn run(lab: &Lab) -> Result<Vec<Row>> {
    let name = "sweeper";
    let (mut still, mut busy) = (Server::configured(lab, NEVER).await?, Server::configured(lab, ALL_THE_TIME).await?);
    let traffic = Traffic {
        outlets: OUTLETS,
        until: Until::Seconds(lab.scale.latency_seconds),
        rate: Some(DOCUMENTS_PER_SECOND),
        ..end_to_end::traffic(lab)
    };
    progress(name, &format!("load {} documents", traffic.documents));
    for server in [&mut still, &mut busy] {
        server.subscribe(1, OUTLETS, |outlet| endpoint(lab, outlet)).await?;
        lab.warm(&mut server.subject, &traffic).await?;
    }
    let (mut still_runs, mut busy_runs) = (Vec::new(), Vec::new());
    for round in 1..=lab.scale.rounds {
        progress(name, &format!("round {round}"));
        still_runs.push(lab.measure(&mut still.subject, &traffic).await?);
        busy_runs.push(lab.measure(&mut busy.subject, &traffic).await?);
    }
    let (still, busy) = (Row::new(name, "never", still_runs), Row::new(name, "all the time", busy_runs));
    let growth = ratio(busy.sample.p99_ms, still.sample.p99_ms);
    Ok(vec![still, busy.flat(growth, 1.0, P99_GROWTH_MAX)])
}
