//! The ports: what a node asks of a store. Small, object-safe, one per aggregate, batched where the hot path is.
//!
//! Every write is durable when its future resolves with `Ok`, except [`Deliveries::record`], which says so itself.
//! `Unavailable` means that nothing was written and that the same call may succeed later.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    DocumentNumber, OutletId, Result, Sequence, StreamId,
    document::{Change, DocumentWrite, Progress, Standing, Version, Written},
    outlet::{Outlet, Revisions},
    stream::Stream,
    url::DocumentUrl,
};

/// All the ports of one store.
#[derive(Clone)]
pub struct Store {
    pub streams: Arc<dyn Streams>,
    pub outlets: Arc<dyn Outlets>,
    pub documents: Arc<dyn Documents>,
    pub deliveries: Arc<dyn Deliveries>,
    pub engine: Arc<dyn Engine>,
}

/// The engine behind the ports.
#[async_trait]
pub trait Engine: Send + Sync {
    /// The name in the configuration.
    fn name(&self) -> &'static str;

    /// Why writes fail at present, if they do.
    fn trouble(&self) -> Option<String>;

    /// Writes what is still lazy, and lets go of files and locks. Later calls fail with `Unavailable`.
    async fn close(&self) -> Result<()>;
}

/// A client's key for a creation, so that a repeated request creates nothing twice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Idempotency {
    pub key: String,
    /// A digest of the request; the same key with another request is a mistake.
    pub fingerprint: [u8; 32],
    pub at: Timestamp,
}

impl Idempotency {
    /// How long a key is remembered, at least.
    pub const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
}

/// What an insert found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted<Id> {
    New,
    /// The same key and request created this before.
    Before(Id),
}

#[async_trait]
pub trait Streams: Send + Sync {
    /// Adds the stream; `Conflict` if the id is taken. With an idempotency key the insert happens at most once;
    /// `Invalid` if the key was used before for another request.
    async fn insert(&self, stream: &Stream, once: Option<Idempotency>) -> Result<Inserted<StreamId>>;

    /// The stream that a request with this key made before; `Invalid` if the key was used for another request.
    async fn made_by(&self, once: &Idempotency) -> Result<Option<StreamId>>;

    /// All streams after `after`, in id order.
    async fn page(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<Stream>>;

    /// Removes the stream with its documents; `NotFound` if it is not there, `Conflict` while it has outlets.
    async fn delete(&self, id: StreamId) -> Result<()>;
}

#[async_trait]
pub trait Outlets: Send + Sync {
    /// Adds the outlet, with its cursor at `outlet.start()`; `Conflict` if the id is taken, `NotFound` if the stream is
    /// not there.
    async fn insert(&self, outlet: &Outlet, once: Option<Idempotency>) -> Result<Inserted<OutletId>>;

    /// Replaces the outlet; `NotFound` if it is not there.
    async fn update(&self, outlet: &Outlet) -> Result<()>;

    /// All outlets after `after`, in id order. `streams` are the streams that they may belong to.
    async fn page(&self, after: Option<OutletId>, limit: usize, streams: &StreamLookup) -> Result<Vec<Outlet>>;

    /// Removes the outlet, its cursor, its versions and its retries; `NotFound` if it is not there.
    async fn delete(&self, id: OutletId) -> Result<()>;
}

/// Finds a stream by id: an outlet's templates are read against the pattern of its stream.
pub type StreamLookup = dyn Fn(StreamId) -> Option<Arc<Stream>> + Send + Sync;

/// Which documents a list holds.
#[derive(Clone, Debug, Default)]
pub struct DocumentQuery {
    /// Only URLs that start so.
    pub prefix: String,
    /// Only documents that changed at or after this time.
    pub changed_since: Option<Timestamp>,
    pub offset: usize,
    pub limit: usize,
    /// About so much content at most, but at least one document; without it, whatever the limit holds.
    pub bytes_max: Option<usize>,
}

/// One page of documents, in URL order, and how many there are in all.
#[derive(Debug, Default)]
pub struct DocumentPage {
    pub documents: Vec<Change>,
    pub total: usize,
}

/// Which part of the feed to read.
#[derive(Clone, Copy, Debug)]
pub struct FeedQuery {
    pub after: Sequence,
    /// The newest change of each document, or also those that it has replaced, as far as they are kept.
    pub revisions: Revisions,
    pub limit: usize,
    /// About so much content at most, but at least one change.
    pub bytes_max: usize,
}

/// A part of the feed. It may be empty, and still not the end.
#[derive(Debug)]
pub struct FeedPage {
    pub changes: Vec<Change>,
    /// The feed has nothing else up to here.
    pub until: Sequence,
}

#[async_trait]
pub trait Documents: Send + Sync {
    /// Applies the writes in order, in one atomic durable step, and says of each what became of it.
    ///
    /// A put is a change if its revision is newer than what is there; a delete, if the document is there and its
    /// revision is not older. A deleted document leaves a tombstone: only a newer revision brings it back.
    async fn write(&self, writes: Vec<DocumentWrite>) -> Result<Vec<Written>>;

    /// The newest change of the document, a tombstone included.
    async fn get(&self, stream: StreamId, url: &DocumentUrl) -> Result<Option<Change>>;

    /// The change with this sequence, newest or replaced, as long as it is kept.
    async fn change_at(&self, stream: StreamId, sequence: Sequence) -> Result<Option<Change>>;

    /// Documents that are there (no tombstones), in URL order.
    async fn page(&self, stream: StreamId, query: &DocumentQuery) -> Result<DocumentPage>;

    /// The changes of the stream, in order of the sequences: the feed.
    async fn feed(&self, stream: StreamId, query: FeedQuery) -> Result<FeedPage>;

    /// Forgets changes from before this time that a newer one has replaced; says how many. They may have been forgotten
    /// before by themselves.
    async fn sweep(&self, older_than: Timestamp) -> Result<u64>;

    /// The sequence of the last change, of any stream.
    fn head(&self) -> Sequence;

    /// Tells `listener` of every change from now on. There is one listener; a second call replaces the first.
    fn listen(&self, listener: Arc<dyn ChangeListener>);
}

/// Hears of changes on the thread that commits them: it must be quick and must not block.
pub trait ChangeListener: Send + Sync {
    /// These changes are durable. Called in the order of their sequences, before their writers are answered.
    fn changed(&self, changes: Vec<Arc<Change>>);

    /// There may be changes up to `head` that were not told: only the feed knows.
    fn missed(&self, head: Sequence);
}

#[async_trait]
pub trait Deliveries: Send + Sync {
    /// Remembers progress, in order. Durable before any later durable write is; see [`Progress`].
    async fn record(&self, progress: Vec<Progress>) -> Result<()>;

    /// The version of one document that the outlet has. Reads its own node's recorded progress.
    fn version(&self, outlet: OutletId, number: DocumentNumber) -> Result<Option<Version>>;

    /// Where each outlet after `after` stands, in id order: what a node reads when it takes up its work.
    async fn standings(&self, after: Option<OutletId>, limit: usize) -> Result<Vec<Standing>>;
}
