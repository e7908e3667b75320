//! Copies over a network that fails, against PostgreSQL. Needs `FLARE_TEST_POSTGRES_URL`.

#![allow(clippy::unwrap_used, reason = "the exception for tests does not reach what tests share")]

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flare_contract::proxy::{Cut, Proxy};
use flare_dump::copy::{self, Run, Summary};
use flare_dump::event::{Event, Observer, Progress};
use flare_dump::history::{Place, State};
use flare_dump::job::Job;
use flare_dump::session::Session;
use tokio_util::sync::CancellationToken;

/// The server behind a proxy, with a table of our own; a folder for the history.
struct Lab {
    proxy: Arc<Proxy>,
    client: tokio_postgres::Client,
    folder: tempfile::TempDir,
    direct: String,
    through: String,
}

impl Lab {
    /// `None` where there is no server.
    async fn new(name: &str) -> Option<Self> {
        let url = server::url("FLARE_TEST_POSTGRES_URL")?;
        let client = connect(&url).await;
        let schema = format!("dump_faults_{name}");
        let sql = format!(
            "DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}; SET search_path TO {schema};
             CREATE TABLE source (id bigint PRIMARY KEY, name text, at timestamptz, price numeric);
             INSERT INTO source SELECT i, 'row ' || i, now(), i / 7.0 FROM generate_series(1, 10000) i; ANALYZE source"
        );
        client.batch_execute(&sql).await.unwrap();
        let host = url.split_once('@').unwrap().1.split('/').next().unwrap().to_owned();
        let proxy = Arc::new(Proxy::start(&host).await);
        let table = |url: &str| format!("{url}{}table={schema}.", if url.contains('?') { '&' } else { '?' });
        let through = url.replace(&host, &proxy.address().to_string());
        let folder = tempfile::tempdir().unwrap();
        Some(Self { proxy, client, folder, direct: table(&url), through: table(&through) })
    }

    fn job(&self, from: &str, to: &str) -> Job {
        let mut job = Job::new(from, to);
        (job.chunksize, job.workers, job.give_up_after) = (200, 3, 20);
        job
    }

    async fn run(&self, job: &Job, how: Run, observer: Arc<dyn Observer>) -> Summary {
        let session = Session::open(job.clone()).await.unwrap();
        let place = Place::of_job(&self.folder.path().join("job.toml"));
        copy::run(session, place, how, observer, Progress::shared(), CancellationToken::new()).await.unwrap()
    }

    /// Rows of the target, and how many of them are those of the source.
    async fn compare(&self) -> (i64, i64) {
        let sql = "SELECT (SELECT count(*) FROM target), \
            (SELECT count(*) FROM source JOIN target USING (id, name, at, price))";
        let row = self.client.query_one(sql, &[]).await.unwrap();
        (row.get(0), row.get(1))
    }
}

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(connection);
    tasks.detach_all();
    client
}

/// Does something when so many chunks are completed.
struct After<F>(usize, AtomicUsize, F);

impl<F: Fn() + Send + Sync> Observer for After<F> {
    fn notify(&self, event: &Event) {
        if matches!(event, Event::Completed { .. }) && self.1.fetch_add(1, Ordering::SeqCst) + 1 == self.0 {
            (self.2)();
        }
    }
}

fn after(chunks: usize, act: impl Fn() + Send + Sync + 'static) -> Arc<dyn Observer> {
    Arc::new(After(chunks, AtomicUsize::new(0), act))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_goes_away_and_comes_back_has_every_row_once() {
    let Some(lab) = Lab::new("restart").await else { return };
    let job = lab.job(&format!("{}source", lab.direct), &format!("{}target", lab.through));
    let proxy = Arc::clone(&lab.proxy);
    let handle = tokio::runtime::Handle::current();
    let away = after(10, move || {
        proxy.refuse(true);
        proxy.cut();
        let proxy = Arc::clone(&proxy);
        handle.spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(700)).await;
            proxy.refuse(false);
        });
    });
    let summary = lab.run(&job, Run::default(), away).await;
    assert_eq!((summary.state, summary.rows), (State::Ended, 10_000), "{summary:?}");
    assert_eq!(lab.compare().await, (10_000, 10_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_not_repeated() {
    let Some(lab) = Lab::new("commit").await else { return };
    let job = lab.job(&format!("{}source", lab.direct), &format!("{}target", lab.through));
    let proxy = Arc::clone(&lab.proxy);
    let cut = after(5, move || proxy.cut_at(b"COMMIT", Cut::After));
    let summary = lab.run(&job, Run::default(), cut).await;
    assert!(lab.proxy.has_cut());
    assert_eq!((summary.state, summary.rows), (State::Ended, 10_000), "{summary:?}");
    assert_eq!(lab.compare().await, (10_000, 10_000));
}

/// Takes the rows of a chunk away when it is known that it was not made durable: as a server does that crashes then.
struct Forgetful {
    proxy: Arc<Proxy>,
    client: tokio_postgres::Client,
    completed: AtomicUsize,
    forgotten: AtomicUsize,
}

impl Observer for Forgetful {
    fn notify(&self, event: &Event) {
        match event {
            Event::Completed { .. } if self.completed.fetch_add(1, Ordering::SeqCst) == 4 => {
                self.proxy.cut_at(b"RETURNING chunk", Cut::Before);
            }
            Event::Retry { chunk, .. } => {
                let chunk: u64 = chunk.split(", ").next().unwrap().parse().unwrap();
                let (first, last) = (chunk * 200 + 1, chunk * 200 + 200);
                let sql = format!(
                    "BEGIN; DELETE FROM target WHERE id BETWEEN {first} AND {last};
                     DELETE FROM flare_dump_ledger WHERE chunk = '{chunk}'; COMMIT"
                );
                let forget = self.client.batch_execute(&sql);
                tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(forget)).unwrap();
                self.forgotten.fetch_add(1, Ordering::SeqCst);
            }
            _ => (),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_the_server_lost_before_it_was_durable_is_written_again() {
    let Some(lab) = Lab::new("lost").await else { return };
    let client = connect(&server::url("FLARE_TEST_POSTGRES_URL").unwrap()).await;
    client.batch_execute("SET search_path TO dump_faults_lost").await.unwrap();
    let job = lab.job(&format!("{}source", lab.direct), &format!("{}target", lab.through));
    let forgetful = Arc::new(Forgetful {
        proxy: Arc::clone(&lab.proxy),
        client,
        completed: AtomicUsize::new(0),
        forgotten: AtomicUsize::new(0),
    });
    let summary = lab.run(&job, Run::default(), Arc::clone(&forgetful) as Arc<dyn Observer>).await;
    assert!(lab.proxy.has_cut());
    assert_eq!(forgetful.forgotten.load(Ordering::SeqCst), 1);
    assert_eq!((summary.state, summary.rows), (State::Ended, 10_000), "{summary:?}");
    assert_eq!(lab.compare().await, (10_000, 10_000));
    assert_eq!(forgetful.completed.load(Ordering::SeqCst), 50, "no chunk is told twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_freezes_ends_in_failure_and_is_resumed() {
    let Some(lab) = Lab::new("frozen").await else { return };
    let mut job = lab.job(&format!("{}source", lab.through), &format!("{}target", lab.direct));
    job.give_up_after = 2;
    let proxy = Arc::clone(&lab.proxy);
    let frozen = after(10, move || {
        proxy.refuse(true);
        proxy.hold();
    });
    let summary = lab.run(&job, Run::default(), frozen).await;
    assert_eq!(summary.state, State::Failed, "{summary:?}");
    assert!(summary.message.as_ref().unwrap().contains("source"), "{summary:?}");
    assert!((2_000..10_000).contains(&summary.rows), "{summary:?}");
    lab.proxy.calm();
    lab.proxy.refuse(false);
    lab.proxy.release();
    let resumed = lab.run(&job, Run { resume: true, ..Run::default() }, Arc::new(flare_dump::event::Silent)).await;
    assert_eq!((resumed.state, resumed.rows), (State::Ended, 10_000), "{resumed:?}");
    assert_eq!(lab.compare().await, (10_000, 10_000));
    let sql = "SELECT count(*) FROM pg_constraint WHERE contype = 'p' AND conrelid = 'target'::regclass";
    let keys: i64 = lab.client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(keys, 1, "the key is made at the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_row_in_ten_thousand_is_found() {
    let Some(lab) = Lab::new("bad").await else { return };
    lab.client
        .batch_execute(
            "CREATE TABLE target (id bigint PRIMARY KEY, name text, at timestamptz, \
             price numeric CHECK (price <> 5555 / 7.0))",
        )
        .await
        .unwrap();
    let mut job = lab.job(&format!("{}source", lab.direct), &format!("{}target", lab.direct));
    job.max_rejects = 5;
    let summary = lab.run(&job, Run::default(), Arc::new(flare_dump::event::Silent)).await;
    assert_eq!((summary.state, summary.rows, summary.rejects), (State::Ended, 9_999, 1), "{summary:?}");
    assert_eq!(lab.compare().await, (9_999, 9_999));
    let rejects = std::fs::read_to_string(summary.rejects_file.unwrap()).unwrap();
    assert!(rejects.contains("target_price_check") && rejects.contains("\"row 5555\""), "{rejects}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_target_is_verified_chunk_by_chunk() {
    let Some(lab) = Lab::new("verify").await else { return };
    let mut job = lab.job(&format!("{}source", lab.direct), &format!("{}target", lab.direct));
    job.verify = true;
    let summary = lab.run(&job, Run::default(), Arc::new(flare_dump::event::Silent)).await;
    let verified = summary.verified.unwrap();
    assert!(verified.is_same() && verified.by_chunk && verified.rows_found == 10_000, "{verified:?}");
    lab.client.batch_execute("UPDATE target SET name = 'other' WHERE id = 1234").await.unwrap();
    let session = Session::open(Job { mode: flare_dump::port::WriteMode::Append, ..job }).await.unwrap();
    let history = Place::of_job(&lab.folder.path().join("job.toml")).load().unwrap().unwrap();
    let verified = flare_dump::verify::verify(&session, &history).await.unwrap();
    assert_eq!(verified.differing, ["6"], "the chunk of row 1234");
}
