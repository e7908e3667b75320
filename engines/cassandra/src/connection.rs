//! The session with the cluster: statements, batches, and what their failures mean.
//!
//! Statements are prepared when they are first used and stand where they are used. Every write but those of the log
//! and of agreed rows carries a timestamp that the engine chose, so that a write that comes late or twice changes
//! nothing.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flare_core::{Error, Result};
use flare_toolkit::{
    health::{Health, at_opening},
    tls::client_config,
};
use futures_util::{StreamExt, TryStreamExt};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use scylla::{
    client::{
        PoolSize,
        execution_profile::{ExecutionProfile, ExecutionProfileHandle},
        pager::TypedRowStream,
        session::Session,
        session_builder::SessionBuilder,
    },
    deserialize::row::DeserializeRow,
    errors::{DbError, ExecutionError, RequestAttemptError},
    policies::{load_balancing::DefaultPolicy, retry::FallthroughRetryPolicy},
    response::query_result::QueryResult,
    serialize::row::SerializeRow,
    statement::{
        Consistency, SerialConsistency,
        batch::{Batch, BatchType},
        prepared::PreparedStatement,
    },
};

use crate::{
    options,
    options::Options,
    refusal::{self, Refusal},
    statement::{Mode, Plan, Query, Write},
};

/// Requests on their way at once, of one call.
const LANES: usize = 32;
/// Rows that the server hands over at once.
const PAGE_ROWS: i32 = 500;

/// A row that is read whole, independent of the answer that it came in.
pub(crate) trait OwnedRow: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata> {}
impl<T: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>> OwnedRow for T {}

pub(crate) struct Connection {
    session: Session,
    prepared: RwLock<FxHashMap<&'static str, PreparedStatement>>,
    conditional: ExecutionProfileHandle,
    serial: Consistency,
    pub health: Health,
    names: Names,
    is_closed: AtomicBool,
}

/// Who speaks to whom, for messages.
struct Names {
    /// The contact points.
    address: String,
    user: Option<String>,
    keyspace: String,
}

impl Names {
    /// It did not come to an answer, or the answer was no.
    fn away(&self, what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
        let Self { address, user, keyspace } = self;
        let Some(refusal) = refusal::find(&error) else {
            return Error::unavailable(format!("Cassandra at {address} could not {what}")).because(error);
        };
        let message = match (refusal.kind, user) {
            (refusal::Kind::Login, None) => {
                format!("Cassandra at {address} wants a login: set `username` and `password`")
            }
            (refusal::Kind::Login, Some(user)) => {
                format!("Cassandra at {address} refuses the user {user}: check the name and the password")
            }
            (refusal::Kind::Permission, user) => {
                let user = user.as_deref().unwrap_or("anonymous");
                let needs = "it needs all permissions on the keyspace";
                format!("Cassandra at {address} does not let the user {user} {what}: {needs} {keyspace}")
            }
        };
        Error::unavailable(message).because(refusal)
    }
}

/// The error of one who opens a store: what is refused then is refused for good.
pub(crate) fn opening(error: Error) -> Error {
    at_opening(error, |cause| cause.is::<Refusal>())
}

impl Connection {
    pub async fn open(options: &Options) -> Result<Self> {
        options.check()?;
        let points = options.contact_points();
        let names =
            Names { address: points.join(", "), user: options.username.clone(), keyspace: options.keyspace.clone() };
        let mut policy = DefaultPolicy::builder().token_aware(true);
        if let Some(centre) = &options.local_data_centre {
            policy = policy.prefer_datacenter(centre.clone());
        }
        let (consistency, serial) = levels(options);
        let profile = ExecutionProfile::builder()
            .consistency(consistency)
            .serial_consistency(Some(serial))
            .request_timeout(Some(options.timeout))
            .load_balancing_policy(policy.build());
        let conditional = profile.clone().retry_policy(Arc::new(FallthroughRetryPolicy::new())).build().into_handle();
        let connections = NonZeroUsize::new(options.connections).unwrap_or(NonZeroUsize::MIN);
        let tls = match &options.tls {
            Some(tls) => Some(Arc::new(client_config(tls.ca_file.as_deref())?)),
            None => None,
        };
        let mut builder = SessionBuilder::new()
            .known_nodes(&points)
            .default_execution_profile_handle(profile.build().into_handle())
            .connection_timeout(options.timeout)
            .pool_size(PoolSize::PerHost(connections))
            .keepalive_interval(Duration::from_secs(5))
            .keepalive_timeout(options.timeout)
            .fetch_full_schema_metadata(false)
            .refresh_metadata_on_auto_schema_agreement(false)
            .tls_context(tls);
        if let (Some(user), Some(password)) = (&options.username, &options.password) {
            builder = builder.user(user, password);
        }
        let session = builder.build().await.map_err(|error| opening(names.away("be reached", error)))?;
        let serial = match options.serial_consistency {
            options::SerialConsistency::Serial => Consistency::Serial,
            options::SerialConsistency::LocalSerial => Consistency::LocalSerial,
        };
        Ok(Self {
            session,
            prepared: RwLock::default(),
            conditional,
            serial,
            health: Health::default(),
            names,
            is_closed: AtomicBool::new(false),
        })
    }

    pub async fn use_keyspace(&self, keyspace: &str) -> Result<()> {
        self.session.use_keyspace(keyspace, true).await.map_err(|error| self.names.away("use the keyspace", error))
    }

    /// Runs a statement that changes the schema, and waits until all nodes know of it.
    pub async fn define(&self, text: &str) -> Result<()> {
        let defined = self.session.query_unpaged(text, ()).await;
        self.noted(defined, "change the schema").map(drop)
    }

    /// How many nodes the cluster has.
    pub fn nodes(&self) -> usize {
        self.session.get_cluster_state().get_nodes_info().len()
    }

    /// From now on every call fails.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    async fn prepare(&self, query: Query) -> Result<PreparedStatement> {
        if self.is_closed() {
            return Err(Error::unavailable("the store is closed"));
        }
        if let Some(known) = self.prepared.read().get(query.text) {
            return Ok(known.clone());
        }
        let mut prepared = self.session.prepare(query.text).await.map_err(|error| {
            let error = self.names.away("prepare a statement", error);
            self.health.is_ill(&error);
            error
        })?;
        prepared.set_page_size(PAGE_ROWS);
        match query.mode {
            Mode::Plain => prepared.set_is_idempotent(true),
            Mode::SerialRead => {
                prepared.set_consistency(self.serial);
                prepared.set_is_idempotent(true);
            }
            Mode::Conditional => prepared.set_execution_profile_handle(Some(self.conditional.clone())),
        }
        self.prepared.write().insert(query.text, prepared.clone());
        Ok(prepared)
    }

    pub async fn execute(&self, query: Query, values: impl SerializeRow) -> Result<()> {
        let prepared = self.prepare(query).await?;
        let outcome = self.session.execute_unpaged(&prepared, values).await;
        self.noted(outcome, "write").map(drop)
    }

    /// All rows of a read that is bounded by itself.
    pub async fn rows<R: OwnedRow>(&self, query: Query, values: impl SerializeRow) -> Result<Vec<R>> {
        let prepared = self.prepare(query).await?;
        let outcome = self.session.execute_unpaged(&prepared, values).await;
        let result = self.noted(outcome, "read")?.into_rows_result().map_err(strange)?;
        result.rows::<R>().map_err(strange)?.map(|row| row.map_err(strange)).collect()
    }

    pub async fn row<R: OwnedRow>(&self, query: Query, values: impl SerializeRow) -> Result<Option<R>> {
        Ok(self.rows(query, values).await?.into_iter().next())
    }

    /// The rows of a read of any length, page by page.
    pub async fn stream<R: OwnedRow>(&self, query: Query, values: impl SerializeRow) -> Result<Rows<'_, R>> {
        let prepared = self.prepare(query).await?;
        let pager = self.session.execute_iter(prepared, values).await.map_err(|error| {
            let error = self.names.away("read", error);
            self.health.is_ill(&error);
            error
        })?;
        Ok(Rows { connection: self, rows: pager.rows_stream::<R>().map_err(strange)? })
    }

    /// Writes rows of one partition or several, all with the same timestamp. Each partition's rows are written
    /// together as far as a mutation reaches.
    pub async fn write(&self, timestamp: i64, plan: Plan) -> Result<()> {
        let mut batches = Vec::new();
        for batch in plan.into_batches() {
            batches.push(self.write_batch(timestamp, batch));
        }
        all(batches).await.map(drop)
    }

    async fn write_batch(&self, timestamp: i64, writes: Vec<Write>) -> Result<()> {
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_timestamp(Some(timestamp));
        batch.set_is_idempotent(true);
        let mut values = Vec::with_capacity(writes.len());
        for write in writes {
            batch.append_statement(self.prepare(write.query).await?);
            values.push(write.values);
        }
        let outcome = self.session.batch(&batch, values).await;
        self.noted(outcome, "write").map(drop)
    }

    /// Runs conditional statements on one partition: all of them or none.
    pub async fn compare_and_set(&self, writes: Vec<(Query, Box<dyn SerializeRow + Send + Sync>)>) -> Decision {
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_execution_profile_handle(Some(self.conditional.clone()));
        let mut values = Vec::with_capacity(writes.len());
        for (query, row) in writes {
            match self.prepare(query).await {
                Ok(prepared) => batch.append_statement(prepared),
                Err(error) => return Decision::NotTried(error),
            }
            values.push(row);
        }
        let outcome = if batch.statements.len() == 1
            && let (Some(scylla::statement::batch::BatchStatement::PreparedStatement(only)), Some(row)) =
                (batch.statements.first(), values.first())
        {
            self.session.execute_unpaged(only, row).await
        } else {
            self.session.batch(&batch, values).await
        };
        match outcome {
            Ok(result) => {
                self.health.is_well();
                was_applied(result).map_or_else(Decision::NotTried, |applied| {
                    if applied { Decision::Applied } else { Decision::Refused }
                })
            }
            Err(error) => {
                let was_tried = was_tried(&error);
                let error = self.failed(error, "agree on a write");
                self.health.is_ill(&error);
                if was_tried { Decision::Unknown(error) } else { Decision::NotTried(error) }
            }
        }
    }

    fn noted(&self, outcome: Result<QueryResult, ExecutionError>, what: &str) -> Result<QueryResult> {
        self.health.note(outcome.map_err(|error| self.failed(error, what)))
    }

    fn failed(&self, error: ExecutionError, what: &str) -> Error {
        let is_ours = match &error {
            ExecutionError::BadQuery(_) => true,
            ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _)) => {
                matches!(error, DbError::SyntaxError | DbError::Invalid | DbError::ConfigError)
            }
            _ => false,
        };
        if is_ours {
            Error::internal(format!("Cassandra at {} refused to {what}", self.names.address)).because(error)
        } else {
            self.names.away(what, error)
        }
    }
}

/// What became of a conditional write.
pub(crate) enum Decision {
    Applied,
    /// The condition did not hold.
    Refused,
    /// Nothing was written, and nothing will be.
    NotTried(Error),
    /// It may be written, now or later.
    Unknown(Error),
}

/// Rows that come page by page.
pub(crate) struct Rows<'a, R: OwnedRow> {
    connection: &'a Connection,
    rows: TypedRowStream<R>,
}

impl<R: OwnedRow> Rows<'_, R> {
    pub async fn next(&mut self) -> Result<Option<R>> {
        match self.rows.next().await {
            None => Ok(None),
            Some(Ok(row)) => Ok(Some(row)),
            Some(Err(error)) => {
                let error = self.connection.names.away("read on", error);
                self.connection.health.is_ill(&error);
                Err(error)
            }
        }
    }
}

/// Does many things, some of them at once, and gives their answers in order; or the first error.
pub(crate) async fn all<T, F: Future<Output = Result<T>>>(calls: Vec<F>) -> Result<Vec<T>> {
    futures_util::stream::iter(calls).buffered(LANES).try_collect().await
}

fn levels(options: &Options) -> (Consistency, SerialConsistency) {
    let consistency = match options.consistency {
        options::Consistency::One => Consistency::One,
        options::Consistency::Quorum => Consistency::Quorum,
        options::Consistency::LocalQuorum => Consistency::LocalQuorum,
        options::Consistency::EachQuorum => Consistency::EachQuorum,
        options::Consistency::All => Consistency::All,
    };
    let serial = match options.serial_consistency {
        options::SerialConsistency::Serial => SerialConsistency::Serial,
        options::SerialConsistency::LocalSerial => SerialConsistency::LocalSerial,
    };
    (consistency, serial)
}

/// An answer that a server of the right version does not give.
fn strange(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::internal("Cassandra's answer is not what was asked for").because(error)
}

/// An applied write answers with one column on Cassandra, and with the whole row elsewhere: the column's name counts.
fn was_applied(result: QueryResult) -> Result<bool> {
    let rows = result.into_rows_result().map_err(strange)?;
    let column = rows.column_specs().get_by_name("[applied]").map(|(index, _)| index);
    let row = rows.first_row::<scylla::value::Row>().map_err(strange)?;
    column
        .and_then(|column| row.columns.get(column)?.as_ref()?.as_boolean())
        .ok_or_else(|| Error::internal("Cassandra did not say whether a write was applied"))
}

/// Whether a conditional write that failed so may have been begun.
fn was_tried(error: &ExecutionError) -> bool {
    match error {
        ExecutionError::BadQuery(_)
        | ExecutionError::EmptyPlan
        | ExecutionError::PrepareError(_)
        | ExecutionError::ConnectionPoolError(_) => false,
        ExecutionError::LastAttemptError(attempt) => match attempt {
            RequestAttemptError::SerializationError(_)
            | RequestAttemptError::CqlRequestSerialization(_)
            | RequestAttemptError::UnableToAllocStreamId => false,
            // It is refused before it begins.
            RequestAttemptError::DbError(error, _) => !matches!(
                error,
                DbError::SyntaxError
                    | DbError::Invalid
                    | DbError::Unauthorized
                    | DbError::Unavailable { .. }
                    | DbError::Overloaded
                    | DbError::IsBootstrapping
            ),
            _ => true,
        },
        _ => true,
    }
}
