//! The scenarios: each starts what it needs, measures the subjects in turns, and returns its rows of the table.

use anyhow::Result;
use clap::Subcommand;

use crate::Options;
use crate::lab::Lab;
use crate::machine::Machine;
use crate::report::{Report, Row};

mod attempts;
mod backlog;
mod end_to_end;
mod engines;
mod fan_out;
mod filters;
mod flatness;
mod ingest;
mod isolation;
mod latency;
mod memory;
mod pull;
mod references;
mod start_up;
mod sweeper;
mod waiting;

#[derive(Subcommand)]
pub enum Scenario {
    /// Every database and broker in FLARE_TEST_<NAME>_URL, against a worker written by hand over its driver
    Engines(Options),
    /// Everything below: needs no other server
    All(Options),
    /// The ceiling, the server alone and the raw client: needs no Flare
    References(Options),
    /// Time to /ready with an empty store
    StartUp(Options),
    /// RSS when idle and with many subscriptions
    Memory(Options),
    /// PUT without subscriptions, against the same server without a store
    Ingest(Options),
    /// PUT to one subscription, against the ceiling
    EndToEnd(Options),
    /// One PUT to 1 000 subscriptions, against the raw client
    FanOut(Options),
    /// PUT sent to receipt at 100 documents per second
    Latency(Options),
    /// 1 % of 1 000 endpoints hang: what the others notice
    Isolation(Options),
    /// What the log of attempts costs
    Attempts(Options),
    /// A backlog pulled, against the same backlog pushed
    Pull(Options),
    /// Clients that wait for a message
    Waiting(Options),
    /// Many subscriptions of one resource, each with a filter
    Filters(Options),
    /// A large backlog behind an endpoint that is down
    Backlog(Options),
    /// What traffic notices of sweeps and resyncs
    Sweeper(Options),
    /// Cost per delivery as outlets and documents grow
    Flatness(Options),
}

impl Scenario {
    pub fn options(&self) -> &Options {
        match self {
            Self::All(options)
            | Self::Engines(options)
            | Self::References(options)
            | Self::StartUp(options)
            | Self::Memory(options)
            | Self::Ingest(options)
            | Self::EndToEnd(options)
            | Self::FanOut(options)
            | Self::Latency(options)
            | Self::Isolation(options)
            | Self::Attempts(options)
            | Self::Pull(options)
            | Self::Waiting(options)
            | Self::Filters(options)
            | Self::Backlog(options)
            | Self::Sweeper(options)
            | Self::Flatness(options) => options,
        }
    }

    /// Runs it to a report; a scenario that fails becomes a row, and the others still run.
    pub async fn run(&self, lab: &Lab, quick: bool) -> Report {
        let machine = Machine::describe();
        let all = matches!(self, Self::All(_));
        let mut rows = Vec::new();
        if matches!(self, Self::References(_)) {
            keep("references", references::run(lab).await, &mut rows);
        }
        if matches!(self, Self::Engines(_)) {
            for (engine, url) in engines::present() {
                keep(&engine.to_string(), engines::run(lab, engine, &url).await, &mut rows);
            }
        }
        if all || matches!(self, Self::StartUp(_)) {
            keep("start-up", start_up::run(lab).await, &mut rows);
        }
        if all || matches!(self, Self::Memory(_)) {
            keep("memory", memory::run(lab).await, &mut rows);
        }
        if all || matches!(self, Self::Ingest(_)) {
            keep("ingest", ingest::run(lab).await, &mut rows);
        }
        if all || matches!(self, Self::EndToEnd(_)) {
            keep("end to end", end_to_end::run(lab).await, &mut rows);
        }
        if all || matches!(self, Self::FanOut(_)) {
            keep("fan-out", fan_out::run(lab).await, &mut rows);
        }
        if all || matches!(self, Self::Latency(_)) {
            keep("latency", latency::run(lab).await, &mut rows);
        }
        if all || matches!(self, Self::Isolation(_)) {
            keep("isolation", isolation::run(lab).await, &mut rows);
        }
        if all || matches!(self, Self::Attempts(_)) {
            keep("attempts log", attempts::run(lab).await, &mut rows);
        }
        if all || matches!(self, Self::Pull(_)) {
            keep("pull", pull::run(lab).await, &mut rows);
        }
        if all || matches!(self, Self::Waiting(_)) {
            keep("waiting", waiting::run(lab).await, &mut rows);
        }
        if all || matches!(self, Self::Filters(_)) {
            keep("filters", filters::run(lab).await, &mut rows);
        }
        if all || matches!(self, Self::Backlog(_)) {
            keep("backlog", backlog::run(lab).await, &mut rows);
        }
        if all || matches!(self, Self::Sweeper(_)) {
            keep("sweeper", sweeper::run(lab).await, &mut rows);
        }
        if all || matches!(self, Self::Flatness(_)) {
            keep("flat: outlets", flatness::over_outlets(lab).await, &mut rows);
            keep("flat: documents", flatness::over_documents(lab).await, &mut rows);
        }
        Report { machine, quick, rows }
    }
}

fn keep(scenario: &str, outcome: Result<Vec<Row>>, rows: &mut Vec<Row>) {
    match outcome {
        Ok(fresh) => rows.extend(fresh),
        Err(error) => {
            eprintln!("  {scenario}: {error:#}");
            rows.push(Row::failed(scenario, format!("{error:#}")));
        }
    }
}

/// Says on standard error what is going on; the table alone goes to standard output.
fn progress(scenario: &str, step: &str) {
    eprintln!("· {scenario}: {step}");
}

/// The first value over the second, 0 where either is missing.
fn ratio(value: Option<f64>, reference: Option<f64>) -> f64 {
    match (value, reference) {
        (Some(value), Some(reference)) if reference > 0.0 => value / reference,
        _ => 0.0,
    }
}

fn endpoint(lab: &Lab, outlet: u64) -> String {
    format!("http://{}/s/{outlet}", lab.receiver)
}
