//! Files against the contract of storages.

#![allow(clippy::unwrap_used, reason = "the exception for tests does not reach what tests share")]

use std::path::Path;

use flare_dump::contract::{Subject, check_reader, check_writer};
use flare_dump::location::Location;
use flare_dump::storage::{self, ReadOptions};

fn subject(folder: &Path, end: &'static str, can_append: bool, inexact: &'static [&'static str]) -> Subject {
    let folder = folder.to_owned();
    let locate = move |name: &str| Location::parse(&format!("{}/{name}.{end}", folder.display())).unwrap();
    Subject {
        locate: Box::new(locate),
        can_append,
        can_replace: true,
        has_ledger: true,
        can_upsert: false,
        rejects: false,
        inexact,
    }
}

#[tokio::test]
async fn files_of_documents_keep_the_contract() {
    for end in ["ndjson", "ndjson.gz", "ndjson.zst", "json", "json.gz"] {
        let folder = tempfile::tempdir().unwrap();
        check_writer(&subject(folder.path(), end, end.starts_with("nd"), &["json"])).await;
    }
}

#[tokio::test]
async fn rows_of_any_file_come_once_however_it_is_cut() {
    let lines: Vec<String> = (0..23).map(|id| format!("{{\"id\":{id},\"text\":\"a\\n]}}{id}\"}}")).collect();
    let table: Vec<String> = (0..23).map(|id| format!("{id},\"a\n\"\"{id}\"")).collect();
    for (name, text) in [
        ("a.ndjson", lines.join("\n")),
        ("b.json", format!("[{}]", lines.join(",\n"))),
        ("c.csv", format!("id,text\n{}\n", table.join("\n"))),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let location = Location::parse(path.to_str().unwrap()).unwrap();
        let reader = storage::reader(&location, &ReadOptions::default()).unwrap();
        let rows = check_reader(&*reader, 23).await;
        assert!(rows[0].contains("\"id\""), "{}", rows[0]);
    }
}

#[tokio::test]
async fn a_compressed_file_is_read_from_the_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.ndjson.zst");
    let lines: Vec<String> = (0..23).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    std::fs::write(&path, zstd::encode_all(lines.concat().as_bytes(), 1).unwrap()).unwrap();
    let location = Location::parse(path.to_str().unwrap()).unwrap();
    let reader = storage::reader(&location, &ReadOptions::default()).unwrap();
    check_reader(&*reader, 23).await;
}
