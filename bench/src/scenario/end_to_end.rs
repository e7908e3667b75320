//! One subscription, 64 connections: durable and delivered, against the same path in memory.

use anyhow::Result;

use super::{endpoint, progress, ratio};
use crate::lab::{Lab, Traffic, Until};
use crate::report::Row;
use crate::server::Server;

const GOAL: f64 = 0.5;

pub async fn run(lab: &Lab) -> Result<Vec<Row>> {
    let name = "end to end";
    progress(name, "warm up");
    let mut ceiling = lab.ceiling(true).await?;
    let mut flare = Server::start(lab).await?;
    flare.subscribe(1, 1, |outlet| endpoint(lab, outlet)).await?;
    let traffic = traffic(lab);
    lab.warm(&mut ceiling, &traffic).await?;
    lab.warm(&mut flare.subject, &traffic).await?;

    let (mut ceiling_runs, mut flare_runs) = (Vec::new(), Vec::new());
    for round in 1..=lab.scale.rounds {
        progress(name, &format!("round {round}"));
        ceiling_runs.push(lab.measure(&mut ceiling, &traffic).await?);
        flare_runs.push(lab.measure(&mut flare.subject, &traffic).await?);
        lab.settle(&flare.subject).await?;
    }
    let (ceiling, flare) = (Row::new(name, "ceiling", ceiling_runs), Row::new(name, "flare", flare_runs));
    let share = ratio(flare.sample.deliveries_per_second, ceiling.sample.deliveries_per_second);
    Ok(vec![ceiling, flare.at_least(share, GOAL)])
}

pub fn traffic(lab: &Lab) -> Traffic {
    Traffic {
        documents: lab.scale.documents,
        resources: 1,
        outlets: 1,
        until: Until::Seconds(lab.scale.seconds),
        rate: None,
    }
}
