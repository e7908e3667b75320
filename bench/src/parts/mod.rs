//! The processes that the driver starts: each is this same binary with `part …`, announces itself with one line of
//! JSON on standard output, and ends when its standard input closes, so that none outlives the driver.

use std::io::{Read, Write};
use std::net::SocketAddr;

use anyhow::Result;
use axum::Router;
use axum::serve::ListenerExt;
use clap::Subcommand;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

use crate::http::listen;

pub mod by_hand;
pub mod ceiling;
pub mod generator;
pub mod posting;
pub mod raw_client;
pub mod receiver;

#[derive(Subcommand)]
pub enum Part {
    /// Sends PUTs
    Generator(generator::Options),
    /// Counts POSTs and their latency
    Receiver,
    /// PUT → channel → POST in memory; without a target only the server
    Ceiling(ceiling::Options),
    /// The ceiling with a driver in its middle
    ByHand(by_hand::Options),
    /// POSTs as fast as the client goes
    RawClient(raw_client::Options),
}

/// The line with which a listening part tells where it is.
#[derive(Serialize, Deserialize)]
pub struct Listening {
    pub addr: SocketAddr,
    pub control: Option<SocketAddr>,
}

pub fn run(part: &Part) -> Result<()> {
    exit_with_the_driver();
    match part {
        Part::Generator(options) => one_thread()?.block_on(generator::run(options)),
        Part::Receiver => one_thread()?.block_on(receiver::run()),
        // The process under test is built as Flare is: all cores.
        Part::Ceiling(options) => Runtime::new()?.block_on(ceiling::run(options)),
        Part::ByHand(options) => Runtime::new()?.block_on(by_hand::run(options)),
        Part::RawClient(options) => Runtime::new()?.block_on(raw_client::run(options)),
    }
}

/// Generator and receiver take one thread, so that they leave the other cores to the process under test.
fn one_thread() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Announces a server and runs it.
pub async fn serve(router: Router) -> Result<()> {
    let listener = listen().await?;
    say(&Listening { addr: listener.local_addr()?, control: None })?;
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    Ok(axum::serve(listener, router).await?)
}

pub fn say(line: &impl Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, line)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

fn exit_with_the_driver() {
    std::thread::spawn(|| {
        let mut rest = Vec::new();
        // The driver never writes: this returns when the driver closes the pipe or dies.
        let _ = std::io::stdin().lock().read_to_end(&mut rest);
        std::process::exit(0);
    });
}
