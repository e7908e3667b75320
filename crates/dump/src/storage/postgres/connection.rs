//! Connections, and what their errors mean.

use std::sync::Arc;
use std::time::Duration;

use flare_postgres::client::Server;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow, Statement};

use crate::error::{Error, ErrorKind, Result};

/// What was sent and not acknowledged for so long is lost.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Text that means the same in every session.
const SETTINGS: &str = "SET client_encoding TO 'UTF8'; SET datestyle TO 'ISO, YMD'; SET intervalstyle TO 'postgres'; \
    SET timezone TO 'UTC'; SET extra_float_digits TO 3; SET bytea_output TO 'hex'; SET xmloption TO 'content'; \
    SET statement_timeout TO 0; SET idle_in_transaction_session_timeout TO 0; SET standard_conforming_strings TO on";

/// Connections that are not in use.
#[derive(Clone)]
pub(super) struct Pool {
    server: Server,
    /// What every connection begins with.
    pub settings: String,
    free: Arc<Mutex<Vec<Connection>>>,
}

/// One connection. Dropped, it is closed, and what it was doing is undone.
pub(super) struct Connection {
    pub client: Client,
    driver: AbortHandle,
    /// Of the last statement that was prepared: chunks repeat one.
    prepared: Mutex<Option<(String, Statement)>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Pool {
    pub fn new(url: &str) -> Result<Self> {
        let server = Server::new(url, SILENCE_MAX).map_err(|error| Error::invalid(error.chain()))?;
        Ok(Self { server, settings: SETTINGS.to_owned(), free: Arc::default() })
    }

    pub async fn take(&self) -> Result<Connection> {
        loop {
            let free = self.free.lock().pop();
            match free {
                Some(connection) if connection.client.is_closed() => (),
                Some(connection) => return Ok(connection),
                None => break,
            }
        }
        let (client, driver) = self.server.connect().await.map_err(|error| failure("cannot connect", error))?;
        let connection = Connection { client, driver, prepared: Mutex::default() };
        connection.run(&self.settings).await?;
        Ok(connection)
    }

    /// Keeps a connection that is in no transaction.
    pub fn give_back(&self, connection: Connection) {
        self.free.lock().push(connection);
    }

    /// The rows of one statement, as text.
    pub async fn rows(&self, sql: &str) -> Result<Vec<SimpleQueryRow>> {
        let connection = self.take().await?;
        let rows = connection.rows(sql).await?;
        self.give_back(connection);
        Ok(rows)
    }
}

impl Connection {
    pub async fn run(&self, sql: &str) -> Result<()> {
        self.client.batch_execute(sql).await.map_err(|error| failure("a statement failed", error))
    }

    /// The statement, prepared once.
    pub async fn prepared(&self, sql: &str) -> Result<Statement> {
        let known = self.prepared.lock().as_ref().filter(|(text, _)| text == sql).map(|(_, known)| known.clone());
        if let Some(known) = known {
            return Ok(known);
        }
        let statement = self.client.prepare(sql).await.map_err(|error| failure("a statement failed", error))?;
        *self.prepared.lock() = Some((sql.to_owned(), statement.clone()));
        Ok(statement)
    }

    pub async fn rows(&self, sql: &str) -> Result<Vec<SimpleQueryRow>> {
        let messages = self.client.simple_query(sql).await.map_err(|error| failure("a query failed", error))?;
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        };
        Ok(messages.into_iter().filter_map(row).collect())
    }
}

/// An error in the words of the copy.
pub(super) fn failure(what: &str, error: tokio_postgres::Error) -> Error {
    let Some(answer) = error.as_db_error() else {
        let kind = if error.is_closed() || is_io(&error) { ErrorKind::Unavailable } else { ErrorKind::Failed };
        return Error::new(kind, what).because(error);
    };
    let mut message = answer.message().to_owned();
    if let Some(column) = answer.column() {
        message.push_str(&format!(" (column {column})"));
    }
    // It names line and column of a COPY.
    if let Some(place) = answer.where_() {
        message.push_str(&format!(" ({})", place.lines().next().unwrap_or_default()));
    }
    if let Some(detail) = answer.detail() {
        message.push_str(&format!(": {detail}"));
    }
    Error::new(kind_of(answer.code()), message)
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.is::<std::io::Error>() {
            return true;
        }
        cause = error.source();
    }
    // The driver's own "timed out" and "connection closed" have no cause.
    error.to_string().contains("connect")
}

fn kind_of(code: &SqlState) -> ErrorKind {
    match &code.code()[..2] {
        // What is in a row: out of range, malformed, not unique, null.
        "22" | "23" => ErrorKind::Rejected,
        // No connection, no resources, shut down, a conflict with others.
        "08" | "53" | "57" | "40" | "55" | "58" => ErrorKind::Unavailable,
        // Credentials, names and rights.
        "28" | "3D" | "3F" | "42" => ErrorKind::Invalid,
        _ => ErrorKind::Failed,
    }
}
