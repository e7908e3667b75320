//! The server: engines, node and API put together, from the configuration to the last signal.

mod engine;
mod settings;
mod tls;

use std::{fmt::Write, path::Path, time::Duration};

use anyhow::{Context, bail};
use flare_node::{Node, Supervisor};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    bind::bind,
    config::{Config, RepositoryEngine},
    terminal,
    version::VERSION,
};

/// Time for the last tasks after everything that matters has ended.
const TASKS_GRACE: Duration = Duration::from_secs(2);

/// Runs the server until it is told to stop. `file` is the configuration file that was read, if any.
pub async fn run(config: Config, file: Option<&Path>) -> anyhow::Result<()> {
    let mut signals = Signals::install()?;
    raise_open_files_limit(&config);
    let node_settings = settings::node(&config)?;
    let listener = bind(config.http.addr, "--addr").await?;
    let address = listener.local_addr().context("cannot tell the address that is listened on")?;
    let store = engine::open(&config)?;
    let supervisor = Supervisor::default();
    let node = Node::start(store, &node_settings, &supervisor).await.map_err(whole)?;

    terminal::print(banner(&config, file, &address.to_string()))?;
    let stop = CancellationToken::new();
    let serving = flare_api::serve(node.clone(), settings::api(&config), vec![listener], &supervisor, stop.clone());
    let mut serving = std::pin::pin!(serving);
    let failed = tokio::select! {
        () = &mut serving => bail!("the HTTP server ended without being told to"),
        () = supervisor.failed() => true,
        name = signals.next() => {
            tracing::info!(signal = name, "stopping; a second signal exits at once");
            false
        }
    };

    let stopped = async {
        stop.cancel();
        serving.await;
        let closed = node.stop().await;
        supervisor.finish(TASKS_GRACE).await;
        closed
    };
    tokio::select! {
        closed = stopped => closed.map_err(whole).context("the store did not close cleanly")?,
        name = signals.next() => bail!("{name} came twice: exiting without waiting for what is in flight"),
    }
    if failed {
        bail!("a task that the server needs has failed; see the log above");
    }
    tracing::info!("stopped");
    Ok(())
}

/// The error with its causes in its message.
#[allow(clippy::needless_pass_by_value, reason = "it is made for map_err")]
fn whole(error: flare_core::Error) -> anyhow::Error {
    anyhow::Error::msg(error.chain())
}

/// The short block that people see first.
fn banner(config: &Config, file: Option<&Path>, address: &str) -> String {
    let mut text = format!("flare {VERSION}\n");
    let mut line = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name:<8} {value}");
    };
    line("api", &format!("http://{address}"));
    line("docs", &format!("http://{address}/docs"));
    match config.repository.engine {
        RepositoryEngine::Embedded => {
            let path = &config.repository.path;
            line("data", &format!("{} (embedded)", std::path::absolute(path).as_ref().unwrap_or(path).display()));
        }
        RepositoryEngine::Memory => line("data", "in memory: nothing outlives this process"),
    }
    line("config", &file.map_or_else(|| "defaults".into(), |file| file.display().to_string()));
    text.truncate(text.trim_end().len());
    text
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn install() -> anyhow::Result<Self> {
        let install = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { terminate: install(SignalKind::terminate())?, interrupt: install(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// A server holds a connection per client and per delivery: take as many as the system allows.
fn raise_open_files_limit(config: &Config) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let files = getrlimit(Resource::Nofile).current;
    let connections = config.http.connections_max as u64;
    if files.is_some_and(|files| files < connections) {
        tracing::warn!(
            files,
            connections,
            "the system allows fewer open files than `http.connections-max` has connections; raise it (`ulimit -n`)"
        );
    }
}
