//! PostgreSQL as a store: for teams that already run it, and for several nodes on the same data.
//!
//! One row, the head, gives out the sequences: a group of writes locks it, so that groups of all nodes follow one
//! another ([`writer`], [`groups`]). Everything else is rows that are found by a key. What rests where is in
//! `migrations/`.

mod address;
pub mod client;
mod connection;
mod coordination;
mod deliveries;
mod documents;
mod failure;
mod follow;
mod groups;
mod history;
mod housekeeping;
mod outlets;
mod partitions;
mod pool;
mod record;
mod schema;
mod streams;
mod tls;
mod tokens;
mod values;
mod writer;

use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64},
    },
    time::Duration,
};

use async_trait::async_trait;
use flare_core::{
    DocumentNumber, Error, OutletId, Result, StreamId,
    document::{Change, Version, Written},
    port::{self, Limits, Schema, Store},
    url::DocumentUrl,
};
use flare_toolkit::{
    batch::{BatchLimits, Batcher},
    follow::Follower,
    health::at_opening,
};
use tokio::{sync::Notify, task::AbortHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::{
    address::Address,
    connection::{Call, Session},
    groups::Groups,
    history::Broom,
    pool::Pool,
    schema::Layout,
    values::Id,
    writer::Writer,
};

/// How the engine reaches the server, and how much it takes of it.
#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:port/database?sslmode=…`, or libpq's list of `key=value`. It takes the place of
    /// the five settings that follow.
    pub url: Option<String>,
    pub host: String,
    pub port: u16,
    pub database: String,
    /// Without it, the user of the operating system.
    pub username: Option<String>,
    pub password: Option<String>,
    /// The schema that holds all tables; it is made if it is not there.
    pub schema: String,
    /// Connections at most; one more listens for notifications.
    pub pool_limit: usize,
    /// How long a call may take.
    pub timeout: Duration,
    /// How often to look for changes of other nodes, should notifications not come.
    pub follow_interval: Duration,
    /// Changes that stand in one table. Larger tables are fewer; smaller ones are tidied up more quickly.
    pub partition_rows: u32,
    /// A file of certificates (PEM) of the authorities that may sign for the server, in place of those of the web.
    pub ca: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            url: None,
            host: "127.0.0.1".into(),
            port: 5432,
            database: "flare".into(),
            username: None,
            password: None,
            schema: "flare".into(),
            pool_limit: 10,
            timeout: Duration::from_secs(5),
            follow_interval: Duration::from_millis(200),
            partition_rows: 2_000_000,
            ca: None,
        }
    }
}

/// The URL and the password are left out.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("database", &self.database)
            .field("username", &self.username)
            .field("schema", &self.schema)
            .field("pool_limit", &self.pool_limit)
            .field("timeout", &self.timeout)
            .field("follow_interval", &self.follow_interval)
            .field("partition_rows", &self.partition_rows)
            .field("ca", &self.ca)
            .finish_non_exhaustive()
    }
}

/// Group commit: one at a time, as large as a round trip is worth.
const WRITES: BatchLimits = BatchLimits { jobs_max: 2048, weight_max: 4 << 20, waiting_max: 8192, lanes: 1 };
/// The weight is the number of steps.
const RECORDS: BatchLimits = BatchLimits { jobs_max: 256, weight_max: 65_536, waiting_max: 1024, lanes: 1 };
/// The answers have the contents of documents.
const GETS: BatchLimits = BatchLimits { jobs_max: 64, weight_max: 64, waiting_max: 8192, lanes: 4 };
const VERSIONS: BatchLimits = BatchLimits { jobs_max: 512, weight_max: 512, waiting_max: 8192, lanes: 3 };

/// Opens the store: takes the steps of the layout that are missing, then starts to follow.
pub async fn open(options: &Options) -> Result<Store> {
    let pool = connect(options)?;
    let up = Layout { pool: pool.clone() }.up().await;
    up.map_err(|error| at_opening(error, failure::is_login_refused))?;
    partitions::make_room(&pool, 0).await?;
    let inner = Arc::new(Inner::open(pool, options).await?);
    let stop = CancellationToken::new();
    spawn(follow::run(inner.clone(), stop.clone(), options.follow_interval));
    spawn(follow::listen(inner.clone(), stop.clone()));
    spawn(housekeeping::run(inner.clone(), stop.clone()));
    let store = Arc::new(PostgresStore::new(inner, stop));
    Ok(Store {
        streams: store.clone(),
        outlets: store.clone(),
        documents: store.clone(),
        deliveries: store.clone(),
        tokens: store.clone(),
        coordination: store.clone(),
        engine: store,
    })
}

/// The layout of the tables, for those who want to look before they leap.
pub async fn schema(options: &Options) -> Result<Arc<dyn Schema>> {
    Ok(Arc::new(Layout { pool: connect(options)? }))
}

fn connect(options: &Options) -> Result<Arc<Pool>> {
    if options.timeout.is_zero() || options.follow_interval.is_zero() {
        return Err(Error::invalid("the timeout and the follow interval of PostgreSQL must be longer than nothing"));
    }
    let session = Session {
        schema: options.schema.clone(),
        timeout: options.timeout,
        partition_rows: i64::from(options.partition_rows.max(1)),
    };
    Ok(Pool::new(Address::read(options)?, session, options.pool_limit))
}

/// What all parts share.
pub(crate) struct Inner {
    pool: Arc<Pool>,
    writer: Writer,
    follower: Follower,
    groups: Groups,
    broom: Broom,
    /// There is something to clean up.
    chores: Notify,
    /// The channel of notifications.
    channel: String,
    /// As whose owner this node records; zero before it has sealed.
    epoch: AtomicU64,
    /// The number of the last record.
    records: AtomicI64,
}

impl Inner {
    async fn open(pool: Arc<Pool>, options: &Options) -> Result<Self> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| Error::internal("there is no randomness").because(error))?;
        let inner = Self {
            writer: Writer::new(pool.clone(), Id(id)),
            follower: Follower::new(flare_core::Sequence::START),
            groups: Groups::default(),
            broom: Broom::default(),
            chores: Notify::new(),
            channel: format!("flare_{}", options.schema),
            epoch: AtomicU64::new(0),
            records: AtomicI64::new(0),
            pool,
        };
        let head = inner.read_head().await?;
        Ok(Self { follower: Follower::new(head), ..inner })
    }

    /// How long a call waits for its turn.
    fn patience(&self) -> Duration {
        self.pool.session.timeout
    }

    /// The answer to a call whose turn did not come: nothing of it was done.
    fn busy(&self) -> Error {
        let server = &self.pool.address.name;
        match self.pool.health.trouble() {
            Some(reason) => Error::unavailable(reason),
            None => Error::unavailable(format!("PostgreSQL at {server} has more to do than it can in time")),
        }
    }
}

/// The implementation of all ports. When it is gone, what works in its background ends.
pub(crate) struct PostgresStore {
    inner: Arc<Inner>,
    writes: Batcher<groups::Job, Vec<Written>>,
    records: Batcher<record::Job, ()>,
    gets: Batcher<(StreamId, DocumentUrl), Option<Change>>,
    versions: Batcher<(OutletId, DocumentNumber), Option<Version>>,
    stop: CancellationToken,
    _stops: DropGuard,
}

impl PostgresStore {
    fn new(inner: Arc<Inner>, stop: CancellationToken) -> Self {
        let (writes, records, gets, versions) = (inner.clone(), inner.clone(), inner.clone(), inner.clone());
        Self {
            writes: Batcher::start(WRITES, move |jobs| {
                let inner = writes.clone();
                async move { groups::commit(&inner, jobs).await }
            }),
            records: Batcher::start(RECORDS, move |jobs| {
                let inner = records.clone();
                async move { record::record_all(&inner, jobs).await }
            }),
            gets: Batcher::start(GETS, move |jobs| {
                let inner = gets.clone();
                async move { inner.get_all(jobs).await }
            }),
            versions: Batcher::start(VERSIONS, move |jobs| {
                let inner = versions.clone();
                async move { inner.versions(jobs).await }
            }),
            inner,
            _stops: stop.clone().drop_guard(),
            stop,
        }
    }
}

#[async_trait]
impl port::Engine for PostgresStore {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn limits(&self) -> Limits {
        Limits { is_shared: true }
    }

    fn trouble(&self) -> Option<String> {
        self.inner.pool.health.trouble()
    }

    async fn entities_revision(&self) -> Result<u64> {
        streams::revision(&self.inner.pool.query(&Call::new(streams::REVISION)).await?)
    }

    async fn flush(&self) -> Result<()> {
        // Everything is on disk when it is answered.
        if self.inner.pool.is_closed() { Err(pool::closed()) } else { Ok(()) }
    }

    async fn close(&self) -> Result<()> {
        self.stop.cancel();
        let resting = tokio::time::timeout(self.inner.patience(), self.inner.writer.rest());
        let _may_be_in_doubt = resting.await;
        self.inner.pool.close();
        Ok(())
    }
}

/// A task of the engine: it ends with the store.
#[allow(clippy::disallowed_methods, reason = "engines know no supervisor; the task ends with its store or connection")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::spawn(task).abort_handle()
}
