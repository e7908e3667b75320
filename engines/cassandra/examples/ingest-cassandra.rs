//! What the engine costs on top of its server: the same writes by the bare driver, and by the engine.
//!
//! `dev/servers up cassandra && eval "$(dev/servers env)"`, then
//! `cargo run --release -p flare-cassandra --example ingest-cassandra [SECONDS]`
//!
//! - *driver*: one loop that writes groups of 64 documents of 1 KiB with the statements of the engine: contents,
//!   append, heads and feed, state. It reads nothing and decides nothing.
//! - *engine*: 64 callers of `Documents::write`, one document each, new and changed in turns.
//!
//! Then the same for progress: 100 versions and a cursor at a time.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement, not a server")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use flare_cassandra::Options;
use flare_contract::{make, proxy::Proxy};
use flare_core::{
    DocumentNumber, Sequence,
    document::{DocumentWrite, Progress, Version, WriteBody},
    port::Store,
    revision::Revision,
    stream::Stream,
};
use futures_util::future::{join_all, try_join_all};
use scylla::{
    client::{session::Session, session_builder::SessionBuilder},
    statement::{
        batch::{Batch, BatchType},
        prepared::PreparedStatement,
    },
    value::CqlVarint,
};
use uuid::Uuid;

const CALLERS: u64 = 64;
const DOCUMENTS: u64 = 50_000;
const STEPS: u64 = 100;

#[tokio::main]
async fn main() {
    let url = std::env::var("FLARE_TEST_CASSANDRA_URL").expect("FLARE_TEST_CASSANDRA_URL names the server");
    let server = flare_contract::server::host(&url);
    let login = url.trim_start_matches("cassandra://").rsplit_once('@').and_then(|(login, _)| login.split_once(':'));
    let (user, password) = login.unwrap_or_default();
    let seconds = std::env::args().nth(1).map_or(10, |seconds| seconds.parse().expect("SECONDS is a number"));
    let time = Duration::from_secs(seconds);
    let keyspace = format!("flare_bench_{}", &Uuid::new_v4().simple().to_string()[..8]);
    let options = Options {
        hosts: vec![server.to_owned()],
        keyspace: keyspace.clone(),
        username: Some(user.to_owned()),
        password: Some(password.to_owned()),
        ..Options::default()
    };
    let store = flare_cassandra::open(&options).await.unwrap();
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let session = SessionBuilder::new().known_node(server).user(user, password).use_keyspace(&keyspace, true);
    let session = session.build().await.unwrap();
    let raw = Raw::new(session).await;

    // Both are measured twice, in turns: the first time warms up the server.
    let mut rates = [0.0; 4];
    for _ in 0..2 {
        rates[0] = raw.documents(time).await;
        rates[1] = documents(&store, &stream, time).await;
        rates[2] = raw.progress(time).await;
        rates[3] = progress(&store, &stream, time).await;
    }
    println!("{:<12} {:>12} {:>12} {:>7}", "", "driver/s", "engine/s", "ratio");
    println!("{:<12} {:>12.0} {:>12.0} {:>7.2}", "documents", rates[0], rates[1], rates[1] / rates[0]);
    println!("{:<12} {:>12.0} {:>12.0} {:>7.2}", "progress", rates[2], rates[3], rates[3] / rates[2]);
    println!("round trips per change: {:.2}", round_trips(server, &options, &stream).await);
    store.engine.close().await.unwrap();
    raw.session.query_unpaged(format!("DROP KEYSPACE {keyspace}"), ()).await.unwrap();
}

fn content() -> Bytes {
    Bytes::from(format!(r#"{{"text":"{}"}}"#, "x".repeat(1012)))
}

/// Documents per second, by callers that each wait for their write.
async fn documents(store: &Store, stream: &Stream, time: Duration) -> f64 {
    let (written, next) = (AtomicU64::new(0), AtomicU64::new(0));
    let content = content();
    let begun = Instant::now();
    let callers = (0..CALLERS).map(|_| async {
        while begun.elapsed() < time {
            let number = next.fetch_add(1, Ordering::Relaxed);
            // Every second one is a change of a document that is there.
            let document = if number.is_multiple_of(2) { number / 2 % DOCUMENTS } else { number / 4 % DOCUMENTS };
            let revision = Revision::new(i128::from(jiff::Timestamp::now().as_nanosecond() as u64));
            let body = WriteBody::Put { revision, content: content.clone() };
            let url = make::url(&document.to_string());
            let write = DocumentWrite { stream: stream.id, url, body, at: jiff::Timestamp::now(), trace: None };
            written.fetch_add(store.documents.write(vec![write]).await.unwrap().len() as u64, Ordering::Relaxed);
        }
    });
    join_all(callers).await;
    written.into_inner() as f64 / begun.elapsed().as_secs_f64()
}

/// Steps of progress per second, by eight callers.
async fn progress(store: &Store, stream: &Stream, time: Duration) -> f64 {
    let outlet = make::stored_outlet(store, stream).await.id;
    let (recorded, next) = (AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    let callers = (0..8).map(|_| async {
        while begun.elapsed() < time {
            let first = next.fetch_add(STEPS, Ordering::Relaxed);
            let version = |number| Version { sequence: Sequence(number), revision: Revision::new(1), deleted: false };
            let mut steps: Vec<_> = (first..first + STEPS)
                .map(|number| Progress::Version { outlet, number: DocumentNumber(number), version: version(number) })
                .collect();
            steps.push(Progress::Cursor { outlet, cursor: Sequence(first) });
            store.deliveries.record(steps).await.unwrap();
            recorded.fetch_add(STEPS, Ordering::Relaxed);
        }
    });
    join_all(callers).await;
    recorded.into_inner() as f64 / begun.elapsed().as_secs_f64()
}

/// How often a node waits for the server, for each change of 64 callers.
async fn round_trips(server: &str, options: &Options, stream: &Stream) -> f64 {
    let proxy = Proxy::start(server).await;
    let through = Options { hosts: vec![proxy.address().to_string()], connections: 1, ..options.clone() };
    let store = flare_cassandra::open(&through).await.unwrap();
    let before = proxy.round_trips();
    let time = Duration::from_secs(2);
    let changes = documents(&store, stream, time).await * time.as_secs_f64();
    let taken = (proxy.round_trips() - before) as f64 / changes;
    store.engine.close().await.unwrap();
    taken
}

/// The bare driver with the statements of the engine.
struct Raw {
    session: Arc<Session>,
    content: PreparedStatement,
    head: PreparedStatement,
    append: PreparedStatement,
    row: PreparedStatement,
    feed: PreparedStatement,
    state: PreparedStatement,
    version: PreparedStatement,
    cursor: PreparedStatement,
}

impl Raw {
    async fn new(session: Session) -> Self {
        let session = Arc::new(session);
        let prepare = |text: &'static str| {
            let session = session.clone();
            async move { session.prepare(text).await.unwrap() }
        };
        Self {
            content: prepare(
                "INSERT INTO changes (group_id, position, stream, url, number, revision, updated_at, deleted, bytes, \
                 content) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )
            .await,
            append: prepare("UPDATE log SET head = ? WHERE bucket = ? IF head = ?").await,
            row: prepare("INSERT INTO log (bucket, turn, group_id, kind, last) VALUES (?, ?, ?, ?, ?)").await,
            head: prepare(
                "INSERT INTO heads (stream, shard, url, number, sequence, revision, updated_at, deleted, bytes, \
                 group_id, position) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )
            .await,
            feed: prepare(
                "INSERT INTO feed (stream, bucket, sequence, number, url, revision, updated_at, deleted, bytes, \
                 group_id, position) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )
            .await,
            state: prepare("UPDATE state SET turn = ?, sequence = ? WHERE name = 'driver'").await,
            version: prepare(
                "INSERT INTO versions (outlet, bucket, number, sequence, revision, deleted) VALUES (?, ?, ?, ?, ?, ?)",
            )
            .await,
            cursor: prepare("UPDATE standings SET cursor = ? WHERE part = ? AND outlet = ?").await,
            session,
        }
    }

    async fn documents(&self, time: Duration) -> f64 {
        let stream = Uuid::new_v4();
        // Far from what the engine uses.
        let mut bucket = i64::from(Uuid::new_v4().as_u128() as u32) + (1 << 40);
        let (mut turn, mut sequence) = (0i64, 0i64);
        let content = content();
        let begun = Instant::now();
        while begun.elapsed() < time {
            let group = Uuid::new_v4();
            let urls: Vec<_> = (0..CALLERS as i64).map(|n| format!("http://api.test/users/{}", sequence + n)).collect();
            let one = CqlVarint::from_signed_bytes_be_slice(&[1]);
            let rows: Vec<_> = (0..CALLERS as i32)
                .map(|n| (group, n, stream, &urls[n as usize], 1i64, &one, 1i64, false, 1024i32, content.clone()))
                .collect();
            let halves = rows.chunks(CALLERS as usize / 2);
            try_join_all(halves.map(|rows| self.batch(&self.content, rows))).await.unwrap();
            let before = (turn % 1000 != 0).then_some(turn);
            if before.is_none() {
                bucket += 1;
            }
            turn += 1;
            let mut append = Batch::new(BatchType::Unlogged);
            append.append_statement(self.append.clone());
            append.append_statement(self.row.clone());
            let last = sequence + CALLERS as i64;
            let values = ((turn, bucket, before), (bucket, turn, group, "changes", last));
            self.session.batch(&append, values).await.unwrap();
            let mut shards: std::collections::BTreeMap<&str, Vec<_>> = std::collections::BTreeMap::new();
            let mut feed = Vec::new();
            for (n, url) in urls.iter().enumerate() {
                let (n, shard) = (n as i32, &url[..23]);
                let place = sequence + i64::from(n);
                shards
                    .entry(shard)
                    .or_default()
                    .push((stream, shard, url, place, place, &one, 1i64, false, 1024i32, group, n));
                feed.push((stream, 0i64, place, place, url, &one, 1i64, false, 1024i32, group, n));
            }
            let heads = try_join_all(shards.values().map(|rows| self.batch(&self.head, rows)));
            let (heads, feed) = tokio::join!(heads, self.batch(&self.feed, &feed));
            heads.unwrap();
            feed.unwrap();
            self.session.execute_unpaged(&self.state, (turn, last)).await.unwrap();
            sequence = last;
        }
        sequence as f64 / begun.elapsed().as_secs_f64()
    }

    async fn progress(&self, time: Duration) -> f64 {
        let (outlet, next) = (Uuid::new_v4(), AtomicU64::new(0));
        let one = CqlVarint::from_signed_bytes_be_slice(&[1]);
        let begun = Instant::now();
        let callers = (0..8).map(|_| async {
            while begun.elapsed() < time {
                let first = next.fetch_add(STEPS, Ordering::Relaxed) as i64;
                let rows: Vec<_> = (first..first + STEPS as i64)
                    .map(|number| (outlet, number / (1 << 14), number, number, &one, false))
                    .collect();
                let cursor = self.session.execute_unpaged(&self.cursor, (first, "driver", outlet.as_bytes().to_vec()));
                let (versions, cursor) = tokio::join!(self.batch(&self.version, &rows), cursor);
                versions.unwrap();
                cursor.unwrap();
            }
        });
        join_all(callers).await;
        next.into_inner() as f64 / begun.elapsed().as_secs_f64()
    }

    async fn batch<R: scylla::serialize::row::SerializeRow>(
        &self,
        statement: &PreparedStatement,
        rows: &[R],
    ) -> Result<(), scylla::errors::ExecutionError> {
        let mut batch = Batch::new(BatchType::Unlogged);
        rows.iter().for_each(|_| batch.append_statement(statement.clone()));
        self.session.batch(&batch, rows).await.map(drop)
    }
}
