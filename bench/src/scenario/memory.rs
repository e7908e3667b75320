//! Resident memory: idle, and with many subscriptions.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{endpoint, progress};
use crate::lab::Lab;
use crate::process::Usage;
use crate::report::Row;
use crate::sample::Sample;
use crate::server::Server;

const IDLE_MIB_GOAL: f64 = 30.0;
const SUBSCRIBED_MIB_GOAL: f64 = 150.0;
/// Long enough for what a server does just after its start.
const IDLE_TIME: Duration = Duration::from_secs(2);

pub async fn run(lab: &Lab) -> Result<Vec<Row>> {
    let name = "memory";
    progress(name, "idle");
    let flare = Server::start(lab).await?;
    tokio::time::sleep(IDLE_TIME).await;
    let idle = row(name, "flare, idle".into(), Usage::of(flare.subject.pid)?, IDLE_MIB_GOAL);

    let (subscriptions, resources) = (lab.scale.subscriptions, lab.scale.subscription_resources);
    progress(name, &format!("create {subscriptions} subscriptions of {resources} resources"));
    let start = Instant::now();
    flare.subscribe(resources, subscriptions / resources, |outlet| endpoint(lab, outlet)).await?;
    progress(name, &format!("{:.0} subscriptions/s", subscriptions as f64 / start.elapsed().as_secs_f64()));
    lab.settle(&flare.subject).await?;
    let subject = format!("{}k subscriptions", subscriptions / 1000);
    Ok(vec![idle, row(name, subject, Usage::of(flare.subject.pid)?, SUBSCRIBED_MIB_GOAL)])
}

fn row(name: &str, subject: String, usage: Usage, goal_mib: f64) -> Row {
    let mib = usage.rss_bytes as f64 / 1024.0 / 1024.0;
    Row::new(name, subject, vec![Sample::of_memory(&usage)]).at_most(mib, goal_mib, "MiB")
}
