//! Many subscriptions of one resource, each with a filter: how long it takes until those are told that want a change.

use anyhow::Result;

use super::{endpoint, progress};
use crate::lab::{Lab, Traffic, Until};
use crate::report::Row;
use crate::server::Server;

const DOCUMENTS_PER_SECOND: f64 = 5.0;
const SPREAD_MS_GOAL: f64 = 20.0;
const WARM_DOCUMENTS: u64 = 10;
/// Different filters when many are the same.
const FEW: u64 = 100;

pub async fn run(lab: &Lab) -> Result<Vec<Row>> {
    let name = "filters";
    let outlets = lab.scale.filters;
    let mut rows = Vec::new();
    for different in [FEW.min(outlets), outlets] {
        progress(name, &format!("create {outlets} subscriptions with {different} filters"));
        let mut flare = Server::start(lab).await?;
        let ids = flare.resources(1).await?;
        let filter = |outlet| Some(format!("current.id % {different} == {}", outlet % different));
        flare.subscribe_with(&ids, outlets, |outlet| endpoint(lab, outlet), filter).await?;
        let traffic = Traffic {
            documents: different,
            resources: 1,
            outlets: outlets / different,
            until: Until::Seconds(lab.scale.latency_seconds),
            rate: Some(DOCUMENTS_PER_SECOND),
        };
        let warm = Traffic { until: Until::Count(WARM_DOCUMENTS), ..traffic.clone() };
        lab.measure(&mut flare.subject, &warm).await?;
        lab.settle(&flare.subject).await?;
        let mut runs = Vec::new();
        for round in 1..=lab.scale.rounds {
            progress(name, &format!("round {round}"));
            runs.push(lab.measure(&mut flare.subject, &traffic).await?);
        }
        let row = Row::new(name, format!("{outlets}, {different} differ"), runs);
        let spread = row.sample.p50_ms.unwrap_or(f64::NAN);
        rows.push(row.at_most(spread, SPREAD_MS_GOAL, "ms"));
    }
    Ok(rows)
}
