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
    options::{ClientOptions, ReadConcern, ServerAddress, Tls, TlsOptions, WriteConcern},
};

use parking_lot::RwLock;
use tokio::time::Instant;

use crate::{Options, table::Table};

/// The name of the database where none is given.
const DATABASE: &str = "flare";
/// Statements in one command.
const STATEMENTS_MAX: usize = 1000;
/// A command is one document, and a document has 16 MiB at most.
const COMMAND_BYTES_MAX: usize = 12 << 20;
const DUPLICATE_KEY: i32 = 11000;
const UNAUTHORIZED: i32 = 13;
const AUTHENTICATION_FAILED: i32 = 18;
/// The same in the words of a driver that finds no server because of it.
const AUTHENTICATION_FAILED_NAME: &str = "AuthenticationFailed";
/// Who has no permission connects anew no sooner than this.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(2);

/// What the server is part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deployment {
    /// One server, without transactions and change streams.
    Standalone,
    /// A replica set, or a sharded cluster of such.
    Replicated,
}

/// The driver's connections, and what they are used by.
struct Link {
    database: Database,
    /// One for each table, in the order of the tables.
    collections: Vec<Collection<RawDocumentBuf>>,
    since: Instant,
}

impl Link {
    fn new(settings: ClientOptions, name: &str) -> mongodb::error::Result<Self> {
        let database = Client::with_options(settings)?.database(name);
        let collections = Table::ALL.iter().map(|table| database.collection(table.name())).collect();
        Ok(Self { database, collections, since: Instant::now() })
    }
}

pub(crate) struct Connection {
    settings: ClientOptions,
    /// The name of the database.
    name: String,
    link: RwLock<Link>,
    pub deployment: Deployment,
    /// How long the server may take for a command.
    pub timeout: Duration,
    pub health: Health,
    is_closed: AtomicBool,
    /// For messages: without credentials.
    address: String,
    /// Who logs in.
    username: Option<String>,
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

/// Why the server does not do as it is told, although it can.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// It does not know this user with this password.
    Login,
    /// The user may not do it; nobody may who has not logged in.
    Permission,
}

fn refusal(error: &mongodb::error::Error) -> Option<Refusal> {
    match &*error.kind {
        ErrorKind::Authentication { .. } => Some(Refusal::Login),
        ErrorKind::ServerSelection { message, .. } if message.contains(AUTHENTICATION_FAILED_NAME) => {
            Some(Refusal::Login)
        }
        ErrorKind::Command(answer) => match answer.code {
            AUTHENTICATION_FAILED => Some(Refusal::Login),
            UNAUTHORIZED => Some(Refusal::Permission),
            _ => None,
        },
        _ => None,
    }
}

fn is_refusal(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref().is_some_and(|error| refusal(error).is_some())
}

impl Connection {
    pub async fn open(options: &Options) -> Result<Self> {
        let settings = client_options(options).await?;
        let address = settings.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let name = options.database.clone().or_else(|| settings.default_database.clone());
        let name = name.unwrap_or_else(|| DATABASE.into());
        let username = settings.credential.as_ref().and_then(|credential| credential.username.clone());
        let link = Link::new(settings.clone(), &name)
            .map_err(|error| Error::invalid("the settings of MongoDB cannot be used").because(error))?;
        let mut connection = Self {
            settings,
            name,
            link: RwLock::new(link),
            deployment: Deployment::Standalone,
            timeout: options.timeout,
            health: Health::default(),
            is_closed: AtomicBool::new(false),
            address,
            username,
        };
        let hello = connection.meet().await.map_err(|error| at_opening(error, is_refusal))?;
        if hello.contains_key("setName") || hello.get_str("msg").is_ok_and(|role| role == "isdbgrid") {
            connection.deployment = Deployment::Replicated;
        }
        Ok(connection)
    }

    /// Asks the server what it is, and whether it lets us in: the first question it answers to everybody.
    async fn meet(&self) -> Result<Document> {
        let hello = self.call("ask for its role", self.database().run_command(doc! { "hello": 1 })).await?;
        self.call("read", self.rows(Table::Migrations).find_one(doc! {})).await?;
        Ok(hello)
    }

    pub fn database(&self) -> Database {
        self.link.read().database.clone()
    }

    pub fn rows(&self, table: Table) -> Collection<RawDocumentBuf> {
        self.link.read().collections[table as usize].clone()
    }

    /// Connects anew. Connections whose user was removed stay without one, also when there is such a user again, and
    /// the driver keeps them.
    fn renew(&self) {
        let mut link = self.link.write();
        if link.since.elapsed() >= RENEWAL_INTERVAL
            && let Ok(new) = Link::new(self.settings.clone(), &self.name)
        {
            *link = new;
        }
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
        let (address, database, refusal) = (&self.address, &self.name, refusal(&cause));
        if refusal == Some(Refusal::Permission) {
            self.renew();
        }
        let message = match (refusal, &self.username) {
            (None, _) => format!("could not {what} in MongoDB at {address}"),
            (Some(_), None) => {
                format!("MongoDB at {address} wants a login: set `username` and `password`, or name them in `url`")
            }
            (Some(Refusal::Login), Some(user)) => {
                format!("MongoDB at {address} refuses the user {user}: check the name and the password")
            }
            (Some(Refusal::Permission), Some(user)) => format!(
                "MongoDB at {address} does not let the user {user} {what}: it needs the role readWrite on the database \
                 {database}"
            ),
        };
        Error::unavailable(message).because(cause)
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
        let database = self.database();
        let outcome = match tokio::time::timeout(self.patience(), database.run_raw_command(command)).await {
            Err(_) => Err(Failure::Unknown(self.too_slow(&what))),
            Ok(Err(error)) if was_never_begun(&error) => Err(Failure::NotDone(self.unavailable(&what, error))),
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

/// Whether no server can have begun with the command.
pub(crate) fn was_never_begun(error: &mongodb::error::Error) -> bool {
    let was_never_sent = matches!(
        *error.kind,
        ErrorKind::ServerSelection { .. }
            | ErrorKind::DnsResolve { .. }
            | ErrorKind::InvalidArgument { .. }
            | ErrorKind::Shutdown
    );
    was_never_sent || refusal(error).is_some()
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
        // Who is asked for the user is left as the URL says.
        let mut credential = settings.credential.take().unwrap_or_default();
        (credential.username, credential.password) = (Some(username.clone()), options.password.clone());
        settings.credential = Some(credential);
    }
    if let Some(ca) = &options.ca {
        // The driver would leave out what it cannot read.
        flare_toolkit::tls::roots(Some(ca))?;
        let mut tls = match settings.tls {
            Some(Tls::Enabled(tls)) => tls,
            _ => TlsOptions::default(),
        };
        tls.ca_file_path = Some(ca.clone());
        settings.tls = Some(Tls::Enabled(tls));
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
