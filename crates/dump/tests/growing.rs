//! Tables that grow while they are copied.

#![cfg(all(feature = "mongodb", feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server;

use std::path::Path;
use std::sync::Arc;

use flare_dump::copy::{Run, run};
use flare_dump::event::{Event, Observer, Progress};
use flare_dump::history::{Place, State};
use flare_dump::job::Job;
use flare_dump::port::WriteMode;
use flare_dump::session::Session;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Rows of the source at the start: even numbers.
const ROWS: u64 = 300;
/// How often it grows.
const GROWTHS: u64 = 5;

/// Adds rows to the source whenever a chunk is done.
struct Grower(Mutex<Vec<Job>>);

impl Observer for Grower {
    fn notify(&self, event: &Event) {
        let Event::Completed { .. } = event else { return };
        let Some(job) = self.0.lock().pop() else { return };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(server::copy(job)));
    }
}

fn ids(path: &str) -> Vec<u64> {
    let text = std::fs::read_to_string(path).unwrap();
    let id = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_u64().unwrap();
    let mut ids: Vec<u64> = text.lines().map(id).collect();
    ids.sort_unstable();
    ids
}

/// Everything that was there at the start is copied, and nothing that came behind it.
async fn check(folder: &Path, source: &str) {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let mut fill = Job::new(format!("{}?table=numbers", path("origin.db")), source);
    fill.mode = WriteMode::Replace;
    server::copy(fill).await;
    let grow = |growth: u64| {
        let file = path(&format!("grow-{growth}.ndjson"));
        let (behind, between) = (2 * ROWS + growth, 2 * growth * ROWS / GROWTHS + 1);
        std::fs::write(&file, format!("{{\"id\":{behind},\"v\":\"b\"}}\n{{\"id\":{between},\"v\":\"c\"}}\n")).unwrap();
        let mut job = Job::new(file, source);
        job.mode = WriteMode::Append;
        job
    };
    let grower = Arc::new(Grower(Mutex::new((0..GROWTHS).map(grow).collect())));
    let mut job = Job::new(source, path("out.ndjson"));
    (job.chunksize, job.workers, job.mode) = (10, 2, WriteMode::Replace);
    let session = Session::open(job).await.unwrap();
    assert!(matches!(session.description.walk, flare_dump::port::Walk::Key(_)), "{source}");
    let place = Place::of_job(&folder.join("job.toml"));
    let observer = Arc::clone(&grower) as Arc<dyn Observer>;
    let stop = CancellationToken::new();
    let summary = run(session, place, Run::default(), observer, Progress::shared(), stop).await.unwrap();
    assert_eq!(summary.state, State::Ended, "{source}: {summary:?}");
    assert!(grower.0.lock().is_empty(), "{source} has grown");
    let found = ids(&path("out.ndjson"));
    let old: Vec<u64> = found.iter().copied().filter(|id| id % 2 == 0).collect();
    assert_eq!(old, (0..ROWS).map(|n| 2 * n).collect::<Vec<_>>(), "{source}");
    // What came between may be there or not, but once.
    let new: Vec<u64> = found.into_iter().filter(|id| id % 2 == 1).collect();
    assert!(new.is_sorted_by(|a, b| a < b) && new.iter().all(|id| *id < 2 * ROWS), "{source}: {new:?}");
    let mut whole = Job::new(source, path("whole.ndjson"));
    whole.mode = WriteMode::Replace;
    assert_eq!(server::copy(whole).await.rows, ROWS + 2 * GROWTHS, "{source} has what came meanwhile");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_behind_the_end_is_not_copied_and_the_copy_ends() {
    let folder = tempfile::tempdir().unwrap();
    let origin = rusqlite::Connection::open(folder.path().join("origin.db")).unwrap();
    origin
        .execute_batch(&format!(
            "CREATE TABLE numbers (id INTEGER PRIMARY KEY, v TEXT);
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS} - 1)
             INSERT INTO numbers SELECT 2 * i, 'a' FROM n;"
        ))
        .unwrap();
    for source in server::tables(folder.path(), "growing") {
        check(folder.path(), &source).await;
    }
    if let Some(url) = server::url("FLARE_TEST_MONGODB_URL") {
        let (host, options) = url.split_once('?').unwrap_or((&url, ""));
        let host = host.trim_end_matches('/');
        check(folder.path(), &format!("{host}/flare_dump_growing.numbers?id=id&{options}")).await;
    }
}
