//! One resource with 1 000 subscriptions: deliveries against the raw client on as many paths.

use anyhow::Result;

use super::{endpoint, progress, ratio};
use crate::lab::{Lab, Traffic, Until};
use crate::report::Row;
use crate::server::Server;

const GOAL: f64 = 0.7;
const IN_FLIGHT: [usize; 2] = [64, 256];
const WARM_DOCUMENTS: u64 = 5;

pub async fn run(lab: &Lab) -> Result<Vec<Row>> {
    let name = "fan-out";
    progress(name, "warm up");
    let outlets = lab.scale.fan_out;
    let mut flare = Server::start(lab).await?;
    flare.subscribe(1, outlets, |outlet| endpoint(lab, outlet)).await?;
    let documents = (lab.scale.seconds * lab.scale.fan_out_documents_per_second).ceil() as u64;
    let traffic = Traffic { documents, resources: 1, outlets, until: Until::Count(documents), rate: None };
    let warm = Traffic { until: Until::Count(WARM_DOCUMENTS.min(documents)), ..traffic.clone() };
    lab.measure(&mut flare.subject, &warm).await?;
    flare.subject.next = documents;

    let (mut client_runs, mut flare_runs) = ([Vec::new(), Vec::new()], Vec::new());
    for round in 1..=lab.scale.rounds {
        progress(name, &format!("round {round}"));
        for (runs, in_flight) in client_runs.iter_mut().zip(IN_FLIGHT) {
            runs.push(lab.raw_client(outlets, in_flight).await?);
        }
        flare_runs.push(lab.measure(&mut flare.subject, &traffic).await?);
        lab.settle(&flare.subject).await?;
    }
    let mut rows: Vec<Row> = client_runs
        .into_iter()
        .zip(IN_FLIGHT)
        .map(|(runs, in_flight)| Row::new(name, format!("client × {in_flight}"), runs))
        .collect();
    // The reference is the client at its best.
    let best = rows.iter().filter_map(|row| row.sample.deliveries_per_second).reduce(f64::max);
    let flare = Row::new(name, "flare", flare_runs);
    let share = ratio(flare.sample.deliveries_per_second, best);
    rows.push(flare.at_least(share, GOAL));
    Ok(rows)
}
