//! Flare's store in MongoDB: a replica set, a sharded cluster, or a single server.
//!
//! How it becomes true what was written is in [`log`], who decides on it in [`writer`]; what rests where is in [`table`],
//! how it looks in [`rows`].

mod cache;
mod connection;
mod coordination;
mod deliveries;
mod documents;
mod entities;
mod feed;
mod follow;
mod log;
mod purge;
mod record;
mod rows;
mod schema;
mod sweep;
mod table;
mod writer;

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use async_trait::async_trait;
use flare_core::{
    DocumentNumber, OutletId, Result,
    document::{Progress, Version},
    port,
};
use flare_toolkit::{batch::Batcher, follow::Follower};
use mongodb::bson::doc;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use cache::DocumentKey;
use connection::Connection;
use documents::Found;
use log::Log;
use schema::MongoSchema;
use writer::WriteLane;

/// Where the database is, and how it is spoken to.
#[derive(Clone)]
pub struct Options {
    /// A connection string (`mongodb://…` or `mongodb+srv://…`), instead of `addrs`.
    pub url: Option<String>,
    /// Servers as `host:port`; more of a replica set are found by themselves.
    pub addrs: Vec<String>,
    /// The name of the database; by default the one in the URL, or "flare".
    pub database: Option<String>,
    pub username: Option<String>,
    pub password: Option<String>,
    /// Speak only to servers of the replica set of this name.
    pub replica_set: Option<String>,
    /// Encrypted connections to servers for which an authority of this PEM file has signed. Without it the URL says
    /// whether they are encrypted.
    pub ca: Option<PathBuf>,
    /// Connections to each server at most.
    pub pool_limit: u32,
    /// How long to wait for a connection, and for the answer to a command.
    pub timeout: Duration,
    /// How often to look for what other nodes have written, besides when the server tells of it.
    pub follow_interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            url: None,
            addrs: vec!["localhost:27017".into()],
            database: None,
            username: None,
            password: None,
            replica_set: None,
            ca: None,
            pool_limit: 4096,
            timeout: Duration::from_secs(5),
            follow_interval: Duration::from_millis(200),
        }
    }
}

/// Without the password, and without the URL, which may have one.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("addrs", &self.addrs)
            .field("database", &self.database)
            .field("username", &self.username)
            .field("replica_set", &self.replica_set)
            .field("ca", &self.ca)
            .field("pool_limit", &self.pool_limit)
            .field("timeout", &self.timeout)
            .field("follow_interval", &self.follow_interval)
            .finish_non_exhaustive()
    }
}

/// Opens the store: brings the layout up to date, finishes what a node has left half done, and follows the others.
pub async fn open(options: &Options) -> Result<port::Store> {
    let connection = Arc::new(Connection::open(options).await?);
    port::Schema::up(&MongoSchema::new(connection.clone())).await?;
    let log = Arc::new(Log::new(connection.clone()));
    let position = log.recover().await?;
    let follower = Arc::new(Follower::new(position.sequence));
    let stop = CancellationToken::new();
    let lane = Arc::new(WriteLane::start(connection.clone(), log.clone(), follower.clone()));
    let purge = Arc::new(Notify::new());
    follow::start(&follow::Parts {
        connection: connection.clone(),
        log: log.clone(),
        follower: follower.clone(),
        lane: lane.clone(),
        purge: purge.clone(),
        stop: stop.clone(),
        interval: options.follow_interval,
    });
    let epoch = Arc::new(AtomicU64::new(0));
    let store = Arc::new(MongoStore {
        reads: read_batcher(&connection),
        versions: version_batcher(&connection),
        records: record_batcher(&connection),
        connection,
        log,
        follower,
        lane,
        purge,
        epoch,
        stop,
    });
    Ok(port::Store {
        streams: store.clone(),
        outlets: store.clone(),
        documents: store.clone(),
        deliveries: store.clone(),
        tokens: store.clone(),
        coordination: store.clone(),
        engine: store,
    })
}

/// The layout of the database, for those who only want to look at it or bring it up to date.
pub async fn schema(options: &Options) -> Result<Arc<dyn port::Schema>> {
    Ok(Arc::new(MongoSchema::new(Arc::new(Connection::open(options).await?))))
}

/// The implementation of all ports.
pub(crate) struct MongoStore {
    connection: Arc<Connection>,
    log: Arc<Log>,
    follower: Arc<Follower>,
    lane: Arc<WriteLane>,
    reads: Batcher<DocumentKey, Found>,
    versions: Batcher<(OutletId, DocumentNumber), Option<Version>>,
    records: Batcher<Recorded, ()>,
    /// There is something to purge.
    purge: Arc<Notify>,
    /// As whose owner this node records.
    epoch: Arc<AtomicU64>,
    /// Ends the background work with the store.
    stop: CancellationToken,
}

fn read_batcher(connection: &Arc<Connection>) -> Batcher<DocumentKey, Found> {
    let connection = connection.clone();
    Batcher::start(documents::READ_LIMITS, move |keys| {
        let connection = connection.clone();
        async move { documents::read_many(&connection, keys).await }
    })
}

fn version_batcher(connection: &Arc<Connection>) -> Batcher<(OutletId, DocumentNumber), Option<Version>> {
    let connection = connection.clone();
    Batcher::start(documents::READ_LIMITS, move |keys| {
        let connection = connection.clone();
        async move { deliveries::read_versions(&connection, keys).await }
    })
}

/// What one caller records, as the owner of this epoch.
type Recorded = (u64, Vec<Progress>);

fn record_batcher(connection: &Arc<Connection>) -> Batcher<Recorded, ()> {
    let connection = connection.clone();
    Batcher::start(deliveries::RECORD_LIMITS, move |calls: Vec<Recorded>| {
        let connection = connection.clone();
        async move {
            let mut answers = Vec::with_capacity(calls.len());
            // What was handed in under another epoch is judged by itself.
            for calls in calls.chunk_by(|one, next| one.0 == next.0) {
                let progress = calls.iter().flat_map(|(_, progress)| progress.iter().cloned());
                let outcome = record::record(&connection, calls[0].0, progress).await;
                answers.extend(calls.iter().map(|_| outcome.clone()));
            }
            Ok(answers)
        }
    })
}

#[async_trait]
impl port::Engine for MongoStore {
    fn name(&self) -> &'static str {
        "mongodb"
    }

    fn limits(&self) -> port::Limits {
        port::Limits { is_shared: true }
    }

    fn trouble(&self) -> Option<String> {
        self.connection.health.trouble()
    }

    async fn entities_revision(&self) -> Result<u64> {
        self.log.entities_revision().await
    }

    /// Nothing is lazy here.
    async fn flush(&self) -> Result<()> {
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        self.lane.close().await;
        self.stop.cancel();
        self.connection.close();
        Ok(())
    }
}

/// A store that is dropped without a word ends its background work as well.
impl Drop for MongoStore {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A task of the engine: it ends with the store, and what it does is told by the health of the store.
#[allow(clippy::disallowed_methods, reason = "engines know no supervisor; the callers learn how the task ended")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}
