//! Writing a table.
//!
//! The file has one writer at a time. A worker takes the lock with its first row and keeps it to the commit, so chunks
//! follow one another while the next are read and mapped.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::RwLock;
use rusqlite::{Connection, params, params_from_iter};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::catalog::{self, type_of};
use super::{DIALECT, Place, blocking, failure, identifier, identifiers, values};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::port::{ChunkName, ChunkWriter, Target, WriteMode, Writer, Written};
use crate::row::{Batch, Names, RawFormat, RowBatch};
use crate::value::{Column, Kind, Schema};

const LEDGER: &str = "flare_dump_ledger";
/// The row of the ledger that says that a job has begun, and has not finished.
const BEGUN: &str = "begun";

/// Writes a table.
pub struct SqliteWriter {
    place: Place,
    prepared: RwLock<Option<Arc<Prepared>>>,
    /// The one connection that writes, once it is open.
    connection: Arc<Mutex<Option<Connection>>>,
}

struct Prepared {
    job: String,
    mode: WriteMode,
    table: String,
    columns: Vec<Column>,
    names: Names,
    key: Vec<Arc<str>>,
    is_finished: bool,
}

impl SqliteWriter {
    pub fn new(location: &Location) -> Result<Self> {
        let connection = Arc::default();
        Ok(Self { place: Place::read(location)?, prepared: RwLock::default(), connection })
    }

    fn prepared(&self) -> Result<Arc<Prepared>> {
        self.prepared.read().clone().ok_or_else(|| Error::failed("the target has not been prepared"))
    }

    /// Runs statements on the connection that writes.
    async fn with<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&Place, &Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (mut guard, place) = (Arc::clone(&self.connection).lock_owned().await, self.place.clone());
        blocking(move || {
            let connection = opened(&mut guard, &place)?;
            work(&place, connection).map_err(|error| failure(what, error))
        })
        .await
    }
}

/// The connection, opened if it is not.
fn opened<'a>(connection: &'a mut Option<Connection>, place: &Place) -> Result<&'a mut Connection> {
    if connection.is_none() {
        let opened = place.open_to_write()?;
        let set_up =
            opened.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -16384");
        set_up.map_err(|error| failure("cannot set the file up", error))?;
        *connection = Some(opened);
    }
    Ok(connection.as_mut().expect("it was opened just now"))
}

#[async_trait]
impl Writer for SqliteWriter {
    fn takes_documents(&self) -> bool {
        false
    }

    fn takes_as_is(&self, column: &Column) -> bool {
        // SQLite has no types for days and times: texts stay as they were written.
        let is_moment = matches!(column.kind, Kind::Date | Kind::Time | Kind::DateTime | Kind::Instant);
        column.native.is_none() || (is_moment && !column.native_of(DIALECT).is_some_and(|name| name.ends_with("_TEXT")))
    }

    fn waits_in_line(&self) -> bool {
        true
    }

    async fn describe(&self) -> Result<Option<Schema>> {
        let place = self.place.clone();
        blocking(move || {
            if !place.path.exists() {
                return Ok(None);
            }
            Ok(catalog::table(&place, &place.open_to_read()?)?.map(|table| table.schema))
        })
        .await
    }

    async fn prepare(&self, target: &Target) -> Result<()> {
        let existing = self.describe().await?;
        let job = target.job.clone();
        let is_begun = self.with("cannot read the ledger", move |_, connection| is_begun(connection, &job)).await?;
        let is_replaced = target.mode == WriteMode::Replace;
        let is_new = !is_begun && !target.is_resumed;
        if target.mode == WriteMode::Create && is_new && existing.is_some() {
            let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {} LIMIT 1)", identifier(&self.place.table));
            let rows: i64 =
                self.with("cannot read", move |_, connection| connection.query_row(&sql, [], |row| row.get(0))).await?;
            if rows > 0 {
                let name = &self.place.table;
                return Err(Error::invalid(format!("{name} has rows: choose the mode append, upsert or replace")));
            }
        }
        let key = match &existing {
            Some(existing) if !is_replaced && !existing.key.is_empty() => existing.key.clone(),
            _ => target.schema.key.clone(),
        };
        if target.mode == WriteMode::Upsert && key.is_empty() {
            return Err(Error::invalid(format!("{} has no key to upsert by: map one, or append", self.place.table)));
        }
        let table = if is_replaced { format!("{}_{}", self.place.table, target.job) } else { self.place.table.clone() };
        let prepared = Arc::new(Prepared {
            job: target.job.clone(),
            mode: target.mode,
            table,
            columns: target.schema.columns.clone(),
            names: target.schema.names(),
            key,
            is_finished: target.is_resumed && !is_begun,
        });
        if is_new {
            let sql = prepared.begin(is_replaced || existing.is_none());
            self.with("cannot make the table", move |_, connection| in_transaction(connection, &sql)).await?;
        }
        *self.prepared.write() = Some(prepared);
        Ok(())
    }

    fn takes_raw(&self, _: &RawFormat) -> bool {
        false
    }

    async fn done(&self, chunk: &ChunkName) -> Result<Option<Written>> {
        let (prepared, chunk) = (self.prepared()?, chunk.to_owned());
        if prepared.is_finished {
            return Ok(Some(Written::default()));
        }
        self.with("cannot read the ledger", move |_, connection| prepared.ledger_row(connection, &chunk)).await
    }

    async fn open(&self, chunk: &ChunkName) -> Result<Box<dyn ChunkWriter>> {
        let (prepared, place, chunk) = (self.prepared()?, self.place.clone(), chunk.to_owned());
        let guard = Arc::clone(&self.connection).lock_owned().await;
        let open = Open { guard, prepared, place, chunk, rows: 0, is_begun: false };
        let open = blocking(move || open.begin()).await?;
        Ok(Box::new(TableChunk(Some(open))))
    }

    async fn finish(&self) -> Result<()> {
        let prepared = self.prepared()?;
        if prepared.is_finished {
            return Ok(());
        }
        self.with("cannot finish the table", move |place, connection| {
            in_transaction(connection, &prepared.end(place))?;
            let left: i64 = connection.query_row(&format!("SELECT count(*) FROM {LEDGER}"), [], |row| row.get(0))?;
            if left == 0 {
                connection.execute_batch(&format!("DROP TABLE {LEDGER}"))?;
            }
            Ok(())
        })
        .await
    }
}

fn is_begun(connection: &Connection, job: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = ?1 AND type = 'table'";
    if connection.query_row(sql, [LEDGER], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(false);
    }
    let sql = format!("SELECT count(*) FROM {LEDGER} WHERE job = ?1");
    Ok(connection.query_row(&sql, [job], |row| row.get::<_, i64>(0))? > 0)
}

fn in_transaction(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    match connection.execute_batch(sql) {
        Ok(()) => connection.execute_batch("COMMIT"),
        Err(error) => {
            connection.execute_batch("ROLLBACK")?;
            Err(error)
        }
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl Prepared {
    /// Makes ledger and table.
    fn begin(&self, is_created: bool) -> String {
        let mut sql = format!(
            "CREATE TABLE IF NOT EXISTS {LEDGER} (job TEXT, chunk TEXT, rows INTEGER NOT NULL, \
             PRIMARY KEY (job, chunk)); "
        );
        if is_created {
            let columns = self.columns.iter().map(|column| {
                let null = if column.nullable { "" } else { " NOT NULL" };
                format!("{} {}{null}", identifier(&column.name), type_of(column))
            });
            let mut parts: Vec<String> = columns.collect();
            if !self.key.is_empty() {
                parts.push(format!("PRIMARY KEY ({})", identifiers(self.key.iter())));
            }
            sql.push_str(&format!("CREATE TABLE {} ({}); ", identifier(&self.table), parts.join(", ")));
        }
        sql.push_str(&format!("INSERT INTO {LEDGER} VALUES ({}, {}, 0)", quoted(&self.job), quoted(BEGUN)));
        sql
    }

    /// Puts the table in its place, and removes the job from the ledger.
    fn end(&self, place: &Place) -> String {
        let mut sql = String::new();
        if self.mode == WriteMode::Replace {
            let (old, new) = (identifier(&place.table), identifier(&self.table));
            sql.push_str(&format!("DROP TABLE IF EXISTS {old}; ALTER TABLE {new} RENAME TO {old}; "));
        }
        sql.push_str(&format!("DELETE FROM {LEDGER} WHERE job = {}", quoted(&self.job)));
        sql
    }

    fn ledger_row(&self, connection: &Connection, chunk: &str) -> rusqlite::Result<Option<Written>> {
        let mut found =
            connection.prepare_cached(&format!("SELECT rows FROM {LEDGER} WHERE job = ?1 AND chunk = ?2"))?;
        let mut rows = found.query_map([&self.job, chunk], |row| row.get::<_, i64>(0))?;
        Ok(rows.next().transpose()?.map(|rows| Written { rows: rows.max(0) as u64 }))
    }

    fn insert(&self) -> String {
        let (table, names) = (identifier(&self.table), identifiers(self.names.iter()));
        let marks = vec!["?"; self.names.len()].join(", ");
        let mut sql = format!("INSERT INTO {table} ({names}) VALUES ({marks})");
        if self.mode == WriteMode::Upsert {
            let others = self.names.iter().filter(|name| !self.key.contains(name));
            let set: Vec<String> = others.map(|name| format!("{0} = excluded.{0}", identifier(name))).collect();
            let action = if set.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {}", set.join(", ")) };
            sql.push_str(&format!(" ON CONFLICT ({}) DO {action}", identifiers(self.key.iter())));
        }
        sql
    }
}

/// A chunk: one transaction, which nobody else can have meanwhile.
struct TableChunk(Option<Open>);

struct Open {
    guard: OwnedMutexGuard<Option<Connection>>,
    prepared: Arc<Prepared>,
    place: Place,
    chunk: String,
    rows: u64,
    is_begun: bool,
}

impl Open {
    fn begin(mut self) -> Result<Self> {
        self.run("BEGIN IMMEDIATE")?;
        self.is_begun = true;
        Ok(self)
    }

    fn run(&mut self, sql: &str) -> Result<()> {
        let connection = opened(&mut self.guard, &self.place)?;
        connection.execute_batch(sql).map_err(|error| failure("a statement failed", error))
    }

    fn insert(&mut self, batch: &RowBatch) -> Result<()> {
        let (prepared, guard) = (&self.prepared, &mut self.guard);
        let connection = opened(guard, &self.place)?;
        let write = || -> rusqlite::Result<()> {
            let mut statement = connection.prepare_cached(&prepared.insert())?;
            for row in &batch.rows {
                let cells = prepared.names.iter().map(|name| values::to_sql(row.get(&batch.names, name)));
                statement.execute(params_from_iter(cells))?;
            }
            Ok(())
        };
        write().map_err(|error| failure("writing failed", error))?;
        self.rows += batch.rows.len() as u64;
        Ok(())
    }

    fn attempt(&mut self, batch: &RowBatch) -> Result<()> {
        self.run("SAVEPOINT attempt")?;
        let inserted = self.insert(batch);
        self.run(if inserted.is_ok() { "RELEASE attempt" } else { "ROLLBACK TO attempt; RELEASE attempt" })?;
        inserted
    }

    fn commit(mut self) -> Result<Written> {
        let (prepared, chunk, rows) = (Arc::clone(&self.prepared), self.chunk.clone(), self.rows);
        let connection = opened(&mut self.guard, &self.place)?;
        let sql = format!("INSERT OR IGNORE INTO {LEDGER} VALUES (?1, ?2, ?3)");
        let noted = connection.execute(&sql, params![prepared.job, chunk, rows as i64]);
        if noted.map_err(|error| failure("cannot write to the ledger", error))? == 0 {
            let known = prepared.ledger_row(connection, &chunk);
            return Ok(known.map_err(|error| failure("cannot read the ledger", error))?.unwrap_or_default());
        }
        self.run("COMMIT")?;
        self.is_begun = false;
        Ok(Written { rows })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.is_begun
            && let Some(connection) = self.guard.as_ref()
            && connection.execute_batch("ROLLBACK").is_err()
        {
            // A connection that cannot be brought to rest is not used again.
            *self.guard = None;
        }
    }
}

#[async_trait]
impl ChunkWriter for TableChunk {
    async fn write(&mut self, batch: Batch) -> Result<()> {
        let Batch::Rows(batch) = batch else { return Err(Error::failed("rows are not taken unread")) };
        let Some(mut open) = self.0.take() else { return Err(Error::failed("the chunk was given up")) };
        let open = blocking(move || open.insert(&batch).map(|()| open)).await?;
        self.0 = Some(open);
        Ok(())
    }

    async fn attempt(&mut self, batch: RowBatch) -> Result<()> {
        let Some(mut open) = self.0.take() else { return Err(Error::failed("the chunk was given up")) };
        let (open, attempted) = blocking(move || {
            let attempted = open.attempt(&batch);
            Ok((open, attempted))
        })
        .await?;
        self.0 = Some(open);
        attempted
    }

    async fn commit(mut self: Box<Self>) -> Result<Written> {
        let Some(open) = self.0.take() else { return Err(Error::failed("the chunk was given up")) };
        blocking(move || open.commit()).await
    }
}
