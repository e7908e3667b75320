//! What older versions have written is read: `tests/data` holds a data set in every layout that there ever was.
//!
//! A new one is made by `cargo test -p flare-postgres --test upgrade -- --ignored`, which fills the schema `flare_upgrade`, and
//! `pg_dump --no-owner --inserts --schema flare_upgrade`, without the lines of psql (`\restrict`).

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use std::{fs, path::Path};

use flare_contract::upgrade;
use server::Server;

/// The schema in the files.
const NAME: &str = "flare_upgrade";

#[tokio::test]
async fn every_layout_is_read() {
    let Some(server) = Server::find() else { return };
    let steps = flare_postgres::schema(&server.options("steps")).await.unwrap().status().await.unwrap();
    for step in 1..=steps.len() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/schema-{step}.sql"));
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let options = server.options(&format!("upgrade_{step}"));
        server.raw().await.batch_execute(&text.replace(NAME, &options.schema)).await.unwrap();
        let store = flare_postgres::open(&options).await.unwrap();
        upgrade::check(&store).await;
        store.engine.close().await.unwrap();
    }
    server.clean_up().await;
}

#[tokio::test]
#[ignore = "it makes a data set for a layout that has none"]
async fn fill_a_schema() {
    let Some(server) = Server::find() else { return };
    server.raw().await.batch_execute(&format!("DROP SCHEMA IF EXISTS {NAME} CASCADE")).await.unwrap();
    let options = flare_postgres::Options { schema: NAME.to_owned(), ..server.options("unused") };
    let store = flare_postgres::open(&options).await.unwrap();
    upgrade::fill(&store).await;
    store.engine.close().await.unwrap();
}
