//! The Cassandra engine: a store that several nodes share.
//!
//! Cassandra has no transactions over several partitions, so the engine keeps one thing that is agreed on, a log
//! ([`log`]), and makes all else from it ([`apply`]). A group of changes is written under a name of its own
//! ([`group`]); one conditional write then gives it the next turn of the log, and with it its sequences. Readers see
//! the tables that are made from the log, as far as they are complete. Streams, outlets and tokens are changed in the
//! same way ([`operation`]).
//!
//! Progress of deliveries has one owner at a time and is written without agreement; timestamps keep what an owner
//! that was replaced writes late from covering anything ([`owner`]).

mod apply;
mod attempts;
mod connection;
mod coordination;
mod deliveries;
mod documents;
mod entities;
mod feed;
mod group;
mod heads;
mod history;
mod housekeeping;
mod layout;
mod letters;
mod list;
mod log;
mod missing;
mod operation;
mod options;
mod owner;
mod ports;
mod record;
mod refusal;
mod schema;
mod standing;
mod state;
mod statement;
mod writer;

use std::{
    collections::VecDeque,
    hash::{BuildHasher, BuildHasherDefault},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use flare_core::{
    OutletId, Result, Sequence, StreamId,
    document::Written,
    port::{Engine, Limits, Schema, Store},
};
use flare_toolkit::{
    batch::{BatchLimits, Batcher},
    follow::Follower,
    rows::decode_stream,
};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use connection::Connection;
use entities::KIND_STREAM;
use heads::Recent;
pub use options::{Consistency, Options, Replication, SerialConsistency, Tls};
use owner::Owner;
use record::Listed;
use schema::Migrations;
use state::{State, Told};

/// What goes to the log together. Callers that find more waiting wait themselves.
const WRITES: BatchLimits = BatchLimits { jobs_max: 1000, weight_max: 1 << 20, waiting_max: 8192, lanes: 1 };
/// Partitions that are known to be listed, so that they are not listed again.
const LISTED_MAX: usize = 100_000;

/// Connects, brings the tables up to date, and takes up the work.
pub async fn open(options: &Options) -> Result<Store> {
    let migrations = migrations(options).await?;
    migrations.up().await?;
    let connection = migrations.connection;
    let mut state = State::open(&connection).await?;
    let core = Arc::new(Core {
        follower: Follower::new(Sequence(state.sequence)),
        turn: AtomicU64::new(state.turn),
        applied: AtomicU64::new(state.sequence),
        is_unfinished: AtomicBool::new(false),
        turns: Mutex::default(),
        streams: Mutex::default(),
        shards: Mutex::new(Recent::new(LISTED_MAX)),
        listed: Mutex::new(Recent::new(LISTED_MAX)),
        owner: Owner::open(&connection).await?,
        agreed_locks: std::array::from_fn(|_| tokio::sync::Mutex::default()),
        purge: Notify::new(),
        state: tokio::sync::Mutex::new(State::open(&connection).await?),
        connection,
    });
    // What a crash has left is finished before anybody reads.
    core.catch_up(&mut state).await?;
    core.follower.noticed(core.applied());
    *core.state.lock().await = state;
    Ok(start(core, options))
}

/// The layout of the data, without opening it.
pub async fn schema(options: &Options) -> Result<Arc<dyn Schema>> {
    Ok(Arc::new(migrations(options).await?))
}

async fn migrations(options: &Options) -> Result<Migrations> {
    let connection = Arc::new(Connection::open(options).await?);
    schema::prepare_keyspace(&connection, options).await.map_err(connection::opening)?;
    Ok(Migrations { connection })
}

fn start(core: Arc<Core>, options: &Options) -> Store {
    let stop = CancellationToken::new();
    spawn(housekeeping::follow(core.clone(), stop.clone(), options.follow_interval));
    spawn(housekeeping::purge(core.clone(), stop.clone()));
    let writer = core.clone();
    let writes = Batcher::start(WRITES, move |jobs| {
        let core = writer.clone();
        async move { core.write_documents(jobs).await }
    });
    let store = Arc::new(CassandraStore { core, writes, stop: stop.clone(), _ends_with_the_store: stop.drop_guard() });
    Store {
        streams: store.clone(),
        outlets: store.clone(),
        documents: store.clone(),
        deliveries: store.clone(),
        tokens: store.clone(),
        coordination: store.clone(),
        engine: store,
    }
}

/// A task of the engine: it ends with the store.
#[allow(clippy::disallowed_methods, reason = "engines know no supervisor; the task ends with the store")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

/// The implementation of all ports.
struct CassandraStore {
    core: Arc<Core>,
    writes: Batcher<writer::Job, Vec<Written>>,
    stop: CancellationToken,
    _ends_with_the_store: DropGuard,
}

/// What the ports and the tasks behind them share.
struct Core {
    connection: Arc<Connection>,
    /// The store as of the last turn that this node knows. Whoever appends holds it.
    state: tokio::sync::Mutex<State>,
    follower: Follower,
    /// The last turn that this node knows.
    turn: AtomicU64,
    /// Up to this sequence the tables are complete.
    applied: AtomicU64,
    /// Something that this node has appended is not in the tables.
    is_unfinished: AtomicBool,
    /// Turns with changes, in order.
    turns: Mutex<VecDeque<Told>>,
    /// With how many characters all URLs of a stream start.
    streams: Mutex<FxHashMap<StreamId, usize>>,
    /// Partitions of heads that are listed.
    shards: Mutex<Recent<(StreamId, String), ()>>,
    /// Partitions of outlets that are listed.
    listed: Mutex<Recent<(OutletId, Listed, i32), ()>>,
    owner: Owner,
    agreed_locks: [tokio::sync::Mutex<()>; coordination::LOCKS],
    /// Something was deleted.
    purge: Notify,
}

impl Core {
    /// With how many characters all URLs of the stream start; none if there is no such stream.
    async fn common_chars(&self, stream: StreamId) -> Result<Option<usize>> {
        if let Some(known) = self.streams.lock().get(&stream) {
            return Ok(Some(*known));
        }
        let Some(row) = entities::read(&self.connection, KIND_STREAM, stream.as_bytes()).await? else {
            return Ok(None);
        };
        let common = layout::common_chars(decode_stream(stream, row.as_bytes())?.endpoint.as_str());
        self.streams.lock().insert(stream, common);
        Ok(Some(common))
    }

    fn is_new_shard(&self, stream: StreamId, shard: &str) -> bool {
        self.shards.lock().get(&(stream, shard.to_owned())).is_none()
    }

    fn note_shards(&self, shards: Vec<(StreamId, String)>) {
        let mut known = self.shards.lock();
        shards.into_iter().for_each(|shard| known.insert(shard, ()));
    }

    fn agreed_lock(&self, key: &str) -> &tokio::sync::Mutex<()> {
        let hash = BuildHasherDefault::<FxHasher>::default().hash_one(key);
        &self.agreed_locks[hash as usize % coordination::LOCKS]
    }

    fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }

    fn is_unfinished(&self) -> bool {
        self.is_unfinished.load(Ordering::Acquire)
    }
}

#[async_trait]
impl Engine for CassandraStore {
    fn name(&self) -> &'static str {
        "cassandra"
    }

    fn limits(&self) -> Limits {
        Limits { is_shared: true }
    }

    fn trouble(&self) -> Option<String> {
        self.core.connection.health.trouble()
    }

    async fn entities_revision(&self) -> Result<u64> {
        Ok(state::read_state(&self.core.connection).await?.map_or(0, |applied| applied.entities))
    }

    async fn flush(&self) -> Result<()> {
        // Everything is durable when it is answered.
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        self.stop.cancel();
        // What is being appended is appended first.
        let _last = self.core.state.lock().await;
        self.core.connection.close();
        Ok(())
    }
}
