//! The server: engines, node and API put together, from the configuration to the last signal.

pub(crate) mod engine;
mod queue;
mod settings;
mod tls;
mod waiting;

use std::{fmt::Write, path::Path, time::Duration};

use anyhow::{Context, bail};
use flare_core::port::Store;
use flare_node::{
    Node, Supervisor,
    lease::{Claim, Lease},
};
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
    let address = listener.local_addr().context("cannot tell the address that is listened on")?.to_string();
    let store = engine::open(&config).await?;
    let mut turn = tokio::select! {
        turn = Turn::wait(&store, &config, &address) => turn?,
        () = waiting::answer(&listener) => bail!("the listener ended"),
        name = signals.next() => {
            tracing::info!(signal = name, "stopped while waiting for the node that works");
            return Ok(());
        }
    };
    let supervisor = Supervisor::default();
    let node = tokio::select! {
        node = Node::start(store, &node_settings, &supervisor) => node.map_err(whole)?,
        error = turn.is_over() => return Err(error),
    };

    terminal::print(banner(&config, file, &address))?;
    let stop = CancellationToken::new();
    let serving = flare_api::serve(node.clone(), settings::api(&config), vec![listener], &supervisor, stop.clone());
    let mut serving = std::pin::pin!(serving);
    let failed = tokio::select! {
        () = &mut serving => bail!("the HTTP server ended without being told to"),
        () = supervisor.failed() => true,
        // Not even what is in flight may go on: somebody else may be at work already.
        error = turn.is_over() => return Err(error),
        name = signals.next() => {
            tracing::info!(signal = name, "stopping; a second signal exits at once");
            false
        }
    };

    let stopped = async {
        stop.cancel();
        serving.await;
        node.finish().await;
    };
    tokio::select! {
        () = stopped => {}
        error = turn.is_over() => return Err(error),
        name = signals.next() => bail!("{name} came twice: exiting without waiting for what is in flight"),
    }
    turn.end().await;
    let closed = async {
        let closed = node.close().await;
        supervisor.finish(TASKS_GRACE).await;
        closed
    };
    tokio::select! {
        closed = closed => closed.map_err(whole).context("the store did not close cleanly")?,
        name = signals.next() => bail!("{name} came twice: exiting without waiting for what is in flight"),
    }
    if failed {
        bail!("a task that the server needs has failed; see the log above");
    }
    tracing::info!("stopped");
    Ok(())
}

/// The right of this node to work, where several nodes can reach the data.
struct Turn {
    lease: Option<Lease>,
}

impl Turn {
    /// Waits until no other node works on the data.
    async fn wait(store: &Store, config: &Config, address: &str) -> anyhow::Result<Self> {
        if !store.engine.limits().is_shared {
            return Ok(Self { lease: None });
        }
        let claim = Claim { address: address.to_owned(), time: config.node.lease.get() };
        let waits = |owner: &str| {
            tracing::info!(owner, "another node works on the same data; this one waits until it is gone");
        };
        let lease = Lease::acquire(store.coordination.clone(), claim, waits).await.map_err(whole)?;
        store.deliveries.seal(lease.epoch()).await.map_err(whole)?;
        Ok(Self { lease: Some(lease) })
    }

    /// Returns when the node must not work any more.
    async fn is_over(&mut self) -> anyhow::Error {
        match &mut self.lease {
            Some(lease) => whole(lease.keep().await).context("this node must not work any more"),
            None => std::future::pending().await,
        }
    }

    /// The next one need not wait.
    async fn end(self) {
        if let Some(mut lease) = self.lease
            && let Err(error) = lease.release().await
        {
            tracing::debug!(reason = error.chain(), "could not say that this node has stopped");
        }
    }
}

/// The error with its causes in its message.
#[allow(clippy::needless_pass_by_value, reason = "it is made for map_err")]
pub(crate) fn whole(error: flare_core::Error) -> anyhow::Error {
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
        RepositoryEngine::Mongodb => line("data", "in MongoDB"),
        RepositoryEngine::Cassandra => line("data", "in Cassandra"),
        RepositoryEngine::Postgres => line("data", "in PostgreSQL"),
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
