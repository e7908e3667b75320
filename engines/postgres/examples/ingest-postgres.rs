//! What the engine costs over its driver: the same statements in the same groups, with and without the engine.
//!
//! `FLARE_TEST_POSTGRES_URL=… cargo run --release -p flare-postgres --example ingest-postgres [SECONDS]`
//!
//! - *driver*: one loop that commits groups of 1 KiB documents with the statements of the engine, and nothing else.
//! - *engine*: `Documents::write` of the same documents by concurrent callers, one document each.
//!
//! Likewise for progress: versions upserted in groups by the driver, and handed to `Deliveries::record`. Each part has
//! a schema of its own, which is dropped afterwards.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement, not a server")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use flare_contract::{make, proxy::Proxy};
use flare_core::{
    DocumentNumber, Sequence,
    document::{DocumentWrite, Progress, Version, WriteBody},
    port::Store,
    revision::Revision,
    stream::Stream,
};
use flare_postgres::Options;
use futures_util::future::join_all;
use tokio_postgres::{Client, NoTls};

/// A multiple of all groups.
const DOCUMENTS: u64 = 20_480;
const STEPS: u64 = 2000;

#[tokio::main]
async fn main() {
    let seconds = std::env::args().nth(1).map_or(5, |seconds| seconds.parse().expect("SECONDS is a number"));
    let url = std::env::var("FLARE_TEST_POSTGRES_URL").expect("FLARE_TEST_POSTGRES_URL names a server");
    let time = Duration::from_secs(seconds);
    println!("{:<10} {:>8} {:>12} {:>10} {:>14}", "what", "callers", "", "per second", "of the driver");
    for callers in [64, 512] {
        // Half of the callers wait while the other half is written.
        let driver = driver_writes(&url, callers / 2, time).await;
        let engine = engine_writes(&url, callers, time).await;
        println!("{:<10} {callers:>8} {:>12} {driver:>10.0}", "driver", "documents");
        println!("{:<10} {callers:>8} {:>12} {engine:>10.0} {:>14.2}", "engine", "documents", engine / driver);
    }
    let driver = driver_records(&url, time).await;
    let engine = engine_records(&url, time).await;
    println!("{:<10} {:>8} {:>12} {driver:>10.0}", "driver", 1, "versions");
    println!("{:<10} {:>8} {:>12} {engine:>10.0} {:>14.2}", "engine", 1, "versions", engine / driver);
    round_trips(&url).await;
}

fn options(url: &str, schema: &str) -> Options {
    Options { url: Some(url.into()), schema: schema.into(), ..Options::default() }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(async move {
        let _closed = connection.await;
    });
    client
}

async fn drop_schema(url: &str, schema: &str) {
    connect(url).await.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await.unwrap();
}

fn content(number: u64) -> String {
    let mut text = format!(r#"{{"revision":{number},"text":""#);
    text.push_str(&"lorem ipsum ".repeat(90)[..1022 - text.len()]);
    text.push_str("\"}");
    text
}

fn put(stream: &Stream, number: u64) -> DocumentWrite {
    let revision = Revision::new(i128::from(number / DOCUMENTS + 1));
    let body = WriteBody::Put { revision, content: Bytes::from(content(number)) };
    let url = make::url(&(number % DOCUMENTS).to_string());
    DocumentWrite { stream: stream.id, url, body, at: jiff::Timestamp::now(), trace: None }
}

async fn engine_writes(url: &str, callers: u64, time: Duration) -> f64 {
    let store = flare_postgres::open(&options(url, "ingest_engine")).await.unwrap();
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let rate = drive(&store, &stream, callers, time).await;
    store.engine.close().await.unwrap();
    drop_schema(url, "ingest_engine").await;
    rate
}

/// Documents written in a second by callers that each wait for their write before the next.
async fn drive(store: &Store, stream: &Stream, callers: u64, time: Duration) -> f64 {
    let written = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let tasks = (0..callers).map(|_| {
        let (store, stream, written) = (store.clone(), stream.clone(), written.clone());
        tokio::spawn(async move {
            while begun.elapsed() < time {
                let number = written.fetch_add(1, Ordering::Relaxed);
                store.documents.write(vec![put(&stream, number)]).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    written.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

const STATES: &str = "SELECT w.place, d.number, d.sequence, d.revision::text, d.deleted \
    FROM unnest($1::text[]::uuid[], $2::text[]) WITH ORDINALITY AS w (stream, url, place) CROSS JOIN LATERAL \
    (SELECT * FROM documents d WHERE d.stream = w.stream AND left(d.url, 2000) = left(w.url, 2000) AND d.url = w.url \
     LIMIT 1) d";
const ADD_CHANGES: &str = "INSERT INTO changes \
    (sequence, stream, number, replaces, revision, updated_at, bytes, url, content) \
    SELECT c.sequence, c.stream, c.number, c.replaces, c.revision, now(), 1024, c.url, c.content \
    FROM unnest($1::bigint[], $2::text[]::uuid[], $3::bigint[], $4::bigint[], $5::text[]::numeric[], $6::text[], \
    $7::text[]::json[]) AS c (sequence, stream, number, replaces, revision, url, content)";
const ADD_DOCUMENTS: &str = "INSERT INTO documents (number, sequence, revision, updated_at, deleted, stream, url) \
    SELECT d.number, d.sequence, 1, now(), false, d.stream, d.url \
    FROM unnest($1::bigint[], $2::bigint[], $3::text[]::uuid[], $4::text[]) AS d (number, sequence, stream, url)";
const CHANGE_DOCUMENTS: &str = "UPDATE documents d SET sequence = n.sequence, revision = n.revision, \
    updated_at = now(), deleted = false FROM unnest($1::bigint[], $2::bigint[], $3::text[]::numeric[]) \
    AS n (number, sequence, revision) WHERE d.number = n.number";

/// Documents written in a second by a loop over the driver.
async fn driver_writes(url: &str, group: u64, time: Duration) -> f64 {
    let store = flare_postgres::open(&options(url, "ingest_driver")).await.unwrap();
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await.id.to_string();
    store.engine.close().await.unwrap();
    let client = connect(url).await;
    client
        .batch_execute(
            "SET search_path TO ingest_driver; SET enable_seqscan TO off; SET enable_hashjoin TO off; \
             SET enable_mergejoin TO off; SET jit TO off",
        )
        .await
        .unwrap();
    let lock = client.prepare("SELECT sequence, swept_to FROM head FOR UPDATE").await.unwrap();
    let streams = client.prepare("SELECT id::text FROM streams WHERE id = ANY($1::text[]::uuid[])").await.unwrap();
    let states = client.prepare(STATES).await.unwrap();
    let add_changes = client.prepare(ADD_CHANGES).await.unwrap();
    let add_documents = client.prepare(ADD_DOCUMENTS).await.unwrap();
    let change_documents = client.prepare(CHANGE_DOCUMENTS).await.unwrap();
    let count = client.prepare("UPDATE streams SET documents = documents + $1").await.unwrap();
    let mark = "INSERT INTO writers VALUES ('00000000-0000-0000-0000-000000000001', 1, now()) \
                ON CONFLICT (id) DO UPDATE SET group_number = writers.group_number + 1, seen_at = now()";
    let mark = client.prepare(mark).await.unwrap();
    let move_head = client.prepare("UPDATE head SET sequence = $1").await.unwrap();
    let notify = client.prepare("SELECT pg_notify('ingest', $1)").await.unwrap();
    let (begun, mut written) = (Instant::now(), 0);
    while begun.elapsed() < time {
        let numbers: Vec<u64> = (written..written + group).collect();
        let ids = vec![stream.clone(); numbers.len()];
        let urls: Vec<String> =
            numbers.iter().map(|number| make::url(&(number % DOCUMENTS).to_string()).to_string()).collect();
        let one = vec![stream.clone()];
        let (a, b, c) = ([&one as &(dyn tokio_postgres::types::ToSql + Sync)], [&ids as _, &urls as _], []);
        let (begin, head, _known, found) = futures_util::join!(
            client.batch_execute("BEGIN"),
            client.query_one(&lock, &c),
            client.query(&streams, &a),
            client.query(&states, &b),
        );
        begin.unwrap();
        let head: i64 = head.unwrap().get(0);
        let found = found.unwrap();
        let sequences: Vec<i64> = (head + 1..=head + group as i64).collect();
        let contents: Vec<String> = numbers.iter().map(|number| content(*number)).collect();
        let revisions: Vec<String> = numbers.iter().map(|number| (number / DOCUMENTS + 1).to_string()).collect();
        let is_new = found.is_empty();
        let of_documents: Vec<i64> =
            if is_new { sequences.clone() } else { found.iter().map(|row| row.get::<_, i64>(1)).collect() };
        let replaces: Vec<Option<i64>> =
            if is_new { vec![None; numbers.len()] } else { found.iter().map(|row| row.get(2)).collect() };
        let (last, note) = (head + group as i64, (head + group as i64).to_string());
        let by = if is_new { group as i64 } else { 0 };
        let a: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
            [&sequences, &ids, &of_documents, &replaces, &revisions, &urls, &contents];
        let b: [&(dyn tokio_postgres::types::ToSql + Sync); 4] = [&of_documents, &sequences, &ids, &urls];
        let d: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&of_documents, &sequences, &revisions];
        let (e, f, g): ([&(dyn tokio_postgres::types::ToSql + Sync); 1], [_; 1], [_; 1]) =
            ([&by], [&last as _], [&note as _]);
        let documents = async {
            if is_new {
                client.execute(&add_documents, &b).await.unwrap();
            } else {
                client.execute(&change_documents, &d).await.unwrap();
            }
        };
        let counting = async {
            if is_new {
                client.execute(&count, &e).await.unwrap();
            }
        };
        let (added, (), (), moved, told, marked, committed) = futures_util::join!(
            client.execute(&add_changes, &a),
            documents,
            counting,
            client.execute(&move_head, &f),
            client.query(&notify, &g),
            client.execute(&mark, &c),
            client.batch_execute("COMMIT"),
        );
        added.and(moved).and(marked).unwrap();
        told.unwrap();
        committed.unwrap();
        written += group;
    }
    let rate = written as f64 / begun.elapsed().as_secs_f64();
    drop_schema(url, "ingest_driver").await;
    rate
}

async fn engine_records(url: &str, time: Duration) -> f64 {
    let store = flare_postgres::open(&options(url, "ingest_engine")).await.unwrap();
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let outlet = make::stored_outlet(&store, &stream).await.id;
    let (begun, mut recorded) = (Instant::now(), 0);
    while begun.elapsed() < time {
        let step = |number: u64| {
            let version = Version { sequence: Sequence(number), revision: Revision::new(7), deleted: false };
            Progress::Version { outlet, number: DocumentNumber(number % DOCUMENTS), version }
        };
        store.deliveries.record((recorded..recorded + STEPS).map(step).collect()).await.unwrap();
        recorded += STEPS;
    }
    let rate = recorded as f64 / begun.elapsed().as_secs_f64();
    store.engine.close().await.unwrap();
    drop_schema(url, "ingest_engine").await;
    rate
}

async fn driver_records(url: &str, time: Duration) -> f64 {
    let store = flare_postgres::open(&options(url, "ingest_driver")).await.unwrap();
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let outlet = make::stored_outlet(&store, &stream).await.id.to_string();
    store.engine.close().await.unwrap();
    let client = connect(url).await;
    client.batch_execute("SET search_path TO ingest_driver").await.unwrap();
    const VERSIONS: &str = "INSERT INTO versions AS v SELECT n.outlet, n.number, n.sequence, 7, false \
        FROM unnest($1::text[]::uuid[], $2::bigint[], $3::bigint[]) AS n (outlet, number, sequence) \
        ON CONFLICT (outlet, number) DO UPDATE SET sequence = excluded.sequence, revision = excluded.revision, \
        deleted = excluded.deleted WHERE v.sequence <= excluded.sequence";
    let versions = client.prepare(VERSIONS).await.unwrap();
    let (begun, mut recorded) = (Instant::now(), 0);
    while begun.elapsed() < time {
        let outlets = vec![outlet.clone(); STEPS as usize];
        let sequences: Vec<i64> = (recorded..recorded + STEPS as i64).collect();
        let numbers: Vec<i64> = sequences.iter().map(|sequence| sequence % DOCUMENTS as i64).collect();
        client.execute(&versions, &[&outlets, &numbers, &sequences]).await.unwrap();
        recorded += STEPS as i64;
    }
    let rate = recorded as f64 / begun.elapsed().as_secs_f64();
    drop_schema(url, "ingest_driver").await;
    rate
}

/// How often the engine waits for the server, counted on the wire.
async fn round_trips(url: &str) {
    let host = url.rsplit_once('@').map_or(url, |(_, host)| host).split('/').next().unwrap().to_owned();
    let proxy = Proxy::start(&host).await;
    let options = Options {
        // Nothing else is to be counted.
        follow_interval: Duration::from_secs(600),
        ..options(&url.replace(&host, &proxy.address().to_string()), "ingest_trips")
    };
    let store = flare_postgres::open(&options).await.unwrap();
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    store.documents.write(vec![put(&stream, 0)]).await.unwrap();
    for callers in [1, 64] {
        let (before, mut written) = (proxy.round_trips(), 0);
        for round in 1..=20 {
            let writes = (0..callers).map(|caller| put(&stream, round * DOCUMENTS + caller));
            join_all(writes.map(|write| store.documents.write(vec![write]))).await;
            written += callers;
        }
        let trips = (proxy.round_trips() - before) as f64;
        println!("{callers} callers: {:.2} round trips for each change", trips / written as f64);
    }
    store.engine.close().await.unwrap();
    drop_schema(url, "ingest_trips").await;
}
