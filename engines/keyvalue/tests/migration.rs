//! A store written by an older version is brought up, one that is newer is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use bytes::Bytes;
use flare_core::{Error, Result, port::Schema as _};
use flare_keyvalue::{
    KeyValue, Row, Table,
    migration::{Migration, Schema, run},
};
use flare_memory::Memory;

const RENAME: Migration = Migration { name: "rename", rows: rename };
const NOTHING: Migration = Migration { name: "nothing", rows: |_| Ok(Vec::new()) };

fn rename(map: &dyn KeyValue) -> Result<Vec<Row>> {
    // What an interrupted migration left must still be there, so that the step can be done again.
    let old = map.get(Table::Meta, b"old")?.ok_or_else(|| Error::internal("the step was done twice"))?;
    Ok(vec![
        Row { table: Table::Meta, key: Bytes::from_static(b"old"), value: None },
        Row { table: Table::Meta, key: Bytes::from_static(b"new"), value: Some(old) },
    ])
}

#[test]
fn an_older_store_is_migrated_step_by_step_and_once() {
    let map = Memory::default();
    assert_eq!(run(&map, &[]).unwrap(), [1]);
    let old = Row { table: Table::Meta, key: Bytes::from_static(b"old"), value: Some(Bytes::from_static(b"1")) };
    map.write(vec![old]).unwrap();
    assert_eq!(run(&map, &[RENAME]).unwrap(), [2]);
    assert_eq!(map.get(Table::Meta, b"new").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(map.get(Table::Meta, b"old").unwrap(), None);
    assert!(run(&map, &[RENAME]).unwrap().is_empty());
    assert_eq!(run(&map, &[RENAME, NOTHING]).unwrap(), [3]);
    assert_eq!(map.get(Table::Meta, b"format").unwrap().as_deref(), Some(&3u64.to_be_bytes()[..]));
    assert!(run(&map, &[RENAME]).is_err(), "a newer store must be refused");
}

#[tokio::test]
async fn the_steps_are_shown_with_their_times() {
    let schema = Schema::new(Arc::new(Memory::default()));
    let before = schema.status().await.unwrap();
    assert!(before.iter().all(|step| step.applied_at.is_none()));
    let taken = schema.up().await.unwrap();
    assert_eq!(taken.len(), before.len());
    assert!(schema.up().await.unwrap().is_empty());
    assert!(schema.status().await.unwrap().iter().all(|step| step.applied_at.is_some()));
}
