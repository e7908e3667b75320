//! `flare listen`: a small receiver of deliveries for tours, tests and debugging.

mod attempts;
mod delivery;
mod receiver;
mod server;
mod signature;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::StatusCode;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::bind::bind;
use crate::config;
use crate::terminal;
use receiver::Receiver;

/// The time that answers under way have at the end, besides `--delay`.
const GRACE: Duration = Duration::from_secs(1);

const HELP: &str = "\
With --json every delivery is one line, {\"at\", \"method\", \"path\", \"headers\", \"body\", \"signature\", \
\"attempt\", \"answered\"}, and everything else is written to standard error. Ctrl-C stops.

Examples:
  flare listen
  flare listen :9000 --status 204 --delay 2s
  flare listen --secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
  flare listen --fail-first 2 --fail-status 503
  flare listen --json --count 10 > deliveries.ndjson";

/// Arguments of `flare listen`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// The address to listen on; :9000 is on all interfaces
    #[arg(value_name = "ADDR", default_value = "127.0.0.1:9000")]
    addr: config::ListenAddr,

    /// The status to answer with
    #[arg(long, value_name = "N", default_value = "200", value_parser = status)]
    status: StatusCode,

    /// Wait so long before each answer
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    delay: config::Duration,

    /// Fail the first N attempts of each message
    #[arg(long, value_name = "N", default_value_t = 0)]
    fail_first: u32,

    /// The status to fail with
    #[arg(long, value_name = "N", default_value = "500", value_parser = status)]
    fail_status: StatusCode,

    /// Check signatures with this secret (whsec_…) or public key (whpk_…) and answer wrong ones with 401; may be given
    /// several times
    #[arg(long = "secret", value_name = "WHSEC")]
    secrets: Vec<signature::Secret>,

    /// Do not show the deliveries
    #[arg(long, conflicts_with = "json")]
    quiet: bool,

    /// Show each delivery as one line of JSON
    #[arg(long)]
    json: bool,

    /// Stop after N requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// The final statuses; the informational ones are no answer.
fn status(text: &str) -> Result<StatusCode, String> {
    let status = text.parse().ok().and_then(|number| StatusCode::from_u16(number).ok());
    let status = status.filter(|status| (200..600).contains(&status.as_u16()));
    status.ok_or_else(|| "write a status from 200 to 599".to_owned())
}

/// Receives deliveries until it is stopped.
pub async fn run(args: Args) -> anyhow::Result<()> {
    // Before anybody is told that it runs, so that a signal right after that is not missed.
    let mut signals = Signals::install()?;
    let listener = bind(args.addr, "`flare listen ADDR`").await?;
    let addr = listener.local_addr().context("cannot tell the address that is listened on")?;
    say(&args, &format!("listening on http://{addr}"))?;

    let stop = CancellationToken::new();
    let receiver = Arc::new(Receiver::new(args.clone(), stop.clone()));
    let grace = args.delay.get() + GRACE;
    let server = server::serve(listener, Arc::clone(&receiver), stop.clone(), grace);
    let mut server = std::pin::pin!(server);
    tokio::select! {
        () = &mut server => (),
        () = signals.next() => {
            // Whoever interrupts does not want to wait for a long delay.
            stop.cancel();
            let _ = tokio::time::timeout(GRACE, server).await;
        }
    }
    let received = receiver.finish()?;
    say(&args, &format!("received {received} {}", if received == 1 { "delivery" } else { "deliveries" }))
}

/// Says something besides the deliveries, where it does not disturb them.
fn say(args: &Args, text: &str) -> anyhow::Result<()> {
    if args.json {
        terminal::note(text);
        return Ok(());
    }
    terminal::print(text)
}

/// Ctrl-C and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn install() -> anyhow::Result<Self> {
        let install = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { interrupt: install(SignalKind::interrupt())?, terminate: install(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => (),
            _ = self.terminate.recv() => (),
        }
    }
}
