//! The engine `embedded`: one folder on the local disk, for one process.
//!
//! Over fjall, a log-structured merge tree in safe Rust: one journal for all tables, atomic batches, an explicit flush.
//! This crate adds what a server needs around it: a lock that names its holder, free space kept in reserve, and
//! a way back after an I/O error without a restart.

mod folder;
mod journal;

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use flare_core::{
    Error, Result,
    port::{Schema, Store},
};
use flare_keyvalue::{KeyValue, Row, Table, Visit};
use parking_lot::{Mutex, RwLock};

use folder::Folder;
use journal::Journal;

/// How often the free space is looked up while it is ample.
const SPACE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
pub struct Options {
    pub path: PathBuf,
    /// Memory for blocks that were read.
    pub cache_bytes: u64,
    /// Free space below which writes are refused, so that what is there can still be kept in order.
    pub reserve_bytes: u64,
    pub store: flare_keyvalue::Options,
}

impl Options {
    fn store_folder(&self) -> PathBuf {
        self.path.join("store")
    }
}

/// Opens the folder, makes it if it is not there, and takes its lock.
pub fn open(options: &Options) -> Result<Store> {
    flare_keyvalue::open(Arc::new(Embedded::open(options)?), &options.store)
}

/// The layout of the data in the folder, which must not be in use.
pub fn schema(options: &Options) -> Result<Arc<dyn Schema>> {
    Ok(Arc::new(flare_keyvalue::migration::Schema::new(Arc::new(Embedded::open(options)?))))
}

/// The tables in their folder.
pub struct Embedded {
    options: Options,
    folder: Folder,
    /// None only while, and after, a reopening failed.
    tables: RwLock<Option<Tables>>,
    journal: Mutex<Journal>,
    state: Mutex<State>,
}

struct State {
    /// Why the tables take no more writes until they are opened anew.
    broken: Option<String>,
    space_checked_at: Option<Instant>,
}

struct Tables {
    database: Database,
    keyspaces: Vec<Keyspace>,
}

impl Embedded {
    pub fn open(options: &Options) -> Result<Self> {
        let folder = Folder::lock(&options.path)?;
        let tables = RwLock::new(Some(Tables::open(options)?));
        let state = Mutex::new(State { broken: None, space_checked_at: None });
        let journal = Mutex::new(Journal::new(options.store_folder()));
        Ok(Self { options: options.clone(), folder, tables, journal, state })
    }

    fn with<R>(&self, read: impl FnOnce(&Tables) -> Result<R, fjall::Error>) -> Result<R> {
        match &*self.tables.read() {
            Some(tables) => read(tables).map_err(|error| match error {
                fjall::Error::Poisoned => {
                    Error::unavailable("the engine has stopped after a failure in the background")
                }
                error => Error::unavailable("the engine of the data folder failed").because(error),
            }),
            None => Err(Error::unavailable(self.broken_reason().unwrap_or_default())),
        }
    }

    /// Takes no more writes until the tables are opened anew, for this reason.
    fn break_down(&self, error: &Error) -> Error {
        let path = self.options.path.display();
        // A failure in the background is known only by its effect; the usual cause is no space.
        let space = self.folder.free_bytes().map_or_else(|_| "unknown".into(), |free| format!("{} MiB", free >> 20));
        let reason = format!("could not write to {path} (free space: {space}): {}", error.chain());
        self.state.lock().broken = Some(reason.clone());
        Error::unavailable(reason)
    }

    fn require_sound(&self) -> Result<()> {
        self.broken_reason().map_or(Ok(()), |reason| Err(Error::unavailable(reason)))
    }

    fn broken_reason(&self) -> Option<String> {
        self.state.lock().broken.clone()
    }

    fn require_space(&self) -> Result<()> {
        let checked_at = self.state.lock().space_checked_at;
        if checked_at.is_some_and(|at| at.elapsed() < SPACE_CHECK_INTERVAL) {
            return Ok(());
        }
        let free = self.folder.free_bytes()?;
        if free < self.options.reserve_bytes {
            self.state.lock().space_checked_at = None;
            return Err(Error::unavailable(format!(
                "the disk of {} is full: {} MiB are free, and {} MiB are kept in reserve (repository.reserve); make \
                 room, and writes go on by themselves",
                self.options.path.display(),
                free >> 20,
                self.options.reserve_bytes >> 20,
            )));
        }
        self.state.lock().space_checked_at = Some(Instant::now());
        Ok(())
    }

    /// After a failed write fjall takes no more. Its journal is sound up to that write, so opening it anew is enough.
    fn reopen(&self) -> Result<()> {
        let mut tables = self.tables.write();
        drop(tables.take());
        *tables = Some(Tables::open(&self.options)?);
        *self.journal.lock() = Journal::new(self.options.store_folder());
        self.state.lock().broken = None;
        tracing::info!(path = %self.options.path.display(), "opened the data folder anew");
        Ok(())
    }
}

impl Tables {
    fn open(options: &Options) -> Result<Self> {
        let failed = |error: fjall::Error| {
            let what = format!("could not open the data folder {}", options.path.display());
            Error::unavailable(what).because(error)
        };
        let database = Database::builder(options.store_folder())
            .cache_size(options.cache_bytes)
            .worker_threads(2)
            .max_journaling_size(256 << 20)
            .open()
            .map_err(failed)?;
        let keyspaces = Table::ALL
            .iter()
            .map(|table| database.keyspace(table.name(), || layout(*table)))
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        Ok(Self { database, keyspaces })
    }

    fn keyspace(&self, table: Table) -> &Keyspace {
        &self.keyspaces[table as usize]
    }
}

fn layout(table: Table) -> KeyspaceCreateOptions {
    let memtable_mib = match table {
        Table::Changes => 8,
        Table::Heads | Table::Versions => 8,
        Table::Attempts => 8,
        Table::Meta | Table::Cursors | Table::Retries | Table::DeadLetters | Table::Demands => 4,
    };
    KeyspaceCreateOptions::default().max_memtable_size(memtable_mib << 20)
}

impl KeyValue for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
        self.with(|tables| Ok(tables.keyspace(table).get(key)?.map(Into::into)))
    }

    fn scan(&self, table: Table, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        self.with(|tables| {
            for row in tables.keyspace(table).range(from..to) {
                let (key, value) = row.into_inner()?;
                if visit(key.into(), value.into()).is_break() {
                    break;
                }
            }
            Ok(())
        })
    }

    fn write(&self, rows: Vec<Row>) -> Result<()> {
        self.require_sound()?;
        self.require_space()?;
        let written = self.with(|tables| {
            let mut batch = tables.database.batch().durability(Some(PersistMode::Buffer));
            for row in rows {
                match row.value {
                    Some(value) => batch.insert(tables.keyspace(row.table), row.key, value),
                    None => batch.remove(tables.keyspace(row.table), row.key),
                }
            }
            batch.commit()
        });
        written.map_err(|error| self.break_down(&error))
    }

    fn sync(&self) -> Result<()> {
        self.require_sound()?;
        let synced = self.journal.lock().sync();
        synced.map_err(|error| self.break_down(&Error::unavailable("could not flush the journal").because(error)))
    }

    fn check(&self) -> Result<()> {
        self.require_space()?;
        if self.broken_reason().is_some() { self.reopen() } else { Ok(()) }
    }
}
