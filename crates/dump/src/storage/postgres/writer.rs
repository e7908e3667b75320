//! Writing a table.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::SinkExt;
use parking_lot::RwLock;
use tokio_postgres::CopyInSink;

use super::catalog::{self, OBJECT_ID_COMMENT, type_of};
use super::connection::{Connection, failure};
use super::{Place, encode, identifier, identifiers, literal};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::port::{ChunkName, ChunkWriter, Target, WriteMode, Writer, Written};
use crate::row::{Batch, Names, RawFormat, RowBatch};
use crate::value::{Column, Kind, Schema};

const LEDGER: &str = "flare_dump_ledger";
/// The row of the ledger that says that a job has begun, and has not finished. Its number is 1 if the job made the
/// table.
const BEGUN: &str = "begun";

/// Begins a transaction that waits for the disk. Those of chunks do not: [`PostgresWriter::settle`] does it for many.
const DURABLY: &str = "BEGIN; SET LOCAL synchronous_commit TO on";

/// Writes a table.
pub struct PostgresWriter {
    place: Place,
    prepared: RwLock<Option<Arc<Prepared>>>,
}

/// What is known once the target has been prepared.
struct Prepared {
    job: String,
    mode: WriteMode,
    /// Where rows are written: the table itself, or the one that takes its place.
    table: String,
    ledger: String,
    columns: Vec<Column>,
    names: Names,
    key: Vec<Arc<str>>,
    /// Whether the key is still to be made of columns.
    makes_key: bool,
    is_finished: bool,
}

impl PostgresWriter {
    pub fn new(location: &Location) -> Result<Self> {
        let mut place = Place::read(location)?;
        place.pool.settings.push_str("; SET synchronous_commit TO off");
        Ok(Self { place, prepared: RwLock::default() })
    }

    fn prepared(&self) -> Result<Arc<Prepared>> {
        self.prepared.read().clone().ok_or_else(|| Error::failed("the target has not been prepared"))
    }

    /// Whether the ledger has something of the job, and if so, whether the job made the table.
    async fn begun(&self, job: &str) -> Result<Option<bool>> {
        let (ledger, job) = (self.place.sibling(LEDGER), literal(job));
        let there = self.place.pool.rows(&format!("SELECT to_regclass({})::text", literal(&ledger))).await?;
        if there.first().and_then(|row| row.get(0)).is_none() {
            return Ok(None);
        }
        let begun = literal(BEGUN);
        let sql = format!("SELECT rows FROM {ledger} WHERE job = {job} AND chunk = {begun}");
        let rows = self.place.pool.rows(&sql).await?;
        Ok(rows.first().map(|row| row.get(0) == Some("1")))
    }

    async fn has_rows(&self) -> Result<bool> {
        Ok(!self.place.pool.rows(&format!("SELECT 1 FROM {} LIMIT 1", self.place.name())).await?.is_empty())
    }
}

#[async_trait]
impl Writer for PostgresWriter {
    fn takes_documents(&self) -> bool {
        false
    }

    async fn describe(&self) -> Result<Option<Schema>> {
        let table = catalog::table(&self.place).await?;
        Ok(table.map(|mut table| {
            table.schema.columns.retain(|column| !table.generated.contains(&column.name));
            table.schema
        }))
    }

    async fn prepare(&self, target: &Target) -> Result<()> {
        let existing = self.describe().await?;
        let begun = self.begun(&target.job).await?;
        let is_begun = begun.is_some();
        let is_replaced = target.mode == WriteMode::Replace;
        if target.mode == WriteMode::Create
            && !is_begun
            && !target.is_resumed
            && existing.is_some()
            && self.has_rows().await?
        {
            let name = self.place.name();
            return Err(Error::invalid(format!("{name} has rows: choose the mode append, upsert or replace")));
        }
        let staging = format!("{}_{}", truncated(&self.place.table), target.job);
        let is_created = begun.unwrap_or(is_replaced || existing.is_none());
        let key = match &existing {
            Some(existing) if !is_replaced && !existing.key.is_empty() => existing.key.clone(),
            _ => target.schema.key.clone(),
        };
        if target.mode == WriteMode::Upsert && key.is_empty() {
            return Err(Error::invalid(format!("{} has no key to upsert by: map one, or append", self.place.name())));
        }
        // An upsert needs the key at once; a plain load is faster without it.
        let prepared = Prepared {
            job: target.job.clone(),
            mode: target.mode,
            table: if is_replaced { self.place.sibling(&staging) } else { self.place.name() },
            ledger: self.place.sibling(LEDGER),
            columns: target.schema.columns.clone(),
            names: target.schema.names(),
            makes_key: is_created && target.mode != WriteMode::Upsert,
            key,
            is_finished: target.is_resumed && !is_begun,
        };
        if !prepared.is_finished && !is_begun {
            let connection = self.place.pool.take().await?;
            connection.run(&prepared.begin(is_created)).await?;
            self.place.pool.give_back(connection);
        }
        *self.prepared.write() = Some(Arc::new(prepared));
        Ok(())
    }

    fn takes_raw(&self, format: &RawFormat) -> bool {
        format.name == RawFormat::POSTGRES_COPY
    }

    async fn done(&self, chunk: &ChunkName) -> Result<Option<Written>> {
        let prepared = self.prepared()?;
        if prepared.is_finished {
            return Ok(Some(Written::default()));
        }
        let connection = self.place.pool.take().await?;
        let written = prepared.ledger_row(&connection, chunk).await?;
        self.place.pool.give_back(connection);
        Ok(written)
    }

    fn settles(&self) -> bool {
        true
    }

    async fn settle(&self, chunks: &[String]) -> Result<Vec<bool>> {
        let prepared = self.prepared()?;
        if prepared.is_finished {
            return Ok(vec![true; chunks.len()]);
        }
        let connection = self.place.pool.take().await?;
        let rows = connection.rows(&prepared.settle(chunks)).await?;
        self.place.pool.give_back(connection);
        let found: HashSet<&str> = rows.iter().filter_map(|row| row.get(0)).collect();
        if !found.contains(BEGUN) {
            return Err(Error::failed(format!("the ledger {} has lost the job {}", prepared.ledger, prepared.job)));
        }
        Ok(chunks.iter().map(|chunk| found.contains(chunk.as_str())).collect())
    }

    async fn open(&self, chunk: &ChunkName) -> Result<Box<dyn ChunkWriter>> {
        let prepared = self.prepared()?;
        let connection = self.place.pool.take().await?;
        let mut table = prepared.table.clone();
        let is_begun = prepared.mode == WriteMode::Upsert;
        if is_begun {
            connection.run("BEGIN").await?;
            table = identifier(&format!("flare_dump_{}", prepared.job));
            connection
                .run(&format!(
                    "CREATE TEMP TABLE IF NOT EXISTS {table} ON COMMIT DELETE ROWS AS SELECT {} FROM {} WITH NO DATA",
                    identifiers(prepared.names.iter()),
                    prepared.table
                ))
                .await?;
        }
        let statement = format!("COPY {table} ({}) FROM STDIN", identifiers(prepared.names.iter()));
        let place = self.place.clone();
        let chunk = chunk.to_owned();
        let (copying, rows) = (None, 0);
        Ok(Box::new(TableChunk { place, prepared, connection, statement, chunk, table, copying, rows, is_begun }))
    }

    async fn finish(&self) -> Result<()> {
        let prepared = self.prepared()?;
        if prepared.is_finished {
            return Ok(());
        }
        let connection = self.place.pool.take().await?;
        connection.run(&prepared.end(&self.place)).await?;
        self.place.pool.give_back(connection);
        Ok(())
    }
}

/// Names have at most 63 bytes.
fn truncated(name: &str) -> &str {
    let end = name.char_indices().map(|(at, symbol)| at + symbol.len_utf8()).take_while(|end| *end <= 40).last();
    &name[..end.unwrap_or(0)]
}

impl Prepared {
    /// Makes ledger and table, in one transaction.
    fn begin(&self, is_created: bool) -> String {
        let mut sql = format!(
            "{DURABLY}; SET LOCAL client_min_messages TO warning; CREATE TABLE IF NOT EXISTS {} (job text, chunk text, \
             rows bigint NOT NULL, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (job, chunk)); ",
            self.ledger
        );
        if is_created {
            let columns = self.columns.iter().map(|column| {
                let null = if column.nullable { "" } else { " NOT NULL" };
                format!("{} {}{null}", identifier(&column.name), type_of(column))
            });
            let mut parts: Vec<String> = columns.collect();
            if self.mode == WriteMode::Upsert {
                parts.push(format!("PRIMARY KEY ({})", identifiers(self.key.iter())));
            }
            sql.push_str(&format!("CREATE TABLE {} ({}); ", self.table, parts.join(", ")));
            for column in self.columns.iter().filter(|column| column.kind == Kind::ObjectId) {
                let (name, comment) = (identifier(&column.name), literal(OBJECT_ID_COMMENT));
                sql.push_str(&format!("COMMENT ON COLUMN {}.{name} IS {comment}; ", self.table));
            }
        }
        let (job, begun) = (literal(&self.job), literal(BEGUN));
        let made = u8::from(is_created);
        sql.push_str(&format!(
            "INSERT INTO {} (job, chunk, rows) VALUES ({job}, {begun}, {made}); COMMIT",
            self.ledger
        ));
        sql
    }

    /// Makes the key, puts the table in its place, and removes the ledger, in one transaction.
    fn end(&self, place: &Place) -> String {
        let mut sql = format!("{DURABLY}; SET LOCAL client_min_messages TO warning; ");
        if self.makes_key && !self.key.is_empty() {
            sql.push_str(&format!(
                "DO $flare$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_constraint WHERE contype = 'p' \
                 AND conrelid = {}::regclass) \
                 THEN ALTER TABLE {} ADD PRIMARY KEY ({}); END IF; END $flare$; ",
                literal(&self.table),
                self.table,
                identifiers(self.key.iter())
            ));
        }
        if self.mode == WriteMode::Replace {
            let (old, table) = (place.name(), identifier(&place.table));
            sql.push_str(&format!("DROP TABLE IF EXISTS {old}; ALTER TABLE {} RENAME TO {table}; ", self.table));
        }
        let (ledger, job) = (&self.ledger, literal(&self.job));
        sql.push_str(&format!(
            "LOCK TABLE {ledger} IN ACCESS EXCLUSIVE MODE; DELETE FROM {ledger} WHERE job = {job}; \
             DO $flare$ BEGIN IF NOT EXISTS (SELECT 1 FROM {ledger}) THEN DROP TABLE {ledger}; END IF; \
             END $flare$; COMMIT"
        ));
        sql
    }

    /// Waits for the disk once, and tells which chunks it has. A commit that was seen lies before this one in the log of
    /// the server, which is written in order; a transaction without a change would not wait.
    fn settle(&self, chunks: &[String]) -> String {
        let (ledger, job, begun) = (&self.ledger, literal(&self.job), literal(BEGUN));
        let chunks: Vec<String> = chunks.iter().map(|chunk| literal(chunk)).collect();
        format!(
            "{DURABLY}; UPDATE {ledger} SET at = now() WHERE job = {job} AND chunk = {begun} RETURNING chunk; \
             SELECT chunk FROM {ledger} WHERE job = {job} AND chunk IN ({}); COMMIT",
            chunks.join(", ")
        )
    }

    async fn ledger_row(&self, connection: &Connection, chunk: &str) -> Result<Option<Written>> {
        let (ledger, job, chunk) = (&self.ledger, literal(&self.job), literal(chunk));
        let rows = connection.rows(&format!("SELECT rows FROM {ledger} WHERE job = {job} AND chunk = {chunk}")).await?;
        let rows = rows.first().and_then(|row| row.get(0)).and_then(|text| text.parse().ok());
        Ok(rows.map(|rows| Written { rows }))
    }

    /// Moves the rows of a chunk over those with the same key; of equal keys the last row counts.
    fn upsert(&self, from: &str) -> String {
        let (names, key) = (identifiers(self.names.iter()), identifiers(self.key.iter()));
        let others = self.names.iter().filter(|name| !self.key.contains(name));
        let set: Vec<String> = others.map(|name| format!("{0} = excluded.{0}", identifier(name))).collect();
        let action = if set.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {}", set.join(", ")) };
        format!(
            "INSERT INTO {} ({names}) SELECT DISTINCT ON ({key}) {names} FROM {from} ORDER BY {key}, ctid DESC \
             ON CONFLICT ({key}) DO {action}",
            self.table
        )
    }
}

/// A `COPY` from us under way.
type Copying = Pin<Box<CopyInSink<Bytes>>>;

/// A chunk: one transaction on one connection.
struct TableChunk {
    place: Place,
    prepared: Arc<Prepared>,
    connection: Connection,
    statement: String,
    chunk: String,
    table: String,
    copying: Option<Copying>,
    rows: u64,
    /// Whether the transaction has been begun; it is with the first rows.
    is_begun: bool,
}

impl TableChunk {
    async fn send(&mut self, data: Bytes) -> Result<()> {
        if self.copying.is_none() {
            let statement = self.connection.prepared(&self.statement).await?;
            // The server answers one after the other: together they are one wait.
            let begin = async { if self.is_begun { Ok(()) } else { self.connection.run("BEGIN").await } };
            let (begun, copying) = tokio::join!(begin, self.connection.client.copy_in(&statement));
            begun?;
            self.is_begun = true;
            self.copying = Some(Box::pin(copying.map_err(|error| failure("writing failed", error))?));
        }
        let sink = self.copying.as_mut().expect("it was opened just now");
        if sink.send(data).await.is_err() {
            // The server has stopped listening; why is in its answer.
            end_copy(self.copying.take()).await?;
            return Err(Error::unavailable("the connection is closed"));
        }
        Ok(())
    }

    async fn copy(&mut self, batch: &RowBatch) -> Result<()> {
        let mut data = Vec::with_capacity(batch.bytes);
        encode::rows(batch, &self.prepared.names, &mut data);
        self.send(Bytes::from(data)).await
    }
}

#[async_trait]
impl ChunkWriter for TableChunk {
    async fn write(&mut self, batch: Batch) -> Result<()> {
        let rows = batch.rows();
        match batch {
            Batch::Raw(raw) => self.send(raw.data).await?,
            Batch::Rows(batch) => self.copy(&batch).await?,
        }
        self.rows += rows;
        Ok(())
    }

    async fn attempt(&mut self, batch: RowBatch) -> Result<()> {
        end_copy(self.copying.take()).await?;
        if !self.is_begun {
            self.connection.run("BEGIN").await?;
            self.is_begun = true;
        }
        self.connection.run("SAVEPOINT attempt").await?;
        let copied = match self.copy(&batch).await {
            Ok(()) => end_copy(self.copying.take()).await,
            Err(error) => Err(error),
        };
        let undo = if copied.is_ok() { "RELEASE attempt" } else { "ROLLBACK TO attempt; RELEASE attempt" };
        self.connection.run(undo).await?;
        copied?;
        self.rows += batch.rows.len() as u64;
        Ok(())
    }

    async fn commit(mut self: Box<Self>) -> Result<Written> {
        let (copying, prepared, connection) = (self.copying.take(), &self.prepared, &self.connection);
        let (ledger, job, chunk, rows) = (&prepared.ledger, literal(&prepared.job), literal(&self.chunk), self.rows);
        let mut sql = if self.is_begun { String::new() } else { "BEGIN; ".to_owned() };
        if prepared.mode == WriteMode::Upsert {
            sql.push_str(&format!("{}; ", prepared.upsert(&self.table)));
        }
        sql.push_str(&format!("INSERT INTO {ledger} (job, chunk, rows) VALUES ({job}, {chunk}, {rows}); COMMIT"));
        // One wait for all of it: if the server refuses the rows, the transaction has failed and the rest does nothing.
        let (copied, noted) = tokio::join!(end_copy(copying), connection.run(&sql));
        copied?;
        let mut written = Written { rows };
        if let Err(error) = noted {
            connection.run("ROLLBACK").await?;
            // If the chunk is in the ledger already, all is well: nothing was added.
            written = prepared.ledger_row(connection, &self.chunk).await?.ok_or(error)?;
        }
        let Self { place, connection, .. } = *self;
        place.pool.give_back(connection);
        Ok(written)
    }
}

/// Ends a `COPY`, and hears whether all of it was good.
async fn end_copy(copying: Option<Copying>) -> Result<()> {
    match copying {
        Some(mut copying) => match copying.as_mut().finish().await {
            Ok(_) => Ok(()),
            Err(error) => Err(failure("writing failed", error)),
        },
        None => Ok(()),
    }
}
