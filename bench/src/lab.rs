//! The laboratory: the receiver, the sizes of a run, and the one way to measure a subject under traffic.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Method;
use tokio::time::sleep;

use crate::drivers::Engine;
use crate::http::call;
use crate::parts::{Listening, generator, raw_client, receiver};
use crate::process::{Process, Usage, machine_cpu_micros};
use crate::sample::Sample;

const START_TIME_MAX: Duration = Duration::from_secs(10);
const DRAIN_TIME_MAX: Duration = Duration::from_secs(180);
/// Without one delivery for so long, the rest is not coming.
const DRAIN_SILENCE_MAX: Duration = Duration::from_secs(20);
const DRAIN_POLL: Duration = Duration::from_millis(20);
/// Time for lazy writes of the last deliveries, so that their cost counts.
const LAZY_WRITES: Duration = Duration::from_millis(250);

/// How much of everything; one place for the full and the quick run.
#[derive(Debug, Clone)]
pub struct Scale {
    pub rounds: u32,
    pub seconds: f64,
    /// Documents in the closed loops: more than can be waiting at once, so that hints do not coalesce.
    pub documents: u64,
    pub fan_out: u64,
    /// Documents sent to every outlet of the fan-out per second of the run.
    pub fan_out_documents_per_second: f64,
    pub subscriptions: u64,
    pub subscription_resources: u64,
    pub flat_outlets: [u64; 3],
    pub flat_documents: [u64; 2],
    pub flat_rate: f64,
    pub latency_seconds: f64,
    /// Documents behind an endpoint that is down.
    pub backlog: u64,
    /// Subscriptions with a filter on one resource.
    pub filters: u64,
    /// Endpoints of which one in a hundred hangs.
    pub isolated: u64,
    /// Clients that wait for a message.
    pub waiting: u64,
    pub starts: u32,
    pub settle_time_max: Duration,
}

impl Scale {
    pub fn new(quick: bool, seconds: Option<f64>, rounds: Option<u32>) -> Self {
        let mut scale = if quick { Self::quick() } else { Self::full() };
        if let Some(seconds) = seconds {
            scale.seconds = seconds;
            scale.latency_seconds = seconds;
        }
        scale.rounds = rounds.unwrap_or(scale.rounds);
        scale
    }

    fn full() -> Self {
        Self {
            rounds: 3,
            seconds: 8.0,
            documents: 50_000,
            fan_out: 1000,
            fan_out_documents_per_second: 30.0,
            subscriptions: 100_000,
            subscription_resources: 1000,
            flat_outlets: [10, 1000, 100_000],
            flat_documents: [1000, 1_000_000],
            flat_rate: 1000.0,
            latency_seconds: 20.0,
            backlog: 1_000_000,
            filters: 10_000,
            isolated: 1000,
            waiting: 10_000,
            starts: 5,
            settle_time_max: Duration::from_secs(30),
        }
    }

    fn quick() -> Self {
        Self {
            rounds: 1,
            seconds: 0.7,
            documents: 1000,
            fan_out: 100,
            subscriptions: 1000,
            subscription_resources: 100,
            flat_outlets: [10, 100, 500],
            flat_documents: [100, 2000],
            flat_rate: 200.0,
            latency_seconds: 1.0,
            backlog: 2000,
            filters: 200,
            isolated: 100,
            waiting: 100,
            starts: 1,
            settle_time_max: Duration::from_secs(1),
            ..Self::full()
        }
    }
}

/// A process under test.
pub struct Subject {
    pub addr: SocketAddr,
    pub pid: u32,
    /// Where the generator goes on, so that revisions rise over all runs.
    pub next: u64,
    /// Held for its end.
    _process: Process,
}

impl Subject {
    pub fn new(addr: SocketAddr, pid: u32, process: Process) -> Self {
        Self { addr, pid, next: 0, _process: process }
    }
}

/// What the generator sends in one run.
#[derive(Clone)]
pub struct Traffic {
    pub documents: u64,
    pub resources: u64,
    /// How many deliveries one document makes.
    pub outlets: u64,
    pub until: Until,
    pub rate: Option<f64>,
}

#[derive(Clone, Copy)]
pub enum Until {
    Seconds(f64),
    Count(u64),
}

pub struct Lab {
    pub scale: Scale,
    pub flare: PathBuf,
    pub data: PathBuf,
    pub receiver: SocketAddr,
    control: SocketAddr,
    receiver_process: Process,
}

impl Lab {
    pub async fn open(scale: Scale, flare: PathBuf, data: PathBuf) -> Result<Self> {
        remove_abandoned_stores(&data)?;
        let mut receiver_process = Process::part(&["receiver".into()])?;
        let at: Listening = receiver_process.json(START_TIME_MAX).await?;
        let control = at.control.context("the receiver has no control port")?;
        Ok(Self { scale, flare, data, receiver: at.addr, control, receiver_process })
    }

    /// The in-memory proxy, or without `deliver` its server alone.
    pub async fn ceiling(&self, deliver: bool) -> Result<Subject> {
        self.proxy(vec!["ceiling".into()], deliver).await
    }

    /// The worker over a driver; without `deliver` it only writes.
    pub async fn by_hand(&self, engine: Engine, url: &str, namespace: &str, deliver: bool) -> Result<Subject> {
        let options = [("engine", engine.to_string()), ("url", url.into()), ("namespace", namespace.into())];
        let options = options.into_iter().map(|(name, value)| format!("--{name}={value}"));
        self.proxy(std::iter::once("by-hand".into()).chain(options).collect(), deliver).await
    }

    async fn proxy(&self, mut arguments: Vec<String>, deliver: bool) -> Result<Subject> {
        if deliver {
            arguments.push(format!("--target=http://{}/s/0", self.receiver));
        }
        let mut process = Process::part(&arguments)?;
        let at: Listening = process.json(START_TIME_MAX).await?;
        Ok(Subject::new(at.addr, process.pid(), process))
    }

    pub async fn raw_client(&self, paths: u64, in_flight: usize) -> Result<Sample> {
        self.reset().await?;
        let before = self.cpu_micros()?;
        let seconds = self.scale.seconds;
        let mut process = Process::part(&[
            "raw-client".into(),
            format!("--target=http://{}", self.receiver),
            format!("--paths={paths}"),
            format!("--in-flight={in_flight}"),
            format!("--seconds={seconds}"),
        ])?;
        let outcome: raw_client::Outcome = process.json(START_TIME_MAX + Duration::from_secs_f64(seconds)).await?;
        let stats = self.stats().await?;
        let ours = self.cpu_micros()?.ours - before.ours + outcome.usage.cpu_micros;
        Ok(Sample {
            documents_per_second: None,
            deliveries_per_second: Some(outcome.posted as f64 / outcome.seconds),
            p50_ms: Some(stats.p50_nanos as f64 / 1e6),
            p99_ms: Some(stats.p99_nanos as f64 / 1e6),
            cpu_micros: Some(outcome.usage.cpu_micros as f64 / outcome.posted.max(1) as f64),
            elsewhere: elsewhere(machine_cpu_micros() - before.machine, ours, outcome.seconds),
            ..Sample::of_memory(&outcome.usage)
        })
    }

    /// Sends the traffic, waits until every outlet is up to date, and says what it took.
    pub async fn measure(&self, subject: &mut Subject, traffic: &Traffic) -> Result<Sample> {
        self.reset().await?;
        let start = Instant::now();
        let (cpu, before) = (self.cpu_micros()?, Usage::of(subject.pid)?);
        let load = self.generate(subject, traffic).await?;
        let receipts = self.drain(&load, traffic).await?;
        sleep(LAZY_WRITES).await;
        let after = Usage::of(subject.pid)?;
        let used = after.cpu_micros - before.cpu_micros;
        let ours = self.cpu_micros()?.ours - cpu.ours + used + load.cpu_micros;

        let load_seconds = seconds_between(load.started_at_nanos, load.ended_at_nanos);
        let all_seconds = seconds_between(load.started_at_nanos, load.ended_at_nanos.max(receipts.last_at_nanos));
        let delivers = traffic.outlets > 0;
        let (p50, p99, max) = if delivers {
            (receipts.p50_nanos, receipts.p99_nanos, receipts.max_nanos)
        } else {
            (load.p50_nanos, load.p99_nanos, load.max_nanos)
        };
        Ok(Sample {
            documents_per_second: Some(load.accepted as f64 / load_seconds),
            deliveries_per_second: delivers.then(|| receipts.count as f64 / all_seconds),
            p50_ms: Some(p50 as f64 / 1e6),
            p99_ms: Some(p99 as f64 / 1e6),
            max_ms: Some(max as f64 / 1e6),
            accept_p50_ms: Some(load.p50_nanos as f64 / 1e6),
            accept_p99_ms: Some(load.p99_nanos as f64 / 1e6),
            cpu_micros: Some(used as f64 / if delivers { receipts.count } else { load.accepted }.max(1) as f64),
            written_bytes: Some((after.written_bytes - before.written_bytes) as f64 / load.accepted.max(1) as f64),
            errors: load.errors,
            // What was sent in place of an older revision that was still waiting.
            coalesced: (load.accepted * traffic.outlets).saturating_sub(receipts.count - receipts.repeated),
            repeated: receipts.repeated,
            elsewhere: elsewhere(machine_cpu_micros() - cpu.machine, ours, start.elapsed().as_secs_f64()),
            ..Sample::of_memory(&after)
        })
    }

    async fn generate(&self, subject: &mut Subject, traffic: &Traffic) -> Result<generator::Outcome> {
        let mut arguments = vec![
            "generator".into(),
            format!("--addr={}", subject.addr),
            format!("--documents={}", traffic.documents),
            format!("--resources={}", traffic.resources),
            format!("--first={}", subject.next),
        ];
        match traffic.until {
            Until::Seconds(seconds) => arguments.push(format!("--seconds={seconds}")),
            Until::Count(count) => arguments.push(format!("--count={count}")),
        }
        arguments.extend(traffic.rate.map(|rate| format!("--rate={rate}")));
        let mut generator = Process::part(&arguments)?;
        let limit = match traffic.until {
            Until::Seconds(seconds) => START_TIME_MAX + Duration::from_secs_f64(seconds),
            Until::Count(count) => START_TIME_MAX + Duration::from_millis(count),
        };
        let load: generator::Outcome = generator.json(limit + DRAIN_TIME_MAX).await?;
        subject.next = load.next;
        if let Some(error) = &load.first_error {
            eprintln!("  {} of {} PUTs refused, the first with {error}", load.errors, load.errors + load.accepted);
        }
        ensure!(load.accepted > 0, "no PUT was accepted");
        Ok(load)
    }

    async fn drain(&self, load: &generator::Outcome, traffic: &Traffic) -> Result<receiver::Stats> {
        let expected = load.revision_sum.wrapping_mul(traffic.outlets);
        let start = Instant::now();
        let mut progress = (Instant::now(), 0);
        loop {
            let stats = self.stats().await?;
            ensure!(stats.backwards == 0, "{} deliveries went backwards", stats.backwards);
            ensure!(stats.unreadable == 0, "{} deliveries without a document", stats.unreadable);
            if stats.revision_sum == expected {
                return Ok(stats);
            }
            if stats.count != progress.1 {
                progress = (Instant::now(), stats.count);
            }
            ensure!(
                progress.0.elapsed() < DRAIN_SILENCE_MAX && start.elapsed() < DRAIN_TIME_MAX,
                "not drained: {} deliveries of about {} after {:.0} s",
                stats.count,
                load.accepted * traffic.outlets,
                start.elapsed().as_secs_f64()
            );
            sleep(DRAIN_POLL).await;
        }
    }

    /// One pass over all documents, so that they exist and caches and pools are warm.
    pub async fn warm(&self, subject: &mut Subject, traffic: &Traffic) -> Result<()> {
        let traffic = Traffic { until: Until::Count(traffic.documents), rate: None, ..traffic.clone() };
        self.measure(subject, &traffic).await?;
        self.settle(subject).await
    }

    /// Waits until the subject has finished its background work.
    pub async fn settle(&self, subject: &Subject) -> Result<()> {
        const LOOK: Duration = Duration::from_millis(500);
        const BUSY_MAX: f64 = 0.03;
        let start = Instant::now();
        let mut before = Usage::of(subject.pid)?.cpu_micros;
        while start.elapsed() < self.scale.settle_time_max {
            sleep(LOOK).await;
            let now = Usage::of(subject.pid)?.cpu_micros;
            if ((now - before) as f64) < LOOK.as_micros() as f64 * BUSY_MAX {
                break;
            }
            before = now;
        }
        Ok(())
    }

    pub async fn stats(&self) -> Result<receiver::Stats> {
        Ok(serde_json::from_slice(&call(self.control, Method::GET, "/stats", Bytes::new()).await?)?)
    }

    pub async fn reset(&self) -> Result<()> {
        call(self.control, Method::POST, "/reset", Bytes::new()).await.map(drop)
    }

    /// Endpoints below `/gate/` answer from now on, until the next reset.
    pub async fn open_gate(&self) -> Result<()> {
        call(self.control, Method::POST, "/gate/open", Bytes::new()).await.map(drop)
    }

    /// CPU time of the machine, and of the receiver and the driver.
    fn cpu_micros(&self) -> Result<Cpu> {
        let receiver = Usage::of(self.receiver_process.pid())?;
        let driver = Usage::of(std::process::id())?;
        Ok(Cpu { machine: machine_cpu_micros(), ours: receiver.cpu_micros + driver.cpu_micros })
    }
}

/// The start of the name of every store of this driver.
pub fn store_prefix() -> String {
    format!("store-{}-", std::process::id())
}

/// A driver that was killed could not remove its stores: the next one does.
fn remove_abandoned_stores(data: &Path) -> Result<()> {
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        let name = entry.file_name();
        let driver = name.to_str().and_then(|name| name.strip_prefix("store-")?.split('-').next());
        if driver.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

struct Cpu {
    machine: u64,
    ours: u64,
}

fn seconds_between(start_nanos: u64, end_nanos: u64) -> f64 {
    (end_nanos.saturating_sub(start_nanos) as f64 / 1e9).max(1e-6)
}

/// The share of the machine that other programs took during a run: how far to trust it.
fn elsewhere(machine_micros: u64, ours_micros: u64, seconds: f64) -> f64 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    machine_micros.saturating_sub(ours_micros) as f64 / (seconds * 1e6 * cores)
}
