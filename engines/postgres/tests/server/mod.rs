//! The real server that tests run against, with a schema of its own for everything that is opened.

#![allow(dead_code, reason = "not every test uses all of it")]

pub mod lab;

use std::time::Duration;

use flare_contract::server;
use flare_core::port::Store;
use flare_postgres::Options;
use parking_lot::Mutex;
use tokio_postgres::NoTls;

const VARIABLE: &str = "FLARE_TEST_POSTGRES_URL";

pub struct Server {
    pub url: String,
    prefix: String,
    schemas: Mutex<Vec<String>>,
}

impl Server {
    /// None, with a line that says why, if there is no server.
    pub fn find() -> Option<Self> {
        let url = server::url(VARIABLE)?;
        let prefix = format!("test_{:08x}", getrandom::u32().unwrap());
        Some(Self { url, prefix, schemas: Mutex::default() })
    }

    /// The host and the port, as the URL has them.
    pub fn host(&self) -> String {
        server::host(&self.url).to_owned()
    }

    pub fn options(&self, name: &str) -> Options {
        let schema = format!("{}_{name}", self.prefix);
        let mut schemas = self.schemas.lock();
        if !schemas.contains(&schema) {
            schemas.push(schema.clone());
        }
        Options { url: Some(self.url.clone()), schema, timeout: Duration::from_secs(5), ..Options::default() }
    }

    pub async fn open(&self, name: &str) -> Store {
        flare_postgres::open(&self.options(name)).await.unwrap()
    }

    /// A connection of the driver, past the engine.
    pub async fn raw(&self) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        #[allow(clippy::disallowed_methods, reason = "a test")]
        tokio::spawn(async move {
            let _closed = connection.await;
        });
        client
    }

    /// Removes all schemas that were made.
    pub async fn clean_up(&self) {
        let client = self.raw().await;
        let schemas = std::mem::take(&mut *self.schemas.lock());
        for schema in schemas {
            client.batch_execute(&format!("DROP SCHEMA IF EXISTS \"{schema}\" CASCADE")).await.unwrap();
        }
    }
}
