//! SQLite against the contract of storages.

#![allow(clippy::unwrap_used, reason = "the exception for tests does not reach what tests share")]

use std::path::Path;

use flare_dump::contract::{Subject, check_reader, check_writer};
use flare_dump::location::Location;
use flare_dump::storage::{self, ReadOptions};

fn locate(folder: &Path, name: &str) -> Location {
    Location::parse(&format!("sqlite://{}/all.db?table={name}", folder.display())).unwrap()
}

#[tokio::test]
async fn sqlite_keeps_the_contract_of_writers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    check_writer(&Subject {
        locate: Box::new(move |name| locate(&path, name)),
        can_append: true,
        can_replace: true,
        has_ledger: true,
        can_upsert: true,
        rejects: true,
        inexact: &[],
    })
    .await;
}

#[tokio::test]
async fn tables_of_all_kinds_are_read_once_however_they_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    let connection = rusqlite::Connection::open(folder.path().join("all.db")).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE plain (a, b);
             CREATE TABLE composite (a TEXT, b INTEGER, c, PRIMARY KEY (a, b)) WITHOUT ROWID;
             CREATE TABLE gaps (id INTEGER PRIMARY KEY, a);
             CREATE TABLE empty (id INTEGER PRIMARY KEY);
             CREATE VIEW seen AS SELECT * FROM composite;
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 22)
             INSERT INTO plain SELECT i % 3, 'x' || i FROM n;
             INSERT INTO composite SELECT a || '', rowid, b FROM plain;
             INSERT INTO gaps SELECT rowid * rowid * 1000 - 70000, b FROM plain;",
        )
        .unwrap();
    for (table, rows) in [("plain", 23), ("composite", 23), ("gaps", 23), ("empty", 0), ("seen", 23)] {
        let location = locate(folder.path(), table);
        let reader = storage::reader(&location, &ReadOptions::default()).unwrap();
        check_reader(&*reader, rows).await;
    }
    let by_offset = ReadOptions { by_offset: true, ..ReadOptions::default() };
    check_reader(&*storage::reader(&locate(folder.path(), "plain"), &by_offset).unwrap(), 23).await;
}
