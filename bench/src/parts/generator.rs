//! The load: PUTs of 1 KiB documents over keep-alive connections with one request in flight each, as fast as they are
//! answered (closed loop) or at a fixed rate (open loop).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use http::Method;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::document::{self, Writer, unix_nanos};
use crate::histogram::Histogram;
use crate::http::{Connection, excerpt};
use crate::parts::say;
use crate::process::Usage;

/// A run with more refused PUTs than this is broken and stops.
const ERRORS_MAX: u64 = 1000;
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);
/// PUTs that wait for a free connection in an open loop.
const WAITING_MAX: usize = 10_000;

#[derive(Args, Clone)]
pub struct Options {
    #[arg(long)]
    pub addr: SocketAddr,
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    /// Documents to cycle over
    #[arg(long)]
    pub documents: u64,
    /// Resources over which the documents are dealt out
    #[arg(long, default_value_t = 1)]
    pub resources: u64,
    /// The first sequence number, where the last run ended
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// Stop after so many PUTs
    #[arg(long, default_value_t = u64::MAX)]
    pub count: u64,
    /// Stop after this time
    #[arg(long, default_value_t = 3600.0)]
    pub seconds: f64,
    /// PUTs per second; as fast as possible without it
    #[arg(long)]
    pub rate: Option<f64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    pub accepted: u64,
    pub errors: u64,
    pub first_error: Option<String>,
    pub started_at_nanos: u64,
    pub ended_at_nanos: u64,
    /// From sent to 202.
    pub p50_nanos: u64,
    pub p99_nanos: u64,
    pub max_nanos: u64,
    /// The newest accepted revisions of all touched documents, added up: what each outlet has when it is up to date.
    pub revision_sum: u64,
    /// Where the next run goes on.
    pub next: u64,
    pub cpu_micros: u64,
}

struct Job {
    sequence: u64,
    sent_at_nanos: u64,
}

#[derive(Default)]
struct Tally {
    accepted: u64,
    errors: u64,
    first_error: Option<String>,
    latency: Histogram,
    /// The newest accepted revision of each document, 0 for none.
    newest: Vec<u32>,
}

struct Load {
    options: Options,
    writer: Writer,
    next: Mutex<u64>,
    deadline: Instant,
    tally: Mutex<Tally>,
}

pub async fn run(options: &Options) -> Result<()> {
    let started_at_nanos = unix_nanos();
    let load = Arc::new(Load {
        writer: Writer::new(),
        next: Mutex::new(options.first),
        deadline: Instant::now() + Duration::from_secs_f64(options.seconds),
        tally: Mutex::new(Tally { newest: vec![0; options.documents as usize], ..Tally::default() }),
        options: options.clone(),
    });
    let mut workers = JoinSet::new();
    match options.rate {
        None => (0..options.connections).for_each(|_| drop(workers.spawn(closed_loop(load.clone())))),
        Some(rate) => open_loop(&load, rate, &mut workers),
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    let tally = load.tally.lock();
    say(&Outcome {
        accepted: tally.accepted,
        errors: tally.errors,
        first_error: tally.first_error.clone(),
        started_at_nanos,
        ended_at_nanos: unix_nanos(),
        p50_nanos: tally.latency.quantile(0.5),
        p99_nanos: tally.latency.quantile(0.99),
        max_nanos: tally.latency.max(),
        revision_sum: tally.newest.iter().map(|revision| u64::from(*revision)).sum(),
        next: *load.next.lock(),
        cpu_micros: Usage::of(std::process::id())?.cpu_micros,
    })
}

async fn closed_loop(load: Arc<Load>) -> Result<()> {
    let mut connection = Connection::open(load.options.addr).await?;
    while let Some(sequence) = load.take() {
        load.put(&mut connection, Job { sequence, sent_at_nanos: unix_nanos() }).await?;
    }
    Ok(())
}

/// A PUT counts as sent when its time has come, so that waiting for a free connection is part of its latency.
fn open_loop(load: &Arc<Load>, rate: f64, workers: &mut JoinSet<Result<()>>) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
    // Each is used about once a second: one that says nothing for long is closed by the server.
    for _ in 0..load.options.connections.min(rate.ceil() as usize) {
        workers.spawn(serve_jobs(load.clone(), receiver.clone()));
    }
    let load = load.clone();
    workers.spawn(async move {
        let start = Instant::now();
        let mut issued = 0;
        loop {
            let due = (start.elapsed().as_secs_f64() * rate) as u64 + 1;
            while issued < due {
                let Some(sequence) = load.take() else { return Ok(()) };
                sender.send(Job { sequence, sent_at_nanos: unix_nanos() }).await?;
                issued += 1;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

async fn serve_jobs(load: Arc<Load>, jobs: Arc<tokio::sync::Mutex<mpsc::Receiver<Job>>>) -> Result<()> {
    let mut connection = Connection::open(load.options.addr).await?;
    loop {
        let job = jobs.lock().await.recv().await;
        let Some(job) = job else { return Ok(()) };
        load.put(&mut connection, job).await?;
    }
}

impl Load {
    fn take(&self) -> Option<u64> {
        let mut next = self.next.lock();
        if *next - self.options.first >= self.options.count || Instant::now() >= self.deadline {
            return None;
        }
        *next += 1;
        Some(*next - 1)
    }

    async fn put(&self, connection: &mut Connection, job: Job) -> Result<()> {
        let id = document::document(job.sequence, self.options.documents);
        let revision = document::revision(job.sequence, self.options.documents);
        let path = document::path(id, self.options.resources);
        let body = self.writer.body(id, revision, job.sent_at_nanos);
        let error = match connection.call(Method::PUT, &path, body).await {
            Ok((status, _)) if status.is_success() => {
                let mut tally = self.tally.lock();
                tally.accepted += 1;
                tally.latency.record(unix_nanos().saturating_sub(job.sent_at_nanos));
                let newest = &mut tally.newest[id as usize];
                *newest = (*newest).max(revision as u32);
                return Ok(());
            }
            Ok((status, answer)) => format!("{status}: {}", excerpt(&answer)),
            Err(error) => {
                *connection = Connection::open(self.options.addr).await?;
                format!("{error:#}")
            }
        };
        self.refused(error)?;
        tokio::time::sleep(PAUSE_AFTER_ERROR).await;
        Ok(())
    }

    fn refused(&self, error: String) -> Result<()> {
        let mut tally = self.tally.lock();
        tally.errors += 1;
        if tally.errors > ERRORS_MAX {
            bail!("more than {ERRORS_MAX} PUTs were refused, the last with {error}");
        }
        tally.first_error.get_or_insert(error);
        Ok(())
    }
}
