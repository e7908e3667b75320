//! The ports of a store over a small ordered key-value trait.
//!
//! `memory` and `embedded` are this one implementation over two maps, so that the tests of one are tests of the
//! other. All writes go through one thread ([`writer`]) that runs them one after another and writes what has gathered as
//! one atomic batch: every check-then-write is serial without a lock, and a disk flush is shared by all that wait for
//! it.
//!
//! What rests where is in [`keys`] and [`rows`]. The heart is the pair of tables `Heads` (URL → where the newest
//! change is) and `Changes` (sequence → a change): the feed of a stream, in order. Changes that were replaced stay in it for
//! a while ([`history`]) and are passed over. An outlet's backlog is the part of the feed past its cursor and takes no
//! space of its own.

mod coordination;
mod deliveries;
mod documents;
mod history;
mod housekeeping;
mod keys;
pub mod migration;
mod outlets;
mod recent;
mod rows;
mod streams;
mod tokens;
mod transaction;
mod writer;

use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::AtomicU64},
};

use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{Error, Result, port};

use history::History;
pub use migration::FORMAT;
use transaction::Transaction;
use writer::Writer;

/// A map of the store. Each is ordered by key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Table {
    /// Streams, outlets, tokens, idempotency keys, counters, the format.
    Meta,
    /// (stream, URL) → number, sequence and revision of the newest change.
    Heads,
    /// (stream, sequence) → a change, content included.
    Changes,
    /// (outlet, document number) → the version that the outlet has.
    Versions,
    /// outlet → cursor.
    Cursors,
    /// (outlet, document number) → retry.
    Retries,
    /// (outlet, sequence) → what was given up.
    DeadLetters,
    /// (outlet, time) → attempts from that time on.
    Attempts,
    /// outlet → how much the client asks for; (outlet, "f") → since when it only fails.
    Demands,
}

impl Table {
    pub const ALL: [Self; 9] = [
        Self::Meta,
        Self::Heads,
        Self::Changes,
        Self::Versions,
        Self::Cursors,
        Self::Retries,
        Self::DeadLetters,
        Self::Attempts,
        Self::Demands,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Heads => "heads",
            Self::Changes => "changes",
            Self::Versions => "versions",
            Self::Cursors => "cursors",
            Self::Retries => "retries",
            Self::DeadLetters => "dead-letters",
            Self::Attempts => "attempts",
            Self::Demands => "demands",
        }
    }

    /// Whether transactions read this table, and so must see what their own group has written to it.
    fn is_read_in_transactions(self) -> bool {
        matches!(self, Self::Meta | Self::Heads)
    }
}

/// One row of a batch; without a value the key is removed.
#[derive(Clone, Debug)]
pub struct Row {
    pub table: Table,
    pub key: Bytes,
    pub value: Option<Bytes>,
}

/// When the rows of a transaction have to be on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Durability {
    /// Before the caller is answered.
    Now,
    /// Soon, by itself or with others.
    Later,
}

/// Visits a row of a scan; `Break` ends it.
pub type Visit<'a> = dyn FnMut(Bytes, Bytes) -> ControlFlow<()> + 'a;

/// An ordered map with atomic batches. Calls block; `write` and `check` are called from one thread only, `sync` from
/// another.
pub trait KeyValue: Send + Sync + 'static {
    /// The name of the engine in the configuration.
    fn name(&self) -> &'static str;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>>;

    /// Visits the rows with `from <= key < to` in key order.
    fn scan(&self, table: Table, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()>;

    /// Applies all rows or none, in order, and hands them to the operating system: they survive the end of the process,
    /// and a loss of power after the next [`sync`](Self::sync). `Unavailable`, with the reason, if it could not.
    fn write(&self, rows: Vec<Row>) -> Result<()>;

    /// Puts on disk what was written before the call, and does not keep writers waiting. Once it has failed, nobody can
    /// tell what is on disk: it and `write` then fail until `check` has repaired the map.
    fn sync(&self) -> Result<()>;

    /// Whether a write could succeed now; repairs what it can.
    fn check(&self) -> Result<()>;
}

/// How the engine works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Writes that may wait at once; further callers wait for a place.
    pub writes_waiting_max: usize,
    /// Keep changes that were replaced until they are swept; otherwise they are removed at once.
    pub keeps_history: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { writes_waiting_max: 8192, keeps_history: true }
    }
}

/// Opens the store: checks or migrates the format, then starts the writer.
pub fn open(map: Arc<dyn KeyValue>, options: &Options) -> Result<port::Store> {
    migration::run(&*map, migration::MIGRATIONS)?;
    let history = History::open(&*map, options.keeps_history)?;
    let epoch = AtomicU64::new(coordination::read_epoch(&*map)?);
    let writer = Writer::start(map.clone(), options)?;
    let store = Arc::new(KeyValueStore { writer, history, epoch, map });
    Ok(port::Store {
        streams: store.clone(),
        outlets: store.clone(),
        documents: store.clone(),
        deliveries: store.clone(),
        tokens: store.clone(),
        coordination: store.clone(),
        engine: store,
    })
}

/// The implementation of all ports.
struct KeyValueStore {
    map: Arc<dyn KeyValue>,
    writer: Writer,
    history: Arc<History>,
    /// As whose owner this process records.
    epoch: AtomicU64,
}

impl KeyValueStore {
    /// Writes to streams, outlets or tokens, and counts it.
    async fn write_entities<R: Send + 'static>(
        &self,
        write: impl FnOnce(&mut Transaction<'_>) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let counted = move |transaction: &mut Transaction<'_>| {
            let written = write(transaction)?;
            if transaction.has_written() {
                let count = transaction.count(keys::ENTITIES)? + 1;
                let value = Bytes::copy_from_slice(&count.to_be_bytes());
                transaction.put(Table::Meta, Bytes::from_static(keys::ENTITIES), value);
            }
            Ok(written)
        };
        self.writer.transact(Durability::Now, counted).await
    }
}

/// Runs a read of unknown length off the runtime's threads.
async fn blocking<R: Send + 'static>(read: impl FnOnce() -> Result<R> + Send + 'static) -> Result<R> {
    tokio::task::spawn_blocking(read)
        .await
        .unwrap_or_else(|error| Err(Error::internal("a read of the store did not finish").because(error)))
}

#[async_trait]
impl port::Engine for KeyValueStore {
    fn name(&self) -> &'static str {
        self.map.name()
    }

    fn limits(&self) -> port::Limits {
        port::Limits { is_shared: false }
    }

    fn trouble(&self) -> Option<String> {
        self.writer.trouble()
    }

    async fn entities_revision(&self) -> Result<u64> {
        transaction::read_count(self.map.get(Table::Meta, keys::ENTITIES)?.as_ref())
    }

    async fn flush(&self) -> Result<()> {
        self.writer.transact(Durability::Now, |_| Ok(())).await
    }

    async fn close(&self) -> Result<()> {
        self.writer.close().await
    }
}
