//! The connection to the server: what it is, commands with a deadline, and what their failures mean.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use flare_core::{Error, Result};
use flare_toolkit::health::{Health, at_opening};
use mongodb::{
    Client, Collection, Database,
    bson::{Document, RawArrayBuf, RawDocumentBuf, doc, raw::cstr, rawdoc},
    error::ErrorKind,
    options::{ClientOptions, Credential, ReadConcern, ServerAddress, WriteConcern},
};

use crate::{Options, table::Table};

/// The name of the database where none is given.
const DATABASE: &str = "flare";
/// Statements in one command.
const STATEMENTS_MAX: usize = 1000;
/// A command is one document, and a document has 16 MiB at most.
const COMMAND_BYTES_MAX: usize = 12 << 20;
const DUPLICATE_KEY: i32 = 11000;

/// What the server is part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deployment {
    /// One server, without transactions and change streams.
    Standalone,
    /// A replica set, or a sharded cluster of such.
    Replicated,
}

pub(crate) struct Connection {
    database: Database,
    /// One for each table, in the order of the tables.
    collections: Vec<Collection<RawDocumentBuf>>,
    pub deployment: Deployment,
    /// How long the server may take for a command.
    pub timeout: Duration,
    pub health: Health,
    is_closed: AtomicBool,
    /// For messages: without credentials.
    address: String,
}

/// Why a write has no clean answer.
pub(crate) enum Failure {
    /// Nothing was written, and nothing will be.
    NotDone(Error),
    /// It may be written, now or later.
    Unknown(Error),
}

impl Failure {
    pub fn into_error(self) -> Error {
        match self {
            Self::NotDone(error) | Self::Unknown(error) => error,
        }
    }
}

/// When a write has to be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Durability {
    /// When no loss of power or of a server can take it back.
    Journaled,
    /// When no loss of a server can take it back. A lone server has it on disk before what it writes later.
    Replicated,
}

/// What became of the statements of a command.
#[derive(Default)]
pub(crate) struct Reply {
    /// Rows that were found or inserted.
    pub matched: u64,
    /// Statements that met a row with the same key.
    pub duplicates: u64,
}

/// The server does not know this user with this password.
fn is_login_refused(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause
        .downcast_ref::<mongodb::error::Error>()
        .is_some_and(|error| matches!(*error.kind, mongodb::error::ErrorKind::Authentication { .. }))
}

impl Connection {
    pub async fn open(options: &Options) -> Result<Self> {
        let settings = client_options(options).await?;
        let address = settings.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let name = options.database.clone().or_else(|| settings.default_database.clone());
        let client = Client::with_options(settings)
            .map_err(|error| Error::invalid("the settings of MongoDB cannot be used").because(error))?;
        let database = client.database(name.as_deref().unwrap_or(DATABASE));
        let collections = Table::ALL.iter().map(|table| database.collection(table.name())).collect();
        let mut connection = Self {
            collections,
            database,
            deployment: Deployment::Standalone,
            timeout: options.timeout,
            health: Health::default(),
            is_closed: AtomicBool::new(false),
            address,
        };
        let hello = connection.call("ask for its role", connection.database.run_command(doc! { "hello": 1 })).await;
        let hello = hello.map_err(|error| at_opening(error, is_login_refused))?;
        if hello.contains_key("setName") || hello.get_str("msg").is_ok_and(|role| role == "isdbgrid") {
            connection.deployment = Deployment::Replicated;
        }
        Ok(connection)
    }

    pub fn database(&self) -> &Database {
        &self.database
    }

    pub fn rows(&self, table: Table) -> &Collection<RawDocumentBuf> {
        &self.collections[table as usize]
    }

    /// What a majority of servers has, as far as there are several.
    pub fn committed(&self) -> ReadConcern {
        match self.deployment {
            Deployment::Standalone => ReadConcern::local(),
            Deployment::Replicated => ReadConcern::majority(),
        }
    }

    /// The newest that anybody was told, even if this server does not know that it was replaced.
    pub fn linearizable(&self) -> ReadConcern {
        match self.deployment {
            Deployment::Standalone => ReadConcern::local(),
            Deployment::Replicated => ReadConcern::linearizable(),
        }
    }

    /// From now on every call fails.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    fn require_open(&self) -> Result<()> {
        if self.is_closed.load(Ordering::Acquire) { Err(Error::unavailable("the store is closed")) } else { Ok(()) }
    }

    /// Looking for a server may take as long as it takes to answer.
    fn patience(&self) -> Duration {
        self.timeout.saturating_mul(2)
    }

    /// Waits for a call no longer than the timeout, and notes how it went. For calls that may be repeated freely.
    pub async fn call<T>(&self, what: &str, call: impl IntoFuture<Output = mongodb::error::Result<T>>) -> Result<T> {
        self.require_open()?;
        let outcome = match tokio::time::timeout(self.patience(), call.into_future()).await {
            Ok(outcome) => outcome.map_err(|error| self.unavailable(what, error)),
            Err(_) => Err(self.too_slow(what)),
        };
        self.health.note(outcome)
    }

    pub fn unavailable(&self, what: &str, cause: mongodb::error::Error) -> Error {
        Error::unavailable(format!("could not {what} in MongoDB at {}", self.address)).because(cause)
    }

    pub fn too_slow(&self, what: &str) -> Error {
        let (address, timeout) = (&self.address, self.patience());
        Error::unavailable(format!("could not {what} in MongoDB at {address}: no answer within {timeout:?}"))
    }

    /// Inserts rows; those that are there already count as duplicates.
    pub async fn insert(
        &self,
        table: Table,
        rows: &[RawDocumentBuf],
        durability: Durability,
    ) -> Result<Reply, Failure> {
        self.write("insert", "documents", table, rows, durability).await
    }

    /// Runs update statements (`q`, `u`, `upsert`), none of which depends on another.
    pub async fn update(
        &self,
        table: Table,
        statements: &[RawDocumentBuf],
        durability: Durability,
    ) -> Result<Reply, Failure> {
        self.write("update", "updates", table, statements, durability).await
    }

    async fn write(
        &self,
        verb: &'static str,
        member: &'static str,
        table: Table,
        statements: &[RawDocumentBuf],
        durability: Durability,
    ) -> Result<Reply, Failure> {
        let mut reply = Reply::default();
        for part in parts(statements) {
            let command = self.write_command(verb, member, table, part, durability);
            let part = self.run_write(verb, table, command).await?;
            reply.matched += part.matched;
            reply.duplicates += part.duplicates;
        }
        Ok(reply)
    }

    fn write_command(
        &self,
        verb: &str,
        member: &str,
        table: Table,
        statements: &[RawDocumentBuf],
        durability: Durability,
    ) -> RawDocumentBuf {
        let mut list = RawArrayBuf::new();
        statements.iter().for_each(|statement| list.push(statement.clone()));
        let concern = match (durability, self.deployment) {
            (Durability::Journaled, _) => rawdoc! { "w": "majority", "j": true },
            (Durability::Replicated, Deployment::Replicated) => rawdoc! { "w": "majority" },
            (Durability::Replicated, Deployment::Standalone) => rawdoc! { "w": 1 },
        };
        let mut command = RawDocumentBuf::new();
        match verb {
            "insert" => command.append(cstr!("insert"), table.name()),
            _ => command.append(cstr!("update"), table.name()),
        }
        match member {
            "documents" => command.append(cstr!("documents"), list),
            _ => command.append(cstr!("updates"), list),
        }
        command.append(cstr!("ordered"), false);
        command.append(cstr!("writeConcern"), concern);
        command.append(cstr!("maxTimeMS"), i64::try_from(self.timeout.as_millis()).unwrap_or(i64::MAX));
        command
    }

    async fn run_write(&self, verb: &str, table: Table, command: RawDocumentBuf) -> Result<Reply, Failure> {
        let what = format!("{verb} {}", table.name());
        self.require_open().map_err(Failure::NotDone)?;
        let outcome = match tokio::time::timeout(self.patience(), self.database.run_raw_command(command)).await {
            Err(_) => Err(Failure::Unknown(self.too_slow(&what))),
            Ok(Err(error)) if was_never_sent(&error) => Err(Failure::NotDone(self.unavailable(&what, error))),
            Ok(Err(error)) => Err(Failure::Unknown(self.unavailable(&what, error))),
            Ok(Ok(answer)) => self.read_reply(&what, &answer),
        };
        match &outcome {
            Ok(_) => self.health.is_well(),
            Err(Failure::NotDone(error) | Failure::Unknown(error)) => self.health.is_ill(error),
        }
        outcome
    }

    fn read_reply(&self, what: &str, answer: &Document) -> Result<Reply, Failure> {
        let refused = |cause: String| {
            Failure::Unknown(Error::unavailable(format!("could not {what} in MongoDB at {}: {cause}", self.address)))
        };
        if let Ok(failed) = answer.get_document("writeConcernError") {
            return Err(refused(format!("not on enough servers: {failed}")));
        }
        let mut reply = Reply { matched: number(answer, "n"), duplicates: 0 };
        for error in answer.get_array("writeErrors").into_iter().flatten() {
            match error.as_document().and_then(|error| error.get_i32("code").ok()) {
                Some(DUPLICATE_KEY) => reply.duplicates += 1,
                _ => return Err(refused(error.to_string())),
            }
        }
        Ok(reply)
    }
}

fn number(answer: &Document, name: &str) -> u64 {
    answer.get_i32(name).map(i64::from).or_else(|_| answer.get_i64(name)).map_or(0, |n| n.max(0) as u64)
}

/// Whether no server can have seen the command.
pub(crate) fn was_never_sent(error: &mongodb::error::Error) -> bool {
    matches!(
        *error.kind,
        ErrorKind::ServerSelection { .. }
            | ErrorKind::DnsResolve { .. }
            | ErrorKind::InvalidArgument { .. }
            | ErrorKind::Authentication { .. }
            | ErrorKind::Shutdown
    )
}

/// Statements in parts that fit into one command each.
fn parts(statements: &[RawDocumentBuf]) -> Vec<&[RawDocumentBuf]> {
    let mut parts = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, statement) in statements.iter().enumerate() {
        let length = statement.as_bytes().len();
        if index > start && (bytes + length > COMMAND_BYTES_MAX || index - start >= STATEMENTS_MAX) {
            parts.push(&statements[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += length;
    }
    if start < statements.len() {
        parts.push(&statements[start..]);
    }
    parts
}

async fn client_options(options: &Options) -> Result<ClientOptions> {
    let wrong = |error| Error::invalid("the address of MongoDB cannot be read").because(error);
    let mut settings = match &options.url {
        Some(url) => ClientOptions::parse(url).await.map_err(wrong)?,
        None => {
            let hosts = options.addrs.iter().map(ServerAddress::parse).collect::<mongodb::error::Result<Vec<_>>>();
            ClientOptions::builder().hosts(hosts.map_err(wrong)?).build()
        }
    };
    if let Some(username) = &options.username {
        settings.credential =
            Some(Credential::builder().username(username.clone()).password(options.password.clone()).build());
    }
    if options.replica_set.is_some() {
        settings.repl_set_name.clone_from(&options.replica_set);
    }
    settings.app_name.get_or_insert_with(|| "flare".into());
    settings.max_pool_size.get_or_insert(options.pool_limit);
    settings.connect_timeout.get_or_insert(options.timeout);
    settings.server_selection_timeout.get_or_insert(options.timeout);
    // What is weaker could be taken back when a server is lost, and decisions are made on what is newest.
    settings.write_concern = Some(WriteConcern::majority());
    settings.read_concern = None;
    settings.selection_criteria = None;
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_cut_by_count_and_by_bytes() {
        let small: Vec<_> = (0..2500).map(|n| rawdoc! { "_id": n }).collect();
        assert_eq!(parts(&small).iter().map(|part| part.len()).collect::<Vec<_>>(), [1000, 1000, 500]);
        let large: Vec<_> = (0..3).map(|_| rawdoc! { "content": "x".repeat(5 << 20) }).collect();
        assert_eq!(parts(&large).iter().map(|part| part.len()).collect::<Vec<_>>(), [2, 1]);
        assert!(parts(&[]).is_empty());
    }
}
