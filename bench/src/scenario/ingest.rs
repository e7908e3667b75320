//! PUT without subscriptions: durable, against the same server without a store.

use anyhow::Result;

use super::{end_to_end, progress, ratio};
use crate::lab::{Lab, Traffic};
use crate::report::Row;
use crate::server::Server;

const GOAL: f64 = 0.6;

pub async fn run(lab: &Lab) -> Result<Vec<Row>> {
    let name = "ingest";
    progress(name, "warm up");
    let mut server = lab.ceiling(false).await?;
    let mut flare = Server::start(lab).await?;
    flare.resources(1).await?;
    let traffic = traffic(lab);
    lab.warm(&mut server, &traffic).await?;
    lab.warm(&mut flare.subject, &traffic).await?;

    let (mut server_runs, mut flare_runs) = (Vec::new(), Vec::new());
    for round in 1..=lab.scale.rounds {
        progress(name, &format!("round {round}"));
        server_runs.push(lab.measure(&mut server, &traffic).await?);
        flare_runs.push(lab.measure(&mut flare.subject, &traffic).await?);
        lab.settle(&flare.subject).await?;
    }
    let (server, flare) = (Row::new(name, "server only", server_runs), Row::new(name, "flare", flare_runs));
    let share = ratio(flare.sample.documents_per_second, server.sample.documents_per_second);
    Ok(vec![server, flare.at_least(share, GOAL)])
}

pub fn traffic(lab: &Lab) -> Traffic {
    Traffic { outlets: 0, ..end_to_end::traffic(lab) }
}
