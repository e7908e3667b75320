//! 1 000 subscriptions, of which none or one in a hundred never answers: what the others notice.

use anyhow::Result;

use super::{endpoint, progress, ratio};
use crate::lab::{Lab, Traffic, Until};
use crate::report::Row;
use crate::server::Server;

/// So many deliveries per second that the machine is mostly idle.
const DELIVERIES_PER_SECOND: f64 = 2000.0;
const WARM_DOCUMENTS: u64 = 5;
const ONE_IN: u64 = 100;
const P99_GROWTH_MAX: f64 = 0.10;

pub async fn run(lab: &Lab) -> Result<Vec<Row>> {
    let name = "1 % hang";
    let outlets = lab.scale.isolated;
    let mut healthy = Server::start(lab).await?;
    let mut hanging = Server::start(lab).await?;
    let hang = |outlet| match outlet {
        outlet if outlet % ONE_IN == 0 => format!("http://{}/hang/{outlet}", lab.receiver),
        outlet => endpoint(lab, outlet),
    };
    healthy.subscribe(1, outlets, |outlet| endpoint(lab, outlet)).await?;
    hanging.subscribe(1, outlets, hang).await?;
    let traffic = Traffic {
        documents: 1000,
        resources: 1,
        outlets,
        until: Until::Seconds(lab.scale.latency_seconds),
        rate: Some(DELIVERIES_PER_SECOND / outlets as f64),
    };
    let without_one = Traffic { outlets: outlets - outlets / ONE_IN, ..traffic.clone() };

    // Connections are made once.
    let warm = |traffic: &Traffic| Traffic { until: Until::Count(WARM_DOCUMENTS), rate: None, ..traffic.clone() };
    lab.measure(&mut healthy.subject, &warm(&traffic)).await?;
    lab.measure(&mut hanging.subject, &warm(&without_one)).await?;

    let (mut healthy_runs, mut hanging_runs) = (Vec::new(), Vec::new());
    for round in 1..=lab.scale.rounds {
        progress(name, &format!("round {round}"));
        healthy_runs.push(lab.measure(&mut healthy.subject, &traffic).await?);
        hanging_runs.push(lab.measure(&mut hanging.subject, &without_one).await?);
    }
    let healthy = Row::new(name, format!("0 of {outlets}"), healthy_runs);
    let hanging = Row::new(name, format!("{} of {outlets}", outlets / ONE_IN), hanging_runs);
    let growth = ratio(hanging.sample.p99_ms, healthy.sample.p99_ms);
    Ok(vec![healthy, hanging.flat(growth, 1.0, P99_GROWTH_MAX)])
}
