//! What older versions have written is read: `tests/data` holds a data set in every format that there ever was.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fmt::Write as _,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use flare_contract::upgrade;
use flare_keyvalue::{FORMAT, KeyValue, Options, Row, Table, open};
use flare_memory::Memory;

fn data_set(format: u64) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/format-{format}.txt"))
}

#[tokio::test]
async fn every_format_is_read() {
    for format in 1..=FORMAT {
        let map = Arc::new(Memory::default());
        let text = fs::read_to_string(data_set(format)).unwrap();
        map.write(text.lines().map(parse).collect()).unwrap();
        let store = open(map, &Options::default()).unwrap();
        upgrade::check(&store).await;
        store.engine.close().await.unwrap();
    }
}

/// A data set that is missing is written, to be looked at and committed; one that is there is never changed.
#[tokio::test]
async fn the_newest_format_has_a_data_set() {
    let file = data_set(FORMAT);
    if file.exists() {
        return;
    }
    let map = Arc::new(Memory::default());
    let store = open(map.clone(), &Options::default()).unwrap();
    upgrade::fill(&store).await;
    store.engine.close().await.unwrap();
    let mut text = String::new();
    for (number, table) in Table::ALL.into_iter().enumerate() {
        map.scan(table, &[], &[0xff; 64], &mut |key, value| {
            writeln!(text, "{number} {} {}", hex(&key), hex(&value)).unwrap();
            ControlFlow::Continue(())
        })
        .unwrap();
    }
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    panic!("{} was missing and is written now", file.display());
}

fn parse(line: &str) -> Row {
    let mut parts = line.split(' ');
    let table = Table::ALL[parts.next().unwrap().parse::<usize>().unwrap()];
    let mut bytes = || unhex(parts.next().unwrap());
    Row { table, key: bytes(), value: Some(bytes()) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Bytes {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}
