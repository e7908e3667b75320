//! The cost of a delivery as outlets and documents grow. The same traffic each time: every PUT goes to ten outlets, at
//! a fixed rate below saturation, so that batching and coalescing are the same and CPU time alone is compared.

use anyhow::Result;

use super::{endpoint, progress};
use crate::lab::{Lab, Traffic, Until};
use crate::report::Row;
use crate::sample::Sample;
use crate::server::Server;

const OUTLETS_PER_RESOURCE: u64 = 10;
const CHANGE_MAX: f64 = 0.15;
/// Documents under traffic while the outlets grow.
const DOCUMENTS: u64 = 20_000;

struct Variant {
    label: String,
    flare: Server,
    traffic: Traffic,
    runs: Vec<Sample>,
}

pub async fn over_outlets(lab: &Lab) -> Result<Vec<Row>> {
    let name = "flat: outlets";
    let mut variants = Vec::new();
    for outlets in lab.scale.flat_outlets {
        progress(name, &format!("create {outlets} outlets"));
        let resources = outlets / OUTLETS_PER_RESOURCE;
        let flare = Server::start(lab).await?;
        flare.subscribe(resources, OUTLETS_PER_RESOURCE, |outlet| endpoint(lab, outlet)).await?;
        let traffic = traffic(lab, DOCUMENTS.min(lab.scale.documents), resources);
        let mut variant = Variant { label: format!("{outlets} outlets"), flare, traffic, runs: Vec::new() };
        lab.warm(&mut variant.flare.subject, &variant.traffic).await?;
        variants.push(variant);
    }
    compare(lab, name, variants).await
}

pub async fn over_documents(lab: &Lab) -> Result<Vec<Row>> {
    let name = "flat: documents";
    let mut variants = Vec::new();
    for documents in lab.scale.flat_documents {
        progress(name, &format!("load {documents} documents"));
        let mut flare = Server::start(lab).await?;
        let resources = flare.resources(1).await?;
        let traffic = traffic(lab, documents, 1);
        // They are loaded before anybody subscribes: nothing to deliver yet.
        lab.warm(&mut flare.subject, &Traffic { outlets: 0, ..traffic.clone() }).await?;
        flare.subscribe_to(&resources, OUTLETS_PER_RESOURCE, |outlet| endpoint(lab, outlet)).await?;
        variants.push(Variant { label: format!("{documents} documents"), flare, traffic, runs: Vec::new() });
    }
    compare(lab, name, variants).await
}

/// All servers stay up and are measured in turns, so that noise falls on all alike.
async fn compare(lab: &Lab, name: &str, mut variants: Vec<Variant>) -> Result<Vec<Row>> {
    for round in 1..=lab.scale.rounds {
        progress(name, &format!("round {round}"));
        for variant in &mut variants {
            variant.runs.push(lab.measure(&mut variant.flare.subject, &variant.traffic).await?);
            lab.settle(&variant.flare.subject).await?;
        }
    }
    let rows = variants.into_iter().map(|variant| Row::new(name, variant.label, variant.runs));
    let mut rows: Vec<Row> = rows.collect();
    let cost = |row: &Row| row.sample.cpu_micros.unwrap_or(f64::NAN);
    let reference = rows.first().map_or(f64::NAN, cost);
    for row in rows.iter_mut().skip(1) {
        *row = row.clone().flat(cost(row), reference, CHANGE_MAX);
    }
    Ok(rows)
}

fn traffic(lab: &Lab, documents: u64, resources: u64) -> Traffic {
    Traffic {
        documents,
        resources,
        outlets: OUTLETS_PER_RESOURCE,
        until: Until::Seconds(lab.scale.seconds),
        rate: Some(lab.scale.flat_rate),
    }
}
