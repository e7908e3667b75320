//! The servers that tests run against, and databases of their own on them.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::net::SocketAddr;

use flare_contract::server::host;
pub use flare_contract::server::url;
use flare_mongodb::Options;
use mongodb::bson::oid::ObjectId;

pub const REPLICA_SET: &str = "FLARE_TEST_MONGODB_URL";
/// Three members.
pub const SEVERAL: &str = "FLARE_TEST_MONGODB_SET_URL";
pub const STANDALONE: &str = "FLARE_TEST_MONGODB_STANDALONE_URL";
/// The same server by TLS, with the file of its authority.
pub const STANDALONE_TLS: &str = "FLARE_TEST_MONGODB_STANDALONE_TLS_URL";

/// A database that nobody else has, and that is gone when the test is over.
pub struct Scratch {
    url: String,
    name: String,
}

impl Scratch {
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), name: format!("flare_test_{}", ObjectId::new().to_hex()) }
    }

    /// The URL of the server at another address, and of no other member of its set.
    pub fn url_at(&self, address: SocketAddr) -> String {
        let url = self.url.replace(host(&self.url), &address.to_string());
        let (base, options) = url.split_once('?').unwrap_or((&url, ""));
        let is_kept =
            |option: &&str| !["", "replicaSet", "directConnection"].contains(&option.split('=').next().unwrap());
        let options: Vec<_> = options.split('&').filter(is_kept).chain(["directConnection=true"]).collect();
        format!("{base}?{}", options.join("&"))
    }

    pub fn options(&self, number: usize) -> Options {
        let database = Some(format!("{}_{number}", self.name));
        Options { url: Some(self.url.clone()), database, ..Options::default() }
    }

    /// The database, past the engine.
    pub async fn database(&self, number: usize) -> mongodb::Database {
        let client = mongodb::Client::with_uri_str(&self.url).await.unwrap();
        client.database(&format!("{}_{number}", self.name))
    }

    pub async fn drop(self) {
        let client = mongodb::Client::with_uri_str(&self.url).await.unwrap();
        for name in client.list_database_names().await.unwrap() {
            if name.starts_with(&self.name) {
                client.database(&name).drop().await.unwrap();
            }
        }
    }
}
