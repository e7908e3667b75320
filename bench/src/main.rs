//! `flare-bench`: measures Flare against the ceiling of the same machine and prints one table. The driver starts every
//! part as a process of its own over loopback; `docs/performance.md` says how to read the numbers.

// Not a node: the tasks here live as long as a process of a few seconds, and no supervisor is under test.
#![allow(clippy::disallowed_methods)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

mod document;
mod drivers;
mod histogram;
mod http;
mod lab;
mod machine;
mod parts;
mod process;
mod report;
mod sample;
mod scenario;
mod server;

use lab::{Lab, Scale};
use scenario::Scenario;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Past this the driver gives up, whatever hangs.
const RUN_TIME_MAX: Duration = Duration::from_secs(3600);

/// Measures Flare against the ceiling of the same machine
#[derive(Parser)]
#[command(name = "flare-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Scenario(Scenario),
    /// A process that the driver starts
    #[command(subcommand, hide = true)]
    Part(parts::Part),
}

#[derive(Args)]
pub struct Options {
    /// Length of one measured run
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// Runs of each subject, in turns; the table shows medians
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: Option<u32>,
    /// A smoke run with tiny counts: checks that everything works, measures nothing
    #[arg(long)]
    quick: bool,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Rewrite the table in docs/performance.md
    #[arg(long, conflicts_with = "quick")]
    write_doc: bool,
    /// The server's binary [default: beside this one]
    #[arg(long, value_name = "PATH")]
    flare: Option<PathBuf>,
    /// Folder for the stores, on a real disk [default: target/bench]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Part(part) => parts::run(&part).map(|()| true),
        Command::Scenario(scenario) => drive(&scenario),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("flare-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the scenario; leaving this function by any way drops, and so ends, every child.
fn drive(scenario: &Scenario) -> Result<bool> {
    let options = scenario.options();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        tokio::select! {
            report = measure(scenario) => report,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
            _ = hang_up.recv() => bail!("terminal closed"),
            () = tokio::time::sleep(RUN_TIME_MAX) => bail!("gave up after {RUN_TIME_MAX:?}"),
        }
    })?;
    print!("{report}");
    if let Some(file) = &options.json {
        std::fs::write(file, report.json()).with_context(|| format!("write {}", file.display()))?;
    }
    if options.write_doc && report.is_complete() {
        report.write_doc()?;
    }
    Ok(report.is_complete())
}

async fn measure(scenario: &Scenario) -> Result<report::Report> {
    let options = scenario.options();
    let binary = std::env::current_exe()?;
    let folder = binary.parent().context("a binary lies in a folder")?;
    let data = options.data.clone().unwrap_or_else(|| folder.join("../bench"));
    std::fs::create_dir_all(&data).with_context(|| format!("create {}", data.display()))?;
    let scale = Scale::new(options.quick, options.seconds, options.rounds);
    let flare = options.flare.clone().unwrap_or_else(|| folder.join("flare"));
    let lab = Lab::open(scale, flare, data).await?;
    Ok(scenario.run(&lab, options.quick).await)
}
