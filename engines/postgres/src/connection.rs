//! One connection to the server, and what is sent over it.
//!
//! Every statement is prepared once per connection. Statements that do not need each other's answers go out together
//! ([`Connection::pipeline`]): the server runs them one after another, and they cost one round trip.

use std::{collections::HashMap, pin::Pin, time::Duration};

use flare_core::Error;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, Client, Row, SimpleQueryMessage, Statement, types::ToSql};
use tokio_util::sync::CancellationToken;

use crate::{address::Address, failure::Failure, spawn, values::Time};

/// PostgreSQL before this has no `json` as we use it in partitions, nor the plans that we ask for.
const SERVER_VERSION_MIN: i32 = 130_000;

pub(crate) type Value = Box<dyn ToSql + Sync + Send>;

/// A statement and its values.
pub(crate) struct Call {
    pub sql: &'static str,
    pub values: Vec<Value>,
}

impl Call {
    pub fn new(sql: &'static str) -> Self {
        Self { sql, values: Vec::new() }
    }

    pub fn with(mut self, value: impl ToSql + Sync + Send + 'static) -> Self {
        self.values.push(Box::new(value));
        self
    }
}

/// How sessions are set up.
#[derive(Clone)]
pub(crate) struct Session {
    pub schema: String,
    pub timeout: Duration,
    pub partition_rows: i64,
}

pub(crate) struct Connection {
    client: Client,
    statements: Mutex<HashMap<&'static str, Statement>>,
    driver: AbortHandle,
    ended: CancellationToken,
    /// Which process of the server this is, and since when.
    pub backend: (i32, Time),
    timeout: Duration,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // With a transaction under way, or with a server that does not answer, a polite end could take forever.
        self.driver.abort();
    }
}

type Outcome = Result<Vec<Row>, tokio_postgres::Error>;

impl Connection {
    /// Connects, and sets the session up. `heard` is called with the payload of each notification.
    pub async fn open(
        address: &Address,
        session: &Session,
        heard: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        let opening = async {
            let (client, mut connection) = address.config.connect(address.tls.clone()).await?;
            let ended = CancellationToken::new();
            let guard = ended.clone().drop_guard();
            let driver = spawn(async move {
                let _ended = guard;
                while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                    if let AsyncMessage::Notification(note) = message {
                        heard(note.payload());
                    }
                }
            });
            let mut opened = Self {
                client,
                statements: Mutex::default(),
                driver,
                ended,
                backend: (0, Time(jiff::Timestamp::UNIX_EPOCH)),
                timeout: session.timeout,
            };
            opened.set_up(session).await?;
            Ok(opened)
        };
        // The driver's own limit is for each address and without the handshakes.
        match tokio::time::timeout(session.timeout * 2, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(Failure::TimedOut),
        }
    }

    async fn set_up(&mut self, session: &Session) -> Result<(), Failure> {
        let (schema, millis) = (&session.schema, session.timeout.as_millis());
        // All that we ask for is found by a key: a plan that reads a whole table is a mistake of the statistics, made
        // while the table was small. A client that dies in a transaction must not hold its locks.
        let settings = format!(
            "SET search_path TO \"{schema}\", pg_catalog; SET timezone TO 'UTC'; SET statement_timeout TO {millis}; \
             SET idle_in_transaction_session_timeout TO {millis}; SET enable_seqscan TO off; \
             SET enable_hashjoin TO off; SET enable_mergejoin TO off; SET jit TO off"
        );
        self.client.batch_execute(&settings).await?;
        const ABOUT: &str = "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), \
                             pg_backend_pid(), \
                             (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()), \
                             CASE current_setting('synchronous_commit') WHEN 'off' \
                             THEN set_config('synchronous_commit', 'on', false) END";
        let about = self.client.query_one(ABOUT, &[]).await?;
        let (version, encoding): (i32, String) = (about.get(0), about.get(1));
        if version < SERVER_VERSION_MIN {
            let found = version / 10_000;
            return Err(
                Error::invalid(format!("PostgreSQL {found} is too old; Flare needs version 13 or newer")).into()
            );
        }
        if encoding != "UTF8" {
            let wrong = format!("the database has the encoding {encoding}; Flare needs one with the encoding UTF8");
            return Err(Error::invalid(wrong).into());
        }
        self.backend = (about.get(2), about.get(3));
        Ok(())
    }

    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Until the connection is lost.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    async fn statement(&self, sql: &'static str) -> Result<Statement, tokio_postgres::Error> {
        if let Some(statement) = self.statements.lock().get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.lock().insert(sql, statement.clone());
        Ok(statement)
    }

    /// Runs one statement.
    pub async fn query(&self, call: &Call) -> Result<Vec<Row>, Failure> {
        self.within(async {
            let statement = self.statement(call.sql).await?;
            Ok(self.client.query(&statement, &parameters(call)).await?)
        })
        .await
    }

    /// Runs text as it is: settings, and the ends of transactions.
    pub async fn run(&self, text: &str) -> Result<(), Failure> {
        self.within(async { Ok(self.client.batch_execute(text).await?) }).await
    }

    /// Like [`Connection::run`], for as long as it takes.
    pub async fn run_long(&self, text: &str) -> Result<(), Failure> {
        Ok(self.client.batch_execute(text).await?)
    }

    /// Like [`Connection::query`], for as long as it takes.
    pub async fn query_long(&self, call: &Call) -> Result<Vec<Row>, Failure> {
        let statement = self.statement(call.sql).await?;
        Ok(self.client.query(&statement, &parameters(call)).await?)
    }

    /// The one value that a query answers, which need not be known beforehand, for as long as it takes.
    pub async fn query_text(&self, text: &str) -> Result<String, Failure> {
        let messages = self.client.simple_query(text).await?;
        let value = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        Ok(value.unwrap_or_default().to_owned())
    }

    /// Runs all in order, in one round trip once they are prepared, between `before` and `after`.
    pub async fn pipeline(&self, before: Option<&str>, calls: &[&Call], after: Option<&str>) -> Result<Ran, Failure> {
        self.within(async {
            let mut statements = Vec::with_capacity(calls.len());
            for call in calls {
                statements.push(self.statement(call.sql).await?);
            }
            let values: Vec<_> = calls.iter().map(|call| parameters(call)).collect();
            let mut steps: Vec<Pin<Box<dyn Future<Output = Outcome> + Send + '_>>> = Vec::new();
            let simple = |text| async move { self.client.batch_execute(text).await.map(|()| Vec::new()) };
            if let Some(text) = before {
                steps.push(Box::pin(simple(text)));
            }
            for (statement, values) in statements.iter().zip(&values) {
                steps.push(Box::pin(self.client.query(statement, values)));
            }
            if let Some(text) = after {
                steps.push(Box::pin(simple(text)));
            }
            debug_assert!(steps.len() <= STEPS_MAX, "more are not polled in order");
            let mut outcomes = join_all(steps).await.into_iter();
            let begun = before.and_then(|_| outcomes.next()).transpose();
            let ended = after.and_then(|_| outcomes.next_back()).transpose();
            Ok(Ran { begun: begun.map(drop), rows: outcomes.collect(), ended: ended.map(drop) })
        })
        .await
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        // The server's own limit comes first: its answer says for certain that nothing was done.
        match tokio::time::timeout(self.timeout + PATIENCE, work).await {
            Ok(done) => done,
            Err(_) => {
                // What the server makes of it now, nobody will hear.
                self.driver.abort();
                Err(Failure::TimedOut)
            }
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(1);
/// `join_all` polls so many in order.
const STEPS_MAX: usize = 30;

/// What a pipeline came to.
pub(crate) struct Ran {
    pub begun: Result<(), tokio_postgres::Error>,
    pub rows: Vec<Outcome>,
    pub ended: Result<(), tokio_postgres::Error>,
}

impl Ran {
    /// The rows of each statement, or the first thing that went wrong.
    pub fn all(self) -> Result<Vec<Vec<Row>>, Failure> {
        self.begun?;
        let rows = self.rows.into_iter().collect::<Result<_, _>>()?;
        self.ended?;
        Ok(rows)
    }
}

fn parameters(call: &Call) -> Vec<&(dyn ToSql + Sync)> {
    call.values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect()
}
