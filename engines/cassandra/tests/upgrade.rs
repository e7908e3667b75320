//! What older versions have written is read: `tests/data` holds a data set in every layout that there ever was, as the
//! statements that make it, one to a line. Each value has the timestamp that it was written with, because the engine
//! chooses them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use common::Keyspaces;
use flare_contract::upgrade;
use serde_json::{Map, Value};

/// The keyspace in the files.
const NAME: &str = "flare_upgrade";

fn data_set(layout: usize) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/layout-{layout}.cql"))
}

/// The number of the newest layout.
async fn newest(keyspaces: &Keyspaces) -> usize {
    flare_cassandra::schema(&keyspaces.options(0)).await.unwrap().status().await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_layout_is_read() {
    let Some(server) = common::server() else { return };
    let keyspaces = Keyspaces::new(&server).await;
    let layouts = newest(&keyspaces).await;
    for layout in 1..=layouts {
        for line in fs::read_to_string(data_set(layout)).unwrap().lines() {
            keyspaces.define(&line.replace(NAME, &keyspaces.name(layout))).await;
        }
        let store = flare_cassandra::open(&keyspaces.options(layout)).await.unwrap();
        upgrade::check(&store).await;
        store.engine.close().await.unwrap();
    }
    keyspaces.drop_all(0..layouts + 1).await;
}

/// A data set that is missing is written, to be looked at and committed; one that is there is never changed. Only
/// Cassandra 5 and newer can tell all that is in it.
#[tokio::test(flavor = "multi_thread")]
async fn the_newest_layout_has_a_data_set() {
    let Some(server) = common::server() else { return };
    let keyspaces = Keyspaces::new(&server).await;
    let file = data_set(newest(&keyspaces).await);
    let is_missing = !file.exists();
    if is_missing {
        let store = flare_cassandra::open(&keyspaces.options(0)).await.unwrap();
        upgrade::fill(&store).await;
        store.engine.close().await.unwrap();
        let text = statements(&keyspaces).await.join("\n").replace(&keyspaces.name(0), NAME);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text + "\n").unwrap();
    }
    keyspaces.drop_all(0..1).await;
    assert!(!is_missing, "{} was missing and is written now", file.display());
}

/// What makes the keyspace as it is: its tables, without their options, and its rows.
async fn statements(keyspaces: &Keyspaces) -> Vec<String> {
    let name = keyspaces.name(0);
    let mut statements = vec![format!(
        "CREATE KEYSPACE {name} WITH REPLICATION = {{'class': 'SimpleStrategy', 'replication_factor': 1}};"
    )];
    let tables = format!("SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{name}'");
    let tables: Vec<(String,)> = keyspaces.rows(&tables).await;
    for (table,) in &tables {
        let described: Vec<(String, String, String, String)> =
            keyspaces.rows(&format!("DESCRIBE TABLE {name}.{table}")).await;
        let whole = described[0].3.split_whitespace().collect::<Vec<_>>().join(" ");
        // The order of rows is the only option that comes before this one.
        let (definition, _) = whole.split_once("additional_write_policy").unwrap();
        let definition = definition.trim_end_matches(" WITH ").trim_end_matches(" AND ");
        statements.push(format!("{definition};"));
    }
    for (table,) in &tables {
        statements.extend(inserts(keyspaces, table).await);
    }
    statements
}

/// Where conditional writes have the time of day as their timestamp it is moved here, so that whatever clock comes next is
/// later. All other timestamps are lower.
const LONG_AGO: i64 = 1_500_000_000_000_000;

/// One statement for the values of a row that have the same timestamp.
async fn inserts(keyspaces: &Keyspaces, table: &str) -> Vec<String> {
    let name = keyspaces.name(0);
    let columns = format!(
        "SELECT column_name, kind FROM system_schema.columns WHERE keyspace_name = '{name}' AND table_name = '{table}'"
    );
    let columns: Vec<(String, String)> = keyspaces.rows(&columns).await;
    let is_key = |kind: &str| matches!(kind, "partition_key" | "clustering");
    let (keys, values): (Vec<_>, Vec<_>) = columns.into_iter().partition(|(_, kind)| is_key(kind));
    let times = values.iter().map(|(value, _)| format!("maxwritetime({value}) AS {value}"));
    let times = times.collect::<Vec<_>>().join(", ");
    let rows = json_rows(keyspaces, &format!("SELECT JSON * FROM {name}.{table}")).await;
    let times = json_rows(keyspaces, &format!("SELECT JSON {times} FROM {name}.{table}")).await;
    let mut statements = Vec::new();
    for (row, times) in rows.into_iter().zip(times) {
        let mut parts: BTreeMap<i64, Map<String, Value>> = BTreeMap::new();
        for (column, time) in &times {
            // A value that is not there has no time.
            let Some(time) = time.as_i64() else { continue };
            parts.entry(time.min(LONG_AGO)).or_default().insert(column.clone(), row[column].clone());
        }
        assert!(!parts.is_empty(), "a row of {table} without values has no time that could be told");
        for (time, mut part) in parts {
            // A value that a partition has once is there also where no row is.
            part.extend(keys.iter().map(|(key, _)| (key.clone(), row[key].clone())).filter(|(_, key)| !key.is_null()));
            let json = Value::Object(part).to_string().replace('\'', "''");
            statements.push(format!("INSERT INTO {name}.{table} JSON '{json}' DEFAULT UNSET USING TIMESTAMP {time};"));
        }
    }
    statements
}

async fn json_rows(keyspaces: &Keyspaces, query: &str) -> Vec<Map<String, Value>> {
    let rows: Vec<(String,)> = keyspaces.rows(query).await;
    rows.iter().map(|(json,)| serde_json::from_str(json).unwrap()).collect()
}
