//! The log of the server, as the section `[log]` of the configuration says.

use std::io::{self, IsTerminal};

use anyhow::Context;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::config::{Log, LogFormat, LogLevel, LogOutput};

/// Installs the log for the process; to be called once.
pub fn init(log: &Log) -> anyhow::Result<()> {
    let lines = match log.output {
        LogOutput::Stdout => lines(log.format, io::stdout, io::stdout().is_terminal()),
        LogOutput::Stderr => lines(log.format, io::stderr, io::stderr().is_terminal()),
        LogOutput::Discard => return Ok(()),
    };
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(filter(log.level)));
    subscriber.try_init().context("cannot install the log")
}

/// The level holds for Flare's own crates; libraries are heard from `warn` on.
fn filter(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    };
    // A target is a prefix: this names `flare` and all `flare_…` crates.
    let targets = Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("flare", level);
    // It takes a queue that is missing for an error, and shows messages; what matters of it the engine tells.
    let targets = targets.with_target("lapin", LevelFilter::OFF);
    // Who changed what is told at every level.
    targets.with_target("audit", LevelFilter::INFO.max(level))
}

fn lines<W>(format: LogFormat, writer: W, is_terminal: bool) -> Box<dyn Layer<Registry> + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // A log that cannot be written is lost in silence: the server goes on without it.
    let lines = fmt::layer().with_writer(writer).log_internal_errors(false);
    match format {
        LogFormat::Human => lines.with_ansi(is_terminal && std::env::var_os("NO_COLOR").is_none()).boxed(),
        LogFormat::Json => lines.with_ansi(false).json().flatten_event(true).boxed(),
    }
}
