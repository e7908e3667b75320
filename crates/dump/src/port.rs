//! The two sides of a copy: where rows are read, and where they are written.
//!
//! A storage is a module of [`crate::storage`] with a [`Reader`] and a [`Writer`]. Retries, progress, history, mapping
//! and bisecting are the business of the copy; a storage only says what kind an error is of.

use std::pin::Pin;

use async_trait::async_trait;
use futures_util::Stream;

use crate::error::Result;
use crate::key::{Key, Range};
use crate::row::{Batch, RawFormat, RowBatch};
use crate::value::{Column, Schema};

/// The rows of a range, in batches. It ends after the first error.
pub type Batches = Pin<Box<dyn Stream<Item = Result<Batch>> + Send>>;

/// How many rows are looked at where a source does not say what its columns are.
pub const SAMPLE_ROWS: usize = 1000;

/// What a source says of itself before the copy.
#[derive(Clone, Debug)]
pub struct Description {
    /// For documents, what a sample of them has.
    pub schema: Schema,
    /// About how many rows there are, if that is known without reading them.
    pub rows: Option<u64>,
    /// About how many bytes they have.
    pub bytes: Option<u64>,
    pub walk: Walk,
    /// The form in which rows can be passed on unread.
    pub raw: Option<RawFormat>,
}

/// How a source is cut into ranges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Walk {
    /// By the values of these columns, in their order.
    Key(Vec<String>),
    /// By where rows lie: blocks of a table, bytes of a file. Cheap, and in no order.
    Position(String),
    /// By counting rows from the beginning: the source cannot be entered in the middle. One cursor is read, ranges come
    /// in the order in which [`Reader::read`] was called for them.
    Sequence,
    /// By counting rows from the beginning for every range: `OFFSET`.
    Offset,
}

/// The last row of a source at a moment.
#[derive(Clone, PartialEq, Debug)]
pub enum Upper {
    /// There are no rows.
    Empty,
    /// Rows after this key came later and are not copied.
    Key(Key),
    /// Only reading to the end shows it.
    Unknown,
}

/// Where a chunk that begins at a given place ends.
#[derive(Clone, PartialEq, Debug)]
pub enum Boundary {
    /// At this key, and more may follow.
    At(Key),
    /// At the upper end: there are at most as many rows as were asked for.
    Last,
}

/// Where rows come from.
#[async_trait]
pub trait Reader: Send + Sync {
    /// Connects and looks. Called once, first; errors of the address are `Invalid`.
    async fn describe(&self) -> Result<Description>;

    /// Some rows, to infer types from and to preview.
    async fn sample(&self, rows: usize) -> Result<RowBatch>;

    /// The last key there is now.
    async fn upper(&self) -> Result<Upper>;

    /// The key of the row that is `rows` further than `after`, reading keys only; [`Boundary::Last`] if there are no
    /// rows between that and `upper`.
    async fn boundary(&self, after: Option<&Key>, upper: Option<&Key>, rows: u64) -> Result<Boundary>;

    /// The rows of a range, as [`Batch::Raw`] if `raw` and the description offers it. May be called again for the
    /// same range, and for several ranges at once. Nothing is read before the first poll; dropping the stream ends
    /// it.
    fn read(&self, range: &Range, raw: bool) -> Batches;
}

/// What happens to a target that exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteMode {
    /// It must not exist, or be empty; it is created.
    #[default]
    Create,
    /// Rows are added; it is created if there is none.
    Append,
    /// Rows replace those with the same key, others stay; it is created if there is none.
    Upsert,
    /// Rows go to a new one that takes its place at the end.
    Replace,
}

/// What a target is to become.
#[derive(Clone, Debug)]
pub struct Target {
    /// Names this run in the ledger of the target and in the names of what is not finished; 16 letters and digits.
    pub job: String,
    pub mode: WriteMode,
    /// The columns of the rows that will come, with the key for upserts. Open where rows come as documents.
    pub schema: Schema,
    /// Whether this job has prepared the target before.
    pub is_resumed: bool,
}

/// One chunk, by name: `7`, or `7.03` for a part of a chunk that was cut later. Unique within a job.
pub type ChunkName = str;

/// What became of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    pub rows: u64,
}

/// Where rows go.
#[async_trait]
pub trait Writer: Send + Sync {
    /// Whether a row may be a document, rather than values of known columns.
    fn takes_documents(&self) -> bool;

    /// Whether a column that exists holds whatever comes, so that its type says nothing.
    fn takes_as_is(&self, _column: &Column) -> bool {
        false
    }

    /// Whether chunks wait for each other, as in a file with one writer. Then a long wait says nothing.
    fn waits_in_line(&self) -> bool {
        false
    }

    /// What the target has now, if it exists; for the mapping, before [`Writer::prepare`].
    async fn describe(&self) -> Result<Option<Schema>>;

    /// Makes the target ready, with its ledger. Does no harm when it is repeated for the same job.
    async fn prepare(&self, target: &Target) -> Result<()>;

    /// Whether rows in this form can be written unread.
    fn takes_raw(&self, format: &RawFormat) -> bool;

    /// What the ledger says of a chunk: `Some` if it is committed.
    async fn done(&self, chunk: &ChunkName) -> Result<Option<Written>>;

    /// Whether chunks that are committed are durable only once [`Writer::settle`] says so.
    fn settles(&self) -> bool {
        false
    }

    /// Makes chunks durable that were committed before, together, and says of each whether it is there for good. One
    /// that is not was lost with the memory of the target, and leaves nothing.
    async fn settle(&self, chunks: &[String]) -> Result<Vec<bool>> {
        Ok(vec![true; chunks.len()])
    }

    /// Begins a chunk. Several can be open at once.
    async fn open(&self, chunk: &ChunkName) -> Result<Box<dyn ChunkWriter>>;

    /// After the last chunk: makes the target what it is to be (swap, rename) and removes the ledger. Repeated after a
    /// crash it completes what was begun.
    async fn finish(&self) -> Result<()>;
}

/// The rows of one chunk on their way. Dropped before [`ChunkWriter::commit`], it leaves nothing that counts.
#[async_trait]
pub trait ChunkWriter: Send {
    /// Adds rows. After an error the chunk is spoilt.
    async fn write(&mut self, batch: Batch) -> Result<()>;

    /// Adds all of these rows or none: after a `Rejected` error the chunk is as it was before, and can be gone on with.
    async fn attempt(&mut self, batch: RowBatch) -> Result<()>;

    /// Commits the rows together with the chunk's place in the ledger, durably unless the writer settles. If the chunk
    /// is in the ledger already, nothing is added.
    async fn commit(self: Box<Self>) -> Result<Written>;
}
