//! What the machine can do without Flare.

use anyhow::Result;

use super::{end_to_end, ingest, progress};
use crate::lab::Lab;
use crate::report::Row;

const IN_FLIGHT: [usize; 2] = [64, 256];

pub async fn run(lab: &Lab) -> Result<Vec<Row>> {
    let name = "references";
    let (mut server, mut proxy) = (lab.ceiling(false).await?, lab.ceiling(true).await?);
    let (ingest, deliver) = (ingest::traffic(lab), end_to_end::traffic(lab));
    lab.warm(&mut server, &ingest).await?;
    lab.warm(&mut proxy, &deliver).await?;
    let (mut server_runs, mut proxy_runs) = (Vec::new(), Vec::new());
    let combinations: Vec<(u64, usize)> =
        [1, lab.scale.fan_out].into_iter().flat_map(|paths| IN_FLIGHT.map(|in_flight| (paths, in_flight))).collect();
    let mut client_runs = vec![Vec::new(); combinations.len()];
    for round in 1..=lab.scale.rounds {
        progress(name, &format!("round {round}"));
        server_runs.push(lab.measure(&mut server, &ingest).await?);
        proxy_runs.push(lab.measure(&mut proxy, &deliver).await?);
        for (runs, (paths, in_flight)) in client_runs.iter_mut().zip(&combinations) {
            runs.push(lab.raw_client(*paths, *in_flight).await?);
        }
    }
    let mut rows = vec![Row::new(name, "server only", server_runs), Row::new(name, "ceiling", proxy_runs)];
    rows.extend(
        client_runs
            .into_iter()
            .zip(combinations)
            .map(|(runs, (paths, in_flight))| Row::new(name, format!("client, {paths} × {in_flight}"), runs)),
    );
    Ok(rows)
}
