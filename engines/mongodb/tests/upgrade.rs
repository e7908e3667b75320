//! What older versions have written is read: `tests/data` holds a data set in every layout that there ever was, as the
//! commands that make it. They are extended JSON, one to a line.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server;

use std::{
    fs,
    path::{Path, PathBuf},
};

use flare_contract::upgrade;
use flare_mongodb::Options;
use futures_util::TryStreamExt;
use mongodb::{
    Database,
    bson::{Bson, Document, doc},
};
use server::{REPLICA_SET, STANDALONE, Scratch};

fn data_set(layout: usize) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/layout-{layout}.jsonl"))
}

/// The number of the newest layout.
async fn newest(options: &Options) -> usize {
    flare_mongodb::schema(options).await.unwrap().status().await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_layout_is_read() {
    for variable in [REPLICA_SET, STANDALONE] {
        let Some(url) = server::url(variable) else { return };
        let scratch = Scratch::new(&url);
        for layout in 1..=newest(&scratch.options(0)).await {
            let options = scratch.options(layout);
            let database = scratch.database(layout).await;
            for line in fs::read_to_string(data_set(layout)).unwrap().lines() {
                database.run_command(serde_json::from_str::<Document>(line).unwrap()).await.unwrap();
            }
            let store = flare_mongodb::open(&options).await.unwrap();
            upgrade::check(&store).await;
            store.engine.close().await.unwrap();
        }
        scratch.drop().await;
    }
}

/// A data set that is missing is written, to be looked at and committed; one that is there is never changed.
#[tokio::test(flavor = "multi_thread")]
async fn the_newest_layout_has_a_data_set() {
    let Some(url) = server::url(STANDALONE) else { return };
    let scratch = Scratch::new(&url);
    let file = data_set(newest(&scratch.options(0)).await);
    if file.exists() {
        return;
    }
    let store = flare_mongodb::open(&scratch.options(0)).await.unwrap();
    upgrade::fill(&store).await;
    store.engine.close().await.unwrap();
    let commands = commands(&scratch.database(0).await).await;
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, commands.into_iter().map(|command| extended(&command.into()) + "\n").collect::<String>()).unwrap();
    scratch.drop().await;
    panic!("{} was missing and is written now", file.display());
}

/// What makes the database as it is: its indexes and its rows.
async fn commands(database: &Database) -> Vec<Document> {
    let mut commands = Vec::new();
    let mut names = database.list_collection_names().await.unwrap();
    names.sort_unstable();
    for name in names {
        let indexes = database.run_cursor_command(doc! { "listIndexes": &name }).await.unwrap();
        let indexes: Vec<Document> = indexes.try_collect().await.unwrap();
        let made = indexes.into_iter().filter(|index| index.get_str("name").unwrap() != "_id_");
        commands.extend(made.map(|index| doc! { "createIndexes": &name, "indexes": [index] }));
        let rows = database.collection::<Document>(&name).find(doc! {}).sort(doc! { "_id": 1 }).await.unwrap();
        let rows: Vec<Document> = rows.try_collect().await.unwrap();
        commands.extend(rows.into_iter().map(|row| doc! { "insert": &name, "documents": [row] }));
    }
    commands
}

/// Extended JSON that keeps the order of members, which is part of an `_id`, and the kinds of numbers.
fn extended(value: &Bson) -> String {
    let json = |text: &str| serde_json::to_string(text).unwrap();
    match value {
        Bson::Document(members) => {
            let members = members.iter().map(|(name, value)| format!("{}: {}", json(name), extended(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        Bson::Array(items) => format!("[{}]", items.iter().map(extended).collect::<Vec<_>>().join(", ")),
        Bson::Int64(number) => format!("{{\"$numberLong\": \"{number}\"}}"),
        other => serde_json::to_string(other).unwrap(),
    }
}
