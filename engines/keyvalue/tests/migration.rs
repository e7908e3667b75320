//! A store written by an older version is brought up, one that is newer is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use flare_core::{Error, Result};
use flare_keyvalue::{KeyValue, Row, Table, migration::run};
use flare_memory::Memory;

fn rename(map: &dyn KeyValue) -> Result<Vec<Row>> {
    // What an interrupted migration left must still be there, so that the step can be done again.
    let old = map.get(Table::Meta, b"old")?.ok_or_else(|| Error::internal("the step was done twice"))?;
    Ok(vec![
        Row { table: Table::Meta, key: Bytes::from_static(b"old"), value: None },
        Row { table: Table::Meta, key: Bytes::from_static(b"new"), value: Some(old) },
    ])
}

fn nothing(_: &dyn KeyValue) -> Result<Vec<Row>> {
    Ok(Vec::new())
}

#[test]
fn an_older_store_is_migrated_step_by_step_and_once() {
    let map = Memory::default();
    run(&map, &[]).unwrap();
    let old = Row { table: Table::Meta, key: Bytes::from_static(b"old"), value: Some(Bytes::from_static(b"1")) };
    map.write(vec![old]).unwrap();
    run(&map, &[rename]).unwrap();
    assert_eq!(map.get(Table::Meta, b"new").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(map.get(Table::Meta, b"old").unwrap(), None);
    run(&map, &[rename]).unwrap();
    run(&map, &[rename, nothing]).unwrap();
    assert_eq!(map.get(Table::Meta, b"format").unwrap().as_deref(), Some(&3u64.to_be_bytes()[..]));
    assert!(run(&map, &[rename]).is_err(), "a newer store must be refused");
}
