//! What the log of attempts costs: one subscription, with the log and without.

use anyhow::Result;

use super::{end_to_end, endpoint, progress, ratio};
use crate::lab::Lab;
use crate::report::Row;
use crate::server::Server;

const GOAL: f64 = 0.85;
const WITHOUT: &str = "[delivery]\nattempts-retention = \"0s\"\n";

pub async fn run(lab: &Lab) -> Result<Vec<Row>> {
    let name = "attempts log";
    progress(name, "warm up");
    let traffic = end_to_end::traffic(lab);
    let mut off = Server::configured(lab, WITHOUT).await?;
    let mut on = Server::start(lab).await?;
    for server in [&mut off, &mut on] {
        server.subscribe(1, 1, |outlet| endpoint(lab, outlet)).await?;
        lab.warm(&mut server.subject, &traffic).await?;
    }
    let (mut off_runs, mut on_runs) = (Vec::new(), Vec::new());
    for round in 1..=lab.scale.rounds {
        progress(name, &format!("round {round}"));
        for (server, runs) in [(&mut off, &mut off_runs), (&mut on, &mut on_runs)] {
            runs.push(lab.measure(&mut server.subject, &traffic).await?);
            lab.settle(&server.subject).await?;
        }
    }
    let (off, on) = (Row::new(name, "without", off_runs), Row::new(name, "with", on_runs));
    let share = ratio(on.sample.deliveries_per_second, off.sample.deliveries_per_second);
    Ok(vec![off, on.at_least(share, GOAL)])
}
