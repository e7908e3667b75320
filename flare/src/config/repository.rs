//! The section `repository`: which engine keeps the data, and its options.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ByteSize, Duration, Secret};

/// Where documents, subscriptions and what every client has are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Repository {
    /// The engine.
    pub engine: RepositoryEngine,
    /// The folder of the data, relative to the folder in which Flare is started. One process at a time uses it. Read by
    /// the engine "embedded".
    #[schemars(length(min = 1))]
    pub path: PathBuf,
    /// Memory for blocks of the data that were read from disk. Read by the engine "embedded".
    #[schemars(extend("x-minimum" = "1MiB", "x-maximum" = "1TiB"))]
    pub cache: ByteSize,
    /// Free space that is left on the disk: below it writes are answered with 503 until there is room again. Read by the
    /// engine "embedded".
    #[schemars(extend("x-maximum" = "1TiB"))]
    pub reserve: ByteSize,
    /// How many writes may wait for the disk at once; past it, further ones wait for a place, as long as `http.timeout`
    /// allows. Read by the engines "embedded" and "memory".
    #[schemars(range(min = 1, max = 1_000_000))]
    pub write_queue_max: usize,
    /// The address of the server as one URL, such as "mongodb://user:password@host:27017/flare?replicaSet=rs0" or
    /// "postgres://user:password@host:5432/flare?sslmode=require". It is never shown. Read by the engines "mongodb" and
    /// "postgres", and takes the place of `addrs`, `username` and `password`.
    pub url: Secret,
    /// The servers as "host:port". The default is this machine with the usual port. A replica set or cluster is found
    /// through any of its servers. Read by the engines "mongodb", "cassandra" and, with one server, "postgres".
    pub addrs: Vec<String>,
    /// The database. The default is the one of `url`, or else "flare". Read by the engines "mongodb" and "postgres".
    pub database: String,
    /// The schema of the tables. It is created if it is not there. Read by the engine "postgres".
    #[schemars(length(min = 1))]
    pub schema: String,
    /// The keyspace. It is created if it is not there. Read by the engine "cassandra".
    #[schemars(length(min = 1))]
    pub keyspace: String,
    /// The user name at the server.
    pub username: String,
    /// The password of `username`. It is never shown.
    pub password: Secret,
    /// Speak only to servers of the replica set of this name. Read by the engine "mongodb".
    pub replica_set: String,
    /// How many connections to a server are open at once; 0 leaves it to the engine.
    #[schemars(range(min = 0, max = 65_536))]
    pub pool_limit: u32,
    /// How long to wait for a connection to the server and for each of its answers.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "10m"))]
    pub timeout: Duration,
    /// How often to look for what other nodes have written, besides when the server tells of it. Read by the engines that
    /// several nodes can share.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1m"))]
    pub follow_interval: Duration,
    /// A PEM file with the certificates of authorities that may sign for the server, in place of those of the web. With
    /// the engines "mongodb" and "cassandra" connections are encrypted when it is set, with "postgres" as `sslmode` of
    /// `url` says.
    pub ca: PathBuf,
    /// How many replicas answer before a read or a write counts: "ONE", "QUORUM", "LOCAL_QUORUM", "EACH_QUORUM" or "ALL".
    /// Read by the engine "cassandra".
    #[schemars(length(min = 1))]
    pub consistency: String,
    /// Where nodes agree on the order of changes: "SERIAL", over all data centres, or "LOCAL_SERIAL", when all nodes of
    /// Flare are in one. Read by the engine "cassandra".
    #[schemars(length(min = 1))]
    pub serial_consistency: String,
    /// How a new keyspace is replicated, as in CQL: "{'class': 'NetworkTopologyStrategy', 'dc1': 3}". Without it there is
    /// one copy. Read by the engine "cassandra".
    pub with_replication: String,
    /// The data centre whose servers are asked first. Read by the engine "cassandra".
    pub data_centre: String,
}

impl Default for Repository {
    fn default() -> Self {
        Self {
            engine: RepositoryEngine::Embedded,
            path: PathBuf::from("flare-data"),
            cache: ByteSize::mib(16),
            reserve: ByteSize::mib(64),
            write_queue_max: 8192,
            url: Secret::default(),
            addrs: Vec::new(),
            database: String::new(),
            schema: "flare".to_owned(),
            keyspace: "flare".to_owned(),
            username: String::new(),
            password: Secret::default(),
            replica_set: String::new(),
            pool_limit: 0,
            timeout: Duration::from_secs(5),
            follow_interval: Duration::from_millis(200),
            ca: PathBuf::new(),
            consistency: "LOCAL_QUORUM".to_owned(),
            serial_consistency: "SERIAL".to_owned(),
            with_replication: String::new(),
            data_centre: String::new(),
        }
    }
}

/// The engines of the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RepositoryEngine {
    /// keeps everything in memory and loses it at the end; for tests
    Memory,
    /// keeps everything in a folder, durably
    Embedded,
    /// keeps everything in MongoDB, which several nodes can share
    Mongodb,
    /// keeps everything in Cassandra, which several nodes can share
    Cassandra,
    /// keeps everything in PostgreSQL, which several nodes can share
    Postgres,
}

impl RepositoryEngine {
    /// Whether several processes can work on the same data.
    pub fn is_shared(self) -> bool {
        match self {
            Self::Memory | Self::Embedded => false,
            Self::Mongodb | Self::Cassandra | Self::Postgres => true,
        }
    }
}
