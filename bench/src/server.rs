//! The real server: started with an embedded store in a folder of its own, and filled through its API.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::http::{Connection, call, excerpt, listen};
use crate::lab::{self, Lab, Subject};
use crate::process::Process;

const READY_TIME_MAX: Duration = Duration::from_secs(30);
const READY_POLL: Duration = Duration::from_millis(1);
const GONE_TIME_MAX: Duration = Duration::from_secs(30);
const GONE_POLL: Duration = Duration::from_millis(50);
const SETUP_CONNECTIONS: usize = 32;
const LOG_BYTES_SHOWN: usize = 2000;

/// Starts the server in the background, tells its process id, and kills it when the driver closes our input or dies.
const GUARD: &str = r#"log=$1; shift; "$@" </dev/null >"$log" 2>&1 & pid=$!; echo "$pid"; read -r _; exec 2>/dev/null; kill -9 "$pid"; wait"#;

const CONFIG: &str = "[log]\nlevel = \"warn\"\n";

pub struct Server {
    pub subject: Subject,
    pub start_ms: f64,
    /// Removed after the process has ended: fields are dropped in order.
    _folder: TempDir,
}

#[derive(Deserialize)]
struct Created {
    id: String,
}

impl Server {
    pub async fn start(lab: &Lab) -> Result<Self> {
        Self::configured(lab, "").await
    }

    /// With these lines of configuration besides.
    pub async fn configured(lab: &Lab, lines: &str) -> Result<Self> {
        let binary = &lab.flare;
        if !binary.exists() {
            bail!("no server at {}: build it with `cargo build --release -p flare`", binary.display());
        }
        let folder = TempDir::with_prefix_in(lab::store_prefix(), &lab.data)?;
        let (config, log) = (folder.path().join("flare.toml"), folder.path().join("flare.log"));
        fs::write(&config, format!("{CONFIG}{lines}"))?;
        // The port is free again as soon as the listener is dropped: nothing was accepted on it.
        let addr = listen().await?.local_addr()?;

        let start = Instant::now();
        let mut command = Command::new("bash");
        command.args(["-c", GUARD, "guard"]).arg(&log).arg(binary).args(["start", "--config"]).arg(&config);
        command.arg("--addr").arg(addr.to_string()).arg("--data").arg(folder.path().join("data"));
        let mut process = Process::start(&mut command, "flare")?;
        let pid = process.line(READY_TIME_MAX).await?.trim().parse().context("read the server's process id")?;
        let subject = Subject::new(addr, pid, process);
        wait_until_ready(&subject).await.with_context(|| tail(&log))?;
        Ok(Self { subject, start_ms: start.elapsed().as_secs_f64() * 1e3, _folder: folder })
    }

    /// Creates the resources `r0`, `r1`, … with so many subscriptions each; `url` names the endpoint of the n-th.
    pub async fn subscribe(&self, resources: u64, each: u64, url: impl Fn(u64) -> String) -> Result<()> {
        let ids = self.create(resources, resource_request).await?;
        self.subscribe_to(&ids, each, url).await
    }

    /// Creates the resources only and returns their ids.
    pub async fn resources(&self, resources: u64) -> Result<Vec<String>> {
        self.create(resources, resource_request).await
    }

    pub async fn subscribe_to(&self, ids: &[String], each: u64, url: impl Fn(u64) -> String) -> Result<()> {
        self.subscribe_with(ids, each, url, |_| None).await.map(drop)
    }

    /// Subscribes with a filter each, where there is one; returns the ids.
    pub async fn subscribe_with(
        &self,
        ids: &[String],
        each: u64,
        url: impl Fn(u64) -> String,
        filter: impl Fn(u64) -> Option<String>,
    ) -> Result<Vec<String>> {
        // As many in flight as the ceiling, shared by the outlets that one document reaches.
        let concurrency = (64 / each.max(1)).max(16);
        let request = |outlet: u64| {
            let resource = &ids[(outlet / each) as usize];
            let body = json!({
                "name": format!("s{outlet}"),
                "endpoint": { "url": url(outlet), "method": "post" },
                "delivery": { "concurrency": concurrency },
                "content": { "document": true, "envelope": true },
                "filter": filter(outlet),
            });
            (format!("/resources/{resource}/subscriptions"), Bytes::from(body.to_string()))
        };
        self.create(ids.len() as u64 * each, request).await
    }

    /// Creates one subscription; returns its path.
    pub async fn subscription(&self, resource: &str, body: &serde_json::Value) -> Result<String> {
        let path = format!("/resources/{resource}/subscriptions");
        let ids = self.create(1, |_| (path.clone(), Bytes::from(body.to_string()))).await?;
        let id = ids.first().context("no subscription was made")?;
        Ok(format!("{path}/{id}"))
    }

    /// Deletes a subscription and waits until it is gone, with its queue.
    pub async fn unsubscribe(&self, resource: &str, subscription: &str) -> Result<()> {
        let path = format!("/resources/{resource}/subscriptions/{subscription}");
        call(self.subject.addr, Method::DELETE, &path, Bytes::new()).await?;
        timeout(GONE_TIME_MAX, async {
            while call(self.subject.addr, Method::GET, &path, Bytes::new()).await.is_ok() {
                sleep(GONE_POLL).await;
            }
        })
        .await
        .context("the subscription was not gone in time")
    }

    /// Posts `count` requests over a few connections at once; returns the ids in order.
    async fn create(&self, count: u64, request: impl Fn(u64) -> (String, Bytes)) -> Result<Vec<String>> {
        let requests: Arc<Vec<(String, Bytes)>> = Arc::new((0..count).map(request).collect());
        let next = Arc::new(AtomicU64::new(0));
        let mut workers = JoinSet::new();
        for _ in 0..SETUP_CONNECTIONS.min(requests.len()) {
            let (requests, next, addr) = (requests.clone(), next.clone(), self.subject.addr);
            workers.spawn(async move {
                let mut connection = Connection::open(addr).await?;
                let mut created = Vec::new();
                while let index = next.fetch_add(1, Ordering::Relaxed) as usize
                    && let Some((path, body)) = requests.get(index)
                {
                    let (status, answer) = connection.call(Method::POST, path, body.clone()).await?;
                    if !status.is_success() {
                        bail!("POST {path} answered {status}: {}", excerpt(&answer));
                    }
                    created.push((index, serde_json::from_slice::<Created>(&answer)?.id));
                }
                Ok(created)
            });
        }
        let mut created = Vec::with_capacity(requests.len());
        while let Some(worker) = workers.join_next().await {
            created.extend(worker??);
        }
        created.sort_unstable();
        Ok(created.into_iter().map(|(_, id)| id).collect())
    }
}

fn resource_request(resource: u64) -> (String, Bytes) {
    let endpoint = format!("http://bench.local/r{resource}/items/{{id}}");
    let body = json!({ "endpoint": endpoint, "change": { "field": "revision" } });
    ("/resources".into(), Bytes::from(body.to_string()))
}

async fn wait_until_ready(subject: &Subject) -> Result<()> {
    timeout(READY_TIME_MAX, async {
        loop {
            if let Ok(mut connection) = Connection::open(subject.addr).await
                && let Ok((status, _)) = connection.call(Method::GET, "/ready", Bytes::new()).await
                && status.is_success()
            {
                return Ok(());
            }
            if !Path::new(&format!("/proc/{}", subject.pid)).exists() {
                bail!("the server ended while starting");
            }
            sleep(READY_POLL).await;
        }
    })
    .await
    .context("the server was not ready in time")?
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let start = text.char_indices().rev().nth(LOG_BYTES_SHOWN).map_or(0, |(index, _)| index);
    format!("start flare; its log ends with:\n{}", text[start..].trim_end())
}
