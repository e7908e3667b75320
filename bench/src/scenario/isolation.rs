//! 100 subscriptions, of which none or one never answers: what the others notice.

use anyhow::Result;

use super::{endpoint, progress, ratio};
use crate::lab::{Lab, Traffic, Until};
use crate::report::Row;
use crate::server::Server;

const OUTLETS: u64 = 100;
const DOCUMENTS_PER_SECOND: f64 = 20.0;
const P99_GROWTH_MAX: f64 = 0.10;

pub async fn run(lab: &Lab) -> Result<Vec<Row>> {
    let name = "1 % hang";
    let mut healthy = Server::start(lab).await?;
    let mut hanging = Server::start(lab).await?;
    let hang = |outlet| match outlet {
        0 => format!("http://{}/hang/0", lab.receiver),
        outlet => endpoint(lab, outlet),
    };
    healthy.subscribe(1, OUTLETS, |outlet| endpoint(lab, outlet)).await?;
    hanging.subscribe(1, OUTLETS, hang).await?;
    let traffic = Traffic {
        documents: 1000,
        resources: 1,
        outlets: OUTLETS,
        until: Until::Seconds(lab.scale.latency_seconds),
        rate: Some(DOCUMENTS_PER_SECOND),
    };
    let without_one = Traffic { outlets: OUTLETS - 1, ..traffic.clone() };

    let (mut healthy_runs, mut hanging_runs) = (Vec::new(), Vec::new());
    for round in 1..=lab.scale.rounds {
        progress(name, &format!("round {round}"));
        healthy_runs.push(lab.measure(&mut healthy.subject, &traffic).await?);
        hanging_runs.push(lab.measure(&mut hanging.subject, &without_one).await?);
    }
    let (healthy, hanging) = (Row::new(name, "0 of 100", healthy_runs), Row::new(name, "1 of 100", hanging_runs));
    let growth = ratio(hanging.sample.p99_ms, healthy.sample.p99_ms);
    Ok(vec![healthy, hanging.flat(growth, 1.0, P99_GROWTH_MAX)])
}
