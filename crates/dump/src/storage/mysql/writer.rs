//! Writing tables. The names of what is not finished have the job in them: the ledger, the new table, and the old one.

use std::sync::Arc;

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Transaction, TxOpts};
use parking_lot::RwLock;

use super::connection::{failure, is_duplicate};
use super::{Place, catalog, encode, identifier, identifiers};
use crate::error::{Error, ErrorKind, Result};
use crate::location::Location;
use crate::port::{ChunkName, ChunkWriter, Target, WriteMode, Writer, Written};
use crate::row::{Batch, Names, RawFormat, Row, RowBatch};
use crate::value::{Kind, Schema};

/// A statement has this many bytes, about.
const STATEMENT_BYTES: usize = 1 << 20;
/// What remains of the largest packet for the rest of a statement.
const STATEMENT_REST_BYTES: usize = 4096;
/// Warnings that are not about values: old syntax, and what statements mean to the log of the server.
const HARMLESS: &[&str] = &["1287", "1592"];

/// Writes a table.
pub struct MySqlWriter {
    place: Place,
    prepared: RwLock<Option<Arc<Prepared>>>,
}

/// What is known once the target has been prepared.
struct Prepared {
    place: Place,
    job: String,
    mode: WriteMode,
    /// `INSERT INTO … VALUES `.
    insert: String,
    /// What follows the rows.
    conflict: String,
    columns: Vec<(Arc<str>, Kind)>,
    names: Names,
    ledger: String,
    /// The largest statement that the server takes.
    packet_bytes: usize,
}

impl MySqlWriter {
    pub fn new(location: &Location) -> Result<Self> {
        Ok(Self { place: Place::read(location)?, prepared: RwLock::default() })
    }

    fn prepared(&self) -> Result<Arc<Prepared>> {
        self.prepared.read().clone().ok_or_else(|| Error::failed("the target has not been prepared"))
    }

    async fn exists(&self, table: &str) -> Result<bool> {
        Ok(catalog::table(&Place { table: table.to_owned(), ..self.place.clone() }).await?.is_some())
    }

    /// Makes the ledger and the table.
    async fn begin(&self, target: &Target) -> Result<()> {
        let (server, name) = (&self.place.server, self.place.name());
        let ledger = ledger_name(&target.job);
        let existing = catalog::table(&self.place).await?;
        if let Some(existing) = &existing {
            self.check(existing, target).await?;
            if target.mode == WriteMode::Create && !self.exists(&ledger).await? {
                let first = server.texts(&format!("SELECT 1 FROM {name} LIMIT 1")).await?;
                if !first.is_empty() {
                    return Err(Error::invalid(format!(
                        "the table {name} has rows: choose the mode append, upsert or replace"
                    )));
                }
            }
        }
        let ledger = self.place.sibling(&ledger);
        server
            .run(&format!(
                "CREATE TABLE IF NOT EXISTS {ledger} \
                 (chunk VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY, row_count BIGINT NOT NULL) \
                 ENGINE=InnoDB"
            ))
            .await?;
        if target.mode == WriteMode::Replace {
            let new = self.place.sibling(&new_name(&target.job));
            server.run(&format!("DROP TABLE IF EXISTS {new}")).await?;
            return server.run(&catalog::create_table(&self.place, &new, &target.schema).await?).await;
        }
        if existing.is_none() {
            server.run(&catalog::create_table(&self.place, &name, &target.schema).await?).await?;
        }
        Ok(())
    }

    /// Whether rows can go to the table that is there.
    async fn check(&self, existing: &catalog::Table, target: &Target) -> Result<()> {
        let (name, mode) = (self.place.name(), target.mode);
        if existing.is_view {
            return Err(Error::invalid(format!("{name} is a view: name a table")));
        }
        if mode != WriteMode::Replace && !existing.engine.eq_ignore_ascii_case("InnoDB") {
            return Err(Error::invalid(format!(
                "the table {name} is kept by {}, which has no transactions: alter it to InnoDB, or choose replace",
                existing.engine
            )));
        }
        if mode == WriteMode::Upsert && existing.index.is_none() {
            return Err(Error::invalid(format!("the table {name} has no unique key: rows cannot be upserted")));
        }
        Ok(())
    }

    async fn packet_bytes(&self) -> Result<usize> {
        let rows = self.place.server.texts("SELECT @@max_allowed_packet").await?;
        Ok(rows.first().and_then(|row| row.first()?.parse().ok()).unwrap_or(STATEMENT_BYTES))
    }
}

fn ledger_name(job: &str) -> String {
    format!("flare_dump_{job}")
}

/// The table that takes the place of the target.
fn new_name(job: &str) -> String {
    format!("flare_dump_{job}_new")
}

/// The table whose place was taken.
fn old_name(job: &str) -> String {
    format!("flare_dump_{job}_old")
}

#[async_trait]
impl Writer for MySqlWriter {
    fn takes_documents(&self) -> bool {
        false
    }

    async fn describe(&self) -> Result<Option<Schema>> {
        Ok(catalog::table(&self.place).await?.map(|table| table.schema))
    }

    async fn prepare(&self, target: &Target) -> Result<()> {
        if target.mode == WriteMode::Upsert && target.schema.key.is_empty() {
            return Err(Error::invalid("rows without a key cannot be upserted: name its columns with key"));
        }
        if !target.is_resumed {
            self.begin(target).await?;
        }
        let mut table = self.place.table.clone();
        if target.mode == WriteMode::Replace && self.exists(&new_name(&target.job)).await? {
            table = new_name(&target.job);
        }
        let place = Place { table, ..self.place.clone() };
        // Whoever took away the table of a job that is resumed is told when a row is written.
        let known = catalog::table(&place).await?;
        let mut columns = Vec::new();
        for column in &target.schema.columns {
            let kind = match &known {
                Some(known) if known.generated.contains(&column.name) => continue,
                Some(known) => known.schema.column(&column.name).map(|column| column.kind),
                None => Some(column.kind),
            };
            let unknown = || Error::invalid(format!("the table {} has no column {:?}", place.name(), column.name));
            columns.push((Arc::clone(&column.name), kind.ok_or_else(unknown)?));
        }
        let names = columns.iter().map(|(name, _)| name);
        let insert = format!("INSERT INTO {} ({}) VALUES ", place.name(), identifiers(names.clone()));
        let updates: Vec<String> = names.map(|name| format!("{0} = VALUES({0})", identifier(name))).collect();
        let conflict = match target.mode {
            WriteMode::Upsert => format!(" ON DUPLICATE KEY UPDATE {}", updates.join(", ")),
            _ => String::new(),
        };
        *self.prepared.write() = Some(Arc::new(Prepared {
            place: self.place.clone(),
            job: target.job.clone(),
            mode: target.mode,
            insert,
            conflict,
            names: columns.iter().map(|(name, _)| Arc::clone(name)).collect(),
            columns,
            ledger: self.place.sibling(&ledger_name(&target.job)),
            packet_bytes: self.packet_bytes().await?,
        }));
        Ok(())
    }

    fn takes_raw(&self, _format: &RawFormat) -> bool {
        false
    }

    async fn done(&self, chunk: &ChunkName) -> Result<Option<Written>> {
        let prepared = self.prepared()?;
        let sql = format!("SELECT row_count FROM {} WHERE chunk = {}", prepared.ledger, encode::literal(chunk));
        let rows = self.place.server.texts(&sql).await?;
        Ok(rows.first().and_then(|row| row.first()?.parse().ok()).map(|rows| Written { rows }))
    }

    async fn open(&self, chunk: &ChunkName) -> Result<Box<dyn ChunkWriter>> {
        let prepared = self.prepared()?;
        let begun = self.place.server.pool().start_transaction(TxOpts::default()).await;
        let mut transaction = begun.map_err(|error| failure("a transaction cannot be begun", error))?;
        // First of all, so that whoever does the chunk a second time waits here for the first to end.
        let entry = format!("INSERT INTO {} VALUES ({}, 0)", prepared.ledger, encode::literal(chunk));
        let transaction = match transaction.query_drop(entry).await {
            Ok(()) => Some(transaction),
            Err(error) if is_duplicate(&error) => None,
            Err(error) => return Err(failure("the ledger cannot be written", error)),
        };
        let done = if transaction.is_none() { self.done(chunk).await? } else { None };
        Ok(Box::new(MySqlChunk { prepared, chunk: chunk.to_owned(), transaction, done, rows: 0 }))
    }

    async fn finish(&self) -> Result<()> {
        let prepared = self.prepared()?;
        let Prepared { place, job, mode, ledger, .. } = &*prepared;
        if *mode == WriteMode::Replace {
            let (name, new, old) = (place.name(), place.sibling(&new_name(job)), place.sibling(&old_name(job)));
            if self.exists(&new_name(job)).await? {
                let swap = if self.exists(&place.table).await? {
                    format!("RENAME TABLE {name} TO {old}, {new} TO {name}")
                } else {
                    format!("RENAME TABLE {new} TO {name}")
                };
                place.server.run(&swap).await?;
            }
            place.server.run(&format!("DROP TABLE IF EXISTS {old}")).await?;
        }
        place.server.run(&format!("DROP TABLE IF EXISTS {ledger}")).await
    }
}

/// A chunk on its way, in its transaction; without one, it was done before.
struct MySqlChunk {
    prepared: Arc<Prepared>,
    chunk: String,
    transaction: Option<Transaction<'static>>,
    done: Option<Written>,
    rows: u64,
}

impl MySqlChunk {
    /// Adds rows, in as many statements as it takes.
    async fn insert(&mut self, batch: &RowBatch) -> Result<()> {
        let prepared = Arc::clone(&self.prepared);
        let mut statement = Vec::with_capacity(STATEMENT_BYTES + STATEMENT_BYTES / 4);
        let mut row_bytes = Vec::new();
        for row in &batch.rows {
            row_bytes.clear();
            encode_row(&prepared, row, &batch.names, &mut row_bytes).map_err(Error::rejected)?;
            let most = prepared.packet_bytes.saturating_sub(STATEMENT_REST_BYTES);
            let rest = prepared.insert.len() + prepared.conflict.len();
            if row_bytes.len() + rest > most {
                return Err(Error::rejected(format!(
                    "the row takes {} bytes: the server takes {most} (max_allowed_packet)",
                    row_bytes.len()
                )));
            }
            if statement.len() + row_bytes.len() + prepared.conflict.len() > most.min(STATEMENT_BYTES)
                && !statement.is_empty()
            {
                self.run(&mut statement).await?;
            }
            statement.extend_from_slice(if statement.is_empty() { prepared.insert.as_bytes() } else { b"," });
            statement.extend_from_slice(&row_bytes);
        }
        if statement.is_empty() { Ok(()) } else { self.run(&mut statement).await }
    }

    async fn run(&mut self, statement: &mut Vec<u8>) -> Result<()> {
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        statement.extend_from_slice(self.prepared.conflict.as_bytes());
        let failed = |error| failure("rows cannot be written", error);
        let warnings = transaction.query_iter(&statement[..]).await.map_err(failed)?.warnings();
        statement.clear();
        if warnings == 0 {
            return Ok(());
        }
        // Even a strict server only remarks upon digits and times of day that it leaves out.
        let remarks: Vec<(String, String, String)> = transaction.query("SHOW WARNINGS").await.map_err(failed)?;
        let lost = remarks.into_iter().find(|(_, code, _)| !HARMLESS.contains(&code.as_str()));
        lost.map_or(Ok(()), |(_, code, message)| Err(Error::rejected(format!("{message} (warning {code})"))))
    }

    async fn command(&mut self, sql: &str) -> Result<()> {
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        transaction.query_drop(sql).await.map_err(|error| failure("a statement failed", error))
    }
}

fn encode_row(prepared: &Prepared, row: &Row, names: &Names, out: &mut Vec<u8>) -> Result<(), String> {
    out.push(b'(');
    for (index, (name, kind)) in prepared.columns.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let value = match row {
            Row::Cells(cells) if *names == prepared.names => &cells[index],
            _ => row.get(names, name),
        };
        encode::value(value, *kind, out).map_err(|reason| format!("column {name:?}: {reason}"))?;
    }
    out.push(b')');
    Ok(())
}

#[async_trait]
impl ChunkWriter for MySqlChunk {
    async fn write(&mut self, batch: Batch) -> Result<()> {
        let Batch::Rows(batch) = batch else { return Err(Error::failed("raw rows cannot be written")) };
        self.insert(&batch).await?;
        self.rows += batch.rows.len() as u64;
        Ok(())
    }

    async fn attempt(&mut self, batch: RowBatch) -> Result<()> {
        self.command("SAVEPOINT attempt").await?;
        match self.insert(&batch).await {
            Ok(()) => self.rows += batch.rows.len() as u64,
            Err(error) => {
                if error.kind() == ErrorKind::Rejected {
                    self.command("ROLLBACK TO SAVEPOINT attempt").await?;
                }
                return Err(error);
            }
        }
        self.command("RELEASE SAVEPOINT attempt").await
    }

    async fn commit(mut self: Box<Self>) -> Result<Written> {
        if self.transaction.is_none() {
            return self.done.ok_or_else(|| Error::unavailable("another attempt at the chunk has not ended"));
        }
        let (ledger, chunk) = (&self.prepared.ledger, encode::literal(&self.chunk));
        let entry = format!("UPDATE {ledger} SET row_count = {} WHERE chunk = {chunk}", self.rows);
        self.command(&entry).await?;
        if let Some(transaction) = self.transaction.take() {
            transaction.commit().await.map_err(|error| failure("the chunk cannot be committed", error))?;
        }
        Ok(Written { rows: self.rows })
    }
}

impl std::fmt::Debug for MySqlWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.place.name())
    }
}
