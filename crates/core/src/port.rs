//! The ports: what a node asks of a store. Small, object-safe, one per aggregate, batched where the hot path is.
//!
//! Every write is durable when its future resolves with `Ok`, except [`Deliveries::record`], which says so itself.
//! `Unavailable` means that nothing was written and that the same call may succeed later.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;

use crate::{
    DocumentNumber, OutletId, Result, Sequence, StreamId, TokenId,
    delivery::{AttemptQuery, AttemptRecord, Behind, DeadLetter},
    document::{Change, DocumentWrite, Progress, Standing, Version, Written},
    outlet::{Outlet, Revisions},
    replay::Replay,
    stream::Stream,
    token::Token,
    url::DocumentUrl,
};

/// All the ports of one store.
#[derive(Clone)]
pub struct Store {
    pub streams: Arc<dyn Streams>,
    pub outlets: Arc<dyn Outlets>,
    pub documents: Arc<dyn Documents>,
    pub deliveries: Arc<dyn Deliveries>,
    pub tokens: Arc<dyn Tokens>,
    pub coordination: Arc<dyn Coordination>,
    pub engine: Arc<dyn Engine>,
}

/// The engine behind the ports.
#[async_trait]
pub trait Engine: Send + Sync {
    /// The name in the configuration.
    fn name(&self) -> &'static str;

    /// What it can do.
    fn limits(&self) -> Limits;

    /// Why writes fail at present, if they do.
    fn trouble(&self) -> Option<String>;

    /// A number that rises with every write to streams, outlets and tokens, by whichever node: by one at least for each.
    /// Whoever reads them after it finds what it stands for.
    async fn entities_revision(&self) -> Result<u64>;

    /// Puts on disk what was recorded lazily before.
    async fn flush(&self) -> Result<()>;

    /// Writes what is still lazy, and lets go of files and locks. Later calls fail with `Unavailable`.
    async fn close(&self) -> Result<()>;
}

/// What an engine can do. A twist of an engine is a member here, and never a question for its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Several nodes may work on the same data at once.
    pub is_shared: bool,
}

/// The layout of an engine's data: steps that are taken once each, in order, and never back.
#[async_trait]
pub trait Schema: Send + Sync {
    /// All steps that this version of Flare knows. `Invalid`, with both versions in the message, if the data has more.
    async fn status(&self) -> Result<Vec<Migration>>;

    /// Takes the steps that are missing, one node at a time, and says which. One that was interrupted is taken again.
    async fn up(&self) -> Result<Vec<Migration>>;
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Migration {
    /// One for the first.
    pub number: u32,
    pub name: String,
    pub applied_at: Option<Timestamp>,
}

/// A few small rows on which nodes agree: linearizable, one at a time.
#[async_trait]
pub trait Coordination: Send + Sync {
    async fn get(&self, key: &str) -> Result<Option<AgreedRow>>;

    /// Writes the row if it is still the one that the caller saw: with this version, or none at all.
    async fn compare_and_set(&self, key: &str, seen: Option<u64>, value: Bytes) -> Result<Agreement>;
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgreedRow {
    pub value: Bytes,
    /// Rises with every write.
    pub version: u64,
}

/// What became of a [`Coordination::compare_and_set`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Agreement {
    /// The row is written, with this version.
    Applied(u64),
    /// Somebody else was first; this is there now.
    Refused(Option<AgreedRow>),
    /// Nobody knows: it may be applied, now or later. Only a later write of the same row that applies tells.
    Unknown,
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
    ///
    /// With `seen`, only if the [`Engine::entities_revision`] is still that one, decided in the same step as the insert:
    /// whoever has compared the stream with all others must know that no other came in between. None if it is not, and
    /// nothing was made before by the same request.
    async fn insert(
        &self,
        stream: &Stream,
        once: Option<Idempotency>,
        seen: Option<u64>,
    ) -> Result<Option<Inserted<StreamId>>>;

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
    /// Only URLs behind this one: such a page costs the same wherever it is. What it leaves out still counts.
    pub after: Option<DocumentUrl>,
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

    /// The oldest change of the document past `after` that is kept, a tombstone included.
    async fn next_change(&self, stream: StreamId, url: &DocumentUrl, after: Sequence) -> Result<Option<Change>>;

    /// Documents that are there (no tombstones), in URL order. None is passed over: a page ends before a document that
    /// changed while it was read, and is empty only if there is nothing.
    async fn page(&self, stream: StreamId, query: &DocumentQuery) -> Result<DocumentPage>;

    /// The changes of the stream, in order of the sequences: the feed.
    async fn feed(&self, stream: StreamId, query: FeedQuery) -> Result<FeedPage>;

    /// The sequence of the last change that was accepted at this time or before, about to the minute. The beginning, if
    /// nobody knows any more.
    async fn sequence_at(&self, time: Timestamp) -> Result<Sequence>;

    /// Forgets changes from before this time that a newer one has replaced; says how many. They may have been forgotten
    /// before by themselves.
    async fn sweep(&self, older_than: Timestamp) -> Result<u64>;

    /// The sequence of the last change, of any stream, as far as this node knows. All changes up to it are durable.
    fn head(&self) -> Sequence;

    /// Tells `listener` of every change from now on, by whichever node. There is one listener; a second call replaces the
    /// first.
    fn listen(&self, listener: Arc<dyn ChangeListener>);
}

/// Hears of changes on the thread that commits them: it must be quick and must not block.
pub trait ChangeListener: Send + Sync {
    /// These changes are durable. Called in the order of their sequences, before their writers are answered.
    fn changed(&self, changes: Vec<Arc<Change>>);

    /// There may be changes up to `head` that were not told: only the feed knows.
    fn missed(&self, head: Sequence);
}

/// Sequences after `after`, up to `until`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub after: Sequence,
    pub until: Sequence,
}

#[async_trait]
pub trait Deliveries: Send + Sync {
    /// From now on this node records as the owner of this epoch, and what owners of older epochs record, however late,
    /// changes nothing of what newer ones have recorded; they get a `Conflict` where the store can tell. `Conflict` if
    /// there is a newer owner already.
    async fn seal(&self, epoch: u64) -> Result<()>;

    /// Remembers progress, in order: what comes later counts. Durable before any later durable write is; see
    /// [`Progress`].
    async fn record(&self, progress: Vec<Progress>) -> Result<()>;

    /// The version of one document that the outlet has. Reads its own node's recorded progress.
    async fn version(&self, outlet: OutletId, number: DocumentNumber) -> Result<Option<Version>>;

    /// Where each outlet after `after` stands, in id order: what a node reads when it takes up its work.
    async fn standings(&self, after: Option<OutletId>, limit: usize) -> Result<Vec<Standing>>;

    /// Where one outlet stands; `NotFound` if it is not there.
    async fn standing(&self, outlet: OutletId) -> Result<Standing>;

    /// Documents of the stream whose newest change is in `span` and that the outlet does not have: what an outlet that
    /// has handled the span is behind on. At most `limit` of them, in the order of their changes.
    async fn missing(&self, stream: StreamId, outlet: OutletId, span: Span, limit: usize) -> Result<Vec<Behind>>;

    /// What was given up for the outlet, oldest first, and how much there is in all.
    async fn dead_letters(&self, outlet: OutletId, offset: usize, limit: usize) -> Result<(Vec<DeadLetter>, usize)>;

    /// Forgets what was given up under these sequences.
    async fn discard_dead_letters(&self, outlet: OutletId, sequences: Vec<Sequence>) -> Result<()>;

    /// What was sent to the outlet, the newest first.
    async fn attempts(&self, outlet: OutletId, query: AttemptQuery) -> Result<Vec<AttemptRecord>>;

    /// Forgets attempts from before this time.
    async fn forget_attempts(&self, older_than: Timestamp) -> Result<()>;

    /// Forgets what was given up before this time.
    async fn forget_dead_letters(&self, older_than: Timestamp) -> Result<()>;

    /// Keeps how far the outlet's replay is, or that there is none.
    async fn save_replay(&self, outlet: OutletId, replay: Option<Replay>) -> Result<()>;

    /// All replays under way.
    async fn replays(&self) -> Result<Vec<Replay>>;
}

#[async_trait]
pub trait Tokens: Send + Sync {
    /// Adds the token; `Conflict` if the id is taken.
    async fn insert(&self, token: &Token) -> Result<()>;

    /// All tokens after `after`, in id order.
    async fn page(&self, after: Option<TokenId>, limit: usize) -> Result<Vec<Token>>;

    /// Removes the token; `NotFound` if it is not there.
    async fn delete(&self, id: TokenId) -> Result<()>;
}
