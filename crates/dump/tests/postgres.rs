//! PostgreSQL against the contract of storages. Needs `FLARE_TEST_POSTGRES_URL`.

#![allow(clippy::unwrap_used, reason = "the exception for tests does not reach what tests share")]

mod server;

use flare_dump::contract::{Subject, check_reader, check_writer};
use flare_dump::location::Location;
use flare_dump::storage::{self, ReadOptions};
use tokio_postgres::NoTls;

/// A schema of our own on the server; `None` where there is none.
async fn schema(name: &str) -> Option<(String, tokio_postgres::Client)> {
    let url = server::url("FLARE_TEST_POSTGRES_URL")?;
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(connection);
    tasks.detach_all();
    let schema = format!("dump_test_{name}");
    client.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")).await.unwrap();
    let join = if url.contains('?') { '&' } else { '?' };
    Some((format!("{url}{join}table={schema}."), client))
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_keeps_the_contract_of_writers() {
    let Some((base, _client)) = schema("writer").await else { return };
    check_writer(&Subject {
        locate: Box::new(move |name| Location::parse(&format!("{base}{name}")).unwrap()),
        can_append: true,
        can_replace: true,
        has_ledger: true,
        can_upsert: true,
        rejects: true,
        inexact: &[],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_all_kinds_are_read_once_however_they_are_cut() {
    let Some((base, client)) = schema("reader").await else { return };
    client
        .batch_execute(
            "SET search_path TO dump_test_reader;
             CREATE TABLE plain (a int, b text);
             INSERT INTO plain SELECT i % 3, 'x' || i FROM generate_series(1, 23) i;
             CREATE TABLE composite (a text, b bigint, c text, PRIMARY KEY (a, b));
             INSERT INTO composite SELECT (i % 4)::text, i, b FROM (SELECT row_number() over () i, b FROM plain) p;
             CREATE TABLE floats (k double precision PRIMARY KEY);
             INSERT INTO floats SELECT i FROM generate_series(1, 20) i
                UNION ALL SELECT unnest('{NaN,Infinity,-Infinity}'::float8[]);
             CREATE TABLE times (k timestamptz PRIMARY KEY, i interval, n inet, ar int[]);
             INSERT INTO times SELECT now() + i * interval '1 hour', i * interval '1 day', '10.0.0.1', '{1,2}'
                FROM generate_series(1, 23) i;
             CREATE TABLE texts (k text PRIMARY KEY);
             INSERT INTO texts SELECT chr(64 + i) || '''\\' || repeat('é', i) FROM generate_series(1, 23) i;
             CREATE TABLE uniq (k int NOT NULL UNIQUE, v int);
             INSERT INTO uniq SELECT i * i, i FROM generate_series(1, 23) i;
             CREATE TABLE empty (k int PRIMARY KEY);
             CREATE VIEW seen AS SELECT * FROM uniq;
             CREATE TABLE parted (k int PRIMARY KEY) PARTITION BY RANGE (k);
             CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
             CREATE TABLE parted_2 PARTITION OF parted DEFAULT;
             INSERT INTO parted SELECT i FROM generate_series(1, 23) i",
        )
        .await
        .unwrap();
    for table in ["plain", "composite", "floats", "times", "texts", "uniq", "seen", "parted"] {
        let location = Location::parse(&format!("{base}{table}")).unwrap();
        let reader = storage::reader(&location, &ReadOptions::default()).unwrap();
        check_reader(&*reader, 23).await;
    }
    let empty = Location::parse(&format!("{base}empty")).unwrap();
    check_reader(&*storage::reader(&empty, &ReadOptions::default()).unwrap(), 0).await;
    let location = Location::parse(&format!("{base}plain")).unwrap();
    let by_offset = ReadOptions { by_offset: true, ..ReadOptions::default() };
    check_reader(&*storage::reader(&location, &by_offset).unwrap(), 23).await;
}
