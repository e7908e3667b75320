//! The worker that a team writes by hand: the ceiling with one driver in its middle. PUTs that wait become one group,
//! which is written; then they are answered and posted, and what was posted is recorded in groups. Over a broker the
//! documents go through its queue instead, and what was posted is acknowledged.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use anyhow::{Context, Result};
use axum::{
    Router,
    extract::{Path, State},
    routing::put,
};
use bytes::Bytes;
use clap::Args;
use http::{StatusCode, Uri};
use serde::de::IgnoredAny;
use tokio::sync::{mpsc, oneshot};

use crate::drivers::{Broker, Change, Database, Engine, Receipt, Taken};
use crate::parts::posting::Posting;
use crate::parts::serve;

const CHANNEL_MAX: usize = 1024;
const GROUP_MAX: usize = 512;

#[derive(Args)]
pub struct Options {
    #[arg(long)]
    pub engine: Engine,
    #[arg(long)]
    pub url: String,
    /// The schema, database, keyspace, queue or stream; must not be there yet
    #[arg(long)]
    pub namespace: String,
    /// Where the documents are posted; without it they are only written
    #[arg(long)]
    pub target: Option<Uri>,
    #[arg(long, default_value_t = 64)]
    pub in_flight: usize,
}

/// A PUT that waits for its group.
struct Waiting {
    change: Change,
    done: oneshot::Sender<()>,
}

#[derive(Clone)]
struct Intake {
    waiting: mpsc::Sender<Waiting>,
    next: Arc<AtomicI64>,
}

pub async fn run(options: &Options) -> Result<()> {
    let Options { engine, url, namespace, .. } = options;
    let (waiting, groups) = mpsc::channel(CHANNEL_MAX);
    if let Some(database) = Database::open(*engine, url, namespace).await? {
        over_database(Arc::new(database), groups, options);
    } else {
        let broker = Broker::open(*engine, url, namespace).await?.context("no driver for this engine")?;
        over_broker(Arc::new(broker), groups, options)?;
    }
    let intake = Intake { waiting, next: Arc::new(AtomicI64::new(1)) };
    let router = Router::new().route("/documents/{*url}", put(accept)).with_state(intake);
    serve(router).await
}

async fn accept(State(intake): State<Intake>, Path(url): Path<String>, body: Bytes) -> StatusCode {
    if serde_json::from_slice::<IgnoredAny>(&body).is_err() {
        return StatusCode::UNPROCESSABLE_ENTITY;
    }
    let sequence = intake.next.fetch_add(1, Ordering::Relaxed);
    let Some(change) = Change::read(sequence, url, body) else { return StatusCode::UNPROCESSABLE_ENTITY };
    let (done, written) = oneshot::channel();
    match (intake.waiting.send(Waiting { change, done }).await, written.await) {
        (Ok(()), Ok(())) => StatusCode::ACCEPTED,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn over_database(database: Arc<Database>, mut groups: mpsc::Receiver<Waiting>, options: &Options) {
    let (to_post, posting) = mpsc::channel(CHANNEL_MAX);
    let (posted, mut recording) = mpsc::channel(CHANNEL_MAX);
    let delivers = options.target.is_some();
    if let Some(target) = &options.target {
        let content = |change: &Change| change.content.clone();
        Posting { items: posting, content, posted: Some(posted) }.start(target, options.in_flight);
    }
    let writing = database.clone();
    must(async move {
        let mut group = Vec::new();
        while groups.recv_many(&mut group, GROUP_MAX).await > 0 {
            let (changes, answers) = split(&mut group);
            writing.write(&changes).await?;
            answer(answers);
            for change in changes.into_iter().filter(|_| delivers) {
                to_post.send(change).await?;
            }
        }
        Ok(())
    });
    must(async move {
        let mut group = Vec::new();
        while recording.recv_many(&mut group, GROUP_MAX).await > 0 {
            // One statement may touch a row once.
            group.sort_by_key(|change: &Change| (change.number, std::cmp::Reverse(change.sequence)));
            group.dedup_by_key(|change| change.number);
            database.record(&group).await?;
            group.clear();
        }
        Ok(())
    });
}

fn over_broker(broker: Arc<Broker>, mut groups: mpsc::Receiver<Waiting>, options: &Options) -> Result<()> {
    let target = options.target.as_ref().context("a queue without a target measures nothing")?;
    let (taken, posting) = mpsc::channel(CHANNEL_MAX);
    let (posted, mut acking) = mpsc::channel(CHANNEL_MAX);
    let content = |taken: &Taken| taken.content.clone();
    Posting { items: posting, content, posted: Some(posted) }.start(target, options.in_flight);
    let (pushing, pulling) = (broker.clone(), broker.clone());
    must(async move {
        let mut group = Vec::new();
        while groups.recv_many(&mut group, GROUP_MAX).await > 0 {
            let (changes, answers) = split(&mut group);
            pushing.push(&changes).await?;
            answer(answers);
        }
        Ok(())
    });
    must(async move { pulling.pull(taken).await });
    must(async move {
        let mut group = Vec::new();
        while acking.recv_many(&mut group, GROUP_MAX).await > 0 {
            let receipts: Vec<Receipt> = group.drain(..).map(|taken: Taken| taken.receipt).collect();
            broker.ack(receipts).await?;
        }
        Ok(())
    });
    Ok(())
}

fn split(group: &mut Vec<Waiting>) -> (Vec<Change>, Vec<oneshot::Sender<()>>) {
    group.drain(..).map(|waiting| (waiting.change, waiting.done)).unzip()
}

fn answer(waiting: Vec<oneshot::Sender<()>>) {
    for done in waiting {
        let _nobody_waits = done.send(());
    }
}

/// A loop whose failure ends the measurement.
fn must(work: impl Future<Output = Result<()>> + Send + 'static) {
    tokio::spawn(async move {
        if let Err(error) = work.await {
            eprintln!("by hand: {error:#}");
            std::process::exit(1);
        }
    });
}
