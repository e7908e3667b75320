//! The server: engines, node and API put together, from the configuration to the last signal.

pub(crate) mod engine;
mod queue;
mod settings;
mod tls;
mod waiting;

use std::{
    fmt::{self, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use flare_core::ErrorKind;
use flare_node::{Node, Settings, Supervisor};
use flare_toolkit::health::Backoff;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    bind::bind,
    config::{Config, RepositoryEngine, Role},
    terminal,
    version::VERSION,
};
use waiting::Reason;

/// How long to wait before a repository that could not be reached is tried again.
const OPEN_AGAIN_MIN: Duration = Duration::from_millis(250);
const OPEN_AGAIN_MAX: Duration = Duration::from_secs(5);

/// Time for the last tasks after everything that matters has ended.
const TASKS_GRACE: Duration = Duration::from_secs(2);

/// Runs the server until it is told to stop. `file` is the configuration file that was read, if any.
pub async fn run(config: Config, file: Option<&Path>) -> anyhow::Result<()> {
    let mut signals = Signals::install()?;
    raise_open_files_limit(&config);
    let listener = bind(config.http.addr, "--addr").await?;
    let listening = listener.local_addr().context("cannot tell the address that is listened on")?;
    let node_settings = settings::node(&config, listening)?;
    let supervisor = Supervisor::default();
    let reason = Reason::default();
    let node = tokio::select! {
        node = begin(&config, &node_settings, &supervisor, &reason) => node?,
        () = waiting::answer(&listener, &reason) => bail!("the listener ended"),
        name = signals.next() => {
            tracing::info!(signal = name, "stopped before the repository could be reached");
            return Ok(());
        }
    };

    terminal::print(banner(&config, file, &listening.to_string()))?;
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
        node.finish().await;
        let closed = node.close().await;
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

/// Opens the store and starts the node; a server that cannot be reached is waited for, and `reason` says so.
async fn begin(
    config: &Config,
    settings: &Settings,
    supervisor: &Supervisor,
    reason: &Reason,
) -> anyhow::Result<Arc<Node>> {
    let mut backoff = Backoff::new(OPEN_AGAIN_MIN, OPEN_AGAIN_MAX);
    loop {
        let begun = async {
            let store = engine::open(config).await?;
            Node::start(store, settings, supervisor).await.map_err(whole)
        };
        let error = match begun.await {
            Err(error) if config.repository.engine.is_shared() && is_unavailable(&error) => error,
            begun => return begun,
        };
        let wait = backoff.next(getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX)));
        tracing::warn!(reason = format!("{error:#}"), ?wait, "the repository cannot be reached; it is tried again");
        reason.set(format!("the repository cannot be reached, the node starts when it can: {error:#}"));
        tokio::time::sleep(wait).await;
    }
}

/// An error of the core, with its causes in its message.
#[derive(Debug)]
struct Whole(flare_core::Error);

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.chain())
    }
}

impl std::error::Error for Whole {}

/// The error with its causes in its message.
pub(crate) fn whole(error: flare_core::Error) -> anyhow::Error {
    anyhow::Error::new(Whole(error))
}

/// Whether the same may succeed later.
fn is_unavailable(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Whole>().is_some_and(|Whole(error)| error.kind() == ErrorKind::Unavailable)
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
        RepositoryEngine::Mongodb => line("data", "in MongoDB"),
        RepositoryEngine::Cassandra => line("data", "in Cassandra"),
        RepositoryEngine::Postgres => line("data", "in PostgreSQL"),
    }
    if !(config.node.roles.contains(&Role::Api) && config.node.roles.contains(&Role::Worker)) {
        let roles = if config.node.roles.contains(&Role::Api) { "api only" } else { "worker only" };
        line("roles", roles);
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
