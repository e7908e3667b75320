//! `flare migrate`: the layout of the data, step by step.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use flare_core::port::Migration;
use serde_json::{Value, json};

use crate::config::{self, Config, Sources};
use crate::start::{engine, whole};
use crate::terminal;

const HELP: &str = "\
A server takes the steps that are missing when it starts. Steps go forward only: before an upgrade, back up the data.

Examples:
  flare migrate status
  flare migrate up --dry-run
  flare migrate up --config /etc/flare.toml";

/// Show and take the steps that bring the data to the layout of this version
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Migrate {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Show the steps, and which of them the data has
    Status(Target),
    /// Take the steps that are missing
    Up(Up),
}

#[derive(Args, Debug)]
struct Up {
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    target: Target,
}

#[derive(Args, Debug)]
struct Target {
    /// The configuration file [default: flare.toml in this folder, if there is one]
    #[arg(long, value_name = "FILE", env = "FLARE_CONFIG")]
    config: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Migrate {
    pub async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Status(target) => {
                let steps = engine::schema(&target.read()?).await?.status().await.map_err(whole)?;
                target.show(&steps, "there are no steps")
            }
            Command::Up(Up { dry_run: true, target }) => {
                let mut steps = engine::schema(&target.read()?).await?.status().await.map_err(whole)?;
                steps.retain(|step| step.applied_at.is_none());
                target.show(&steps, "nothing to do: the data has the layout of this version")
            }
            Command::Up(Up { dry_run: false, target }) => {
                let taken = engine::schema(&target.read()?).await?.up().await.map_err(whole)?;
                target.show(&taken, "nothing to do: the data has the layout of this version")
            }
        }
    }
}

impl Target {
    fn read(&self) -> anyhow::Result<Config> {
        let file = config::file_to_read(self.config.clone());
        let sources = Sources { file, variables: std::env::vars_os().collect(), flags: Vec::new() };
        Ok(config::load(&sources)?.config)
    }

    fn show(&self, steps: &[Migration], none: &str) -> anyhow::Result<()> {
        if self.json {
            let all = json!({ "migrations": steps.iter().map(as_json).collect::<Vec<_>>() });
            return terminal::print(serde_json::to_string_pretty(&all).context("cannot write JSON")?);
        }
        if steps.is_empty() {
            return terminal::print(none);
        }
        let line = |step: &Migration| {
            let applied = step.applied_at.map_or_else(|| "missing".to_owned(), |at| format!("{at:.0}"));
            format!("{:>3}  {:<20}  {}", step.number, applied, step.name)
        };
        terminal::print(steps.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}

fn as_json(step: &Migration) -> Value {
    let applied_at = step.applied_at.map(|at| at.to_string());
    json!({ "number": step.number, "name": step.name, "appliedAt": applied_at })
}
