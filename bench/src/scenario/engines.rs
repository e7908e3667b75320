//! Each database and broker that is there, against the worker that one writes by hand over its driver: the same rows or
//! messages on the same server.

use anyhow::Result;
use clap::ValueEnum;
use flare_contract::proxy::Proxy;

use super::{end_to_end, endpoint, ingest, progress, ratio};
use crate::drivers::{self, Engine};
use crate::lab::{Lab, Subject, Traffic, Until};
use crate::report::Row;
use crate::server::Server;

const GOAL_INGEST: f64 = 0.6;
const GOAL_END_TO_END: f64 = 0.5;

/// The engines whose address is known; what the others lack is said.
pub fn present() -> Vec<(Engine, String)> {
    let address = |engine: &Engine| match std::env::var(engine.variable()) {
        Ok(url) => Some((*engine, url)),
        Err(_) => {
            progress(&engine.to_string(), &format!("skipped: {} is not set (see dev/servers env)", engine.variable()));
            None
        }
    };
    Engine::value_variants().iter().filter_map(address).collect()
}

pub async fn run(lab: &Lab, engine: Engine, url: &str) -> Result<Vec<Row>> {
    let by_hand = format!("flare_bench_{}_by_hand", std::process::id());
    let ours = format!("flare_bench_{}", std::process::id());
    let counted = format!("flare_bench_{}_counted", std::process::id());
    let outcome = async {
        let mut rows = measure(lab, engine, url, &by_hand, &ours).await?;
        rows.push(round_trips(lab, engine, url, &counted).await?);
        Ok(rows)
    };
    let outcome = outcome.await;
    for namespace in [by_hand, ours, counted] {
        if let Err(error) = drivers::remove(engine, url, &namespace).await {
            eprintln!("  {engine}: {error:#}");
        }
    }
    outcome
}

async fn measure(lab: &Lab, engine: Engine, url: &str, by_hand: &str, ours: &str) -> Result<Vec<Row>> {
    progress(&engine.to_string(), "warm up");
    let mut rows = Vec::new();
    let mut flare = Server::configured(lab, &engine.config(url, ours)).await?;
    let resource = flare.resources(1).await?;
    if !engine.is_queue() {
        let name = format!("{engine}: ingest");
        let mut worker = lab.by_hand(engine, url, by_hand, false).await?;
        let (worker_row, flare_row) =
            compare(lab, &name, &mut worker, &mut flare.subject, &ingest::traffic(lab)).await?;
        drop(worker);
        drivers::remove(engine, url, by_hand).await?;
        let share = ratio(flare_row.sample.documents_per_second, worker_row.sample.documents_per_second);
        rows.extend([worker_row, flare_row.at_least(share, GOAL_INGEST)]);
    }
    let subscription = flare.subscribe_with(&resource, 1, |outlet| endpoint(lab, outlet), |_| None).await?;
    let name = format!("{engine}: end to end");
    let mut worker = lab.by_hand(engine, url, by_hand, true).await?;
    let (worker_row, flare_row) =
        compare(lab, &name, &mut worker, &mut flare.subject, &end_to_end::traffic(lab)).await?;
    let share = ratio(flare_row.sample.deliveries_per_second, worker_row.sample.deliveries_per_second);
    rows.extend([worker_row, flare_row.at_least(share, GOAL_END_TO_END)]);
    flare.unsubscribe(&resource[0], &subscription[0]).await?;
    Ok(rows)
}

async fn compare(
    lab: &Lab,
    name: &str,
    worker: &mut Subject,
    flare: &mut Subject,
    traffic: &Traffic,
) -> Result<(Row, Row)> {
    lab.warm(worker, traffic).await?;
    lab.warm(flare, traffic).await?;
    let (mut worker_runs, mut flare_runs) = (Vec::new(), Vec::new());
    for round in 1..=lab.scale.rounds {
        progress(name, &format!("round {round}"));
        worker_runs.push(lab.measure(worker, traffic).await?);
        flare_runs.push(lab.measure(flare, traffic).await?);
        lab.settle(flare).await?;
    }
    Ok((Row::new(name, "by hand", worker_runs), Row::new(name, "flare", flare_runs)))
}

/// How often Flare waits for the server until a document is delivered, counted on the wire.
async fn round_trips(lab: &Lab, engine: Engine, url: &str, namespace: &str) -> Result<Row> {
    let name = format!("{engine}: end to end");
    progress(&name, "round trips");
    let proxy = Proxy::start(host(url)).await;
    let through = url.replace(host(url), &proxy.address().to_string());
    let mut flare = Server::configured(lab, &engine.config(&engine.direct(&through), namespace)).await?;
    let resource = flare.resources(1).await?;
    let subscription = flare.subscribe_with(&resource, 1, |outlet| endpoint(lab, outlet), |_| None).await?;
    let traffic = end_to_end::traffic(lab);
    lab.warm(&mut flare.subject, &traffic).await?;
    let before = proxy.round_trips();
    lab.measure(&mut flare.subject, &Traffic { until: Until::Count(traffic.documents), ..traffic.clone() }).await?;
    let trips = (proxy.round_trips() - before) as f64 / traffic.documents as f64;
    flare.unsubscribe(&resource[0], &subscription[0]).await?;
    Ok(Row { result: format!("{trips:.3}"), ..Row::new(&name, "round trips each", Vec::new()) })
}

/// The host and port of a URL.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_url_is_found() {
        for (url, expected) in [
            ("postgres://me:secret@127.0.0.1:5432/db", "127.0.0.1:5432"),
            ("mongodb://127.0.0.1:27017/?replicaSet=rs0", "127.0.0.1:27017"),
            ("http://127.0.0.1:4566", "127.0.0.1:4566"),
            ("127.0.0.1:4222", "127.0.0.1:4222"),
        ] {
            assert_eq!(host(url), expected);
        }
    }
}
