//! Documents, the changes that happen to them, and the version of them that an outlet has.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use jiff::Timestamp;

use crate::{
    DocumentNumber, OutletId, Sequence, StreamId,
    delivery::{AttemptRecord, DeadLetter},
    revision::Revision,
    trace::Trace,
    url::DocumentUrl,
};

/// What a publisher says about one document.
#[derive(Clone, Debug)]
pub struct DocumentWrite {
    pub stream: StreamId,
    pub url: DocumentUrl,
    pub body: WriteBody,
    /// When the node accepted it.
    pub at: Timestamp,
    /// What the publisher did it for.
    pub trace: Option<Arc<Trace>>,
}

#[derive(Clone, Debug)]
pub enum WriteBody {
    /// The document as it is now: a JSON object, kept byte for byte.
    Put { revision: Revision, content: Bytes },
    /// The document is gone. Without a revision it counts as the newest news of the revision that is there.
    Delete { revision: Option<Revision> },
}

/// What became of a [`DocumentWrite`].
#[derive(Clone, Debug)]
pub enum Written {
    /// A real change: it has a place in the order, and outlets are told.
    Changed(WrittenChange),
    /// The same or an older revision: accepted, and announces nothing.
    Unchanged,
}

#[derive(Clone, Debug)]
pub struct WrittenChange {
    pub sequence: Sequence,
    pub number: DocumentNumber,
    pub revision: Revision,
    /// The change of the same document that this one replaces.
    pub replaces: Option<Sequence>,
}

/// The newest change of a document: an entry of the feed.
#[derive(Debug)]
pub struct Change {
    pub stream: StreamId,
    pub sequence: Sequence,
    pub number: DocumentNumber,
    pub url: DocumentUrl,
    pub revision: Revision,
    pub updated_at: Timestamp,
    /// None when the document was deleted.
    pub content: Option<Bytes>,
    /// The change of the same document that this one replaced, where it is known.
    pub replaces: Option<Sequence>,
    /// What the publisher made it for; it is passed on to clients.
    pub trace: Option<Arc<Trace>>,
    /// Set when a newer change of the same document is known. Only a shortcut: an outlet that misses it sends one
    /// revision more, in order.
    superseded: AtomicBool,
}

impl Change {
    pub fn new(
        stream: StreamId,
        written: &WrittenChange,
        url: DocumentUrl,
        updated_at: Timestamp,
        content: Option<Bytes>,
    ) -> Self {
        Self {
            stream,
            sequence: written.sequence,
            number: written.number,
            url,
            revision: written.revision,
            updated_at,
            content,
            replaces: written.replaces,
            trace: None,
            superseded: AtomicBool::new(false),
        }
    }

    pub fn with_trace(self, trace: Option<Arc<Trace>>) -> Self {
        Self { trace, ..self }
    }

    pub fn is_delete(&self) -> bool {
        self.content.is_none()
    }

    pub fn supersede(&self) {
        self.superseded.store(true, Ordering::Release);
    }

    pub fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Acquire)
    }

    /// What it costs to keep this change in memory.
    pub fn memory_bytes(&self) -> usize {
        const OVERHEAD_BYTES: usize = 200;
        let trace = self.trace.as_ref().map_or(0, |trace| trace.memory_bytes());
        OVERHEAD_BYTES + self.url.as_str().len() + self.content.as_ref().map_or(0, Bytes::len) + trace
    }
}

/// The revision of a document that an outlet has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    pub sequence: Sequence,
    pub revision: Revision,
    /// The outlet was told that the document is gone.
    pub deleted: bool,
}

/// What an outlet is told, from its own point of view: the first revision that it gets is a create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Create,
    Update,
    Delete,
    /// Nothing happened: the owner of the outlet tries it out.
    Test,
}

impl Action {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Test => "test",
        }
    }
}

/// One thing to remember about an outlet's progress. Applied in order, lazily: losing the last ones in a crash repeats
/// deliveries and loses none.
#[derive(Clone, Debug)]
pub enum Progress {
    /// The outlet has this version of the document. Never goes back to an older sequence.
    Version { outlet: OutletId, number: DocumentNumber, version: Version },
    /// Everything up to here is delivered, not wanted, or has a retry.
    Cursor { outlet: OutletId, cursor: Sequence },
    /// The document is to be tried again.
    Retry(Retry),
    /// No retry is left for the document.
    Settled { outlet: OutletId, number: DocumentNumber },
    /// The outlet is to be told again of what it had: its version goes back to before this sequence.
    Forgotten { outlet: OutletId, number: DocumentNumber, version: Version },
    /// Flare has given up on a revision.
    DeadLetter(DeadLetter),
    /// So many messages the client still asks for.
    Demand { outlet: OutletId, left: u64 },
    /// Nothing but failures since then; none after a success.
    Failing { outlet: OutletId, since: Option<Timestamp> },
    /// What was sent and what came of it; these stand one after another in time.
    Attempts { outlet: OutletId, attempts: Vec<AttemptRecord> },
}

/// A delivery that failed and is due again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retry {
    pub outlet: OutletId,
    pub number: DocumentNumber,
    pub url: DocumentUrl,
    /// How many attempts have failed so far.
    pub attempts: u32,
    pub due: Timestamp,
}

/// Where an outlet stands, as the store knows it.
#[derive(Clone, Debug)]
pub struct Standing {
    pub outlet: OutletId,
    pub cursor: Sequence,
    pub retries: Vec<Retry>,
    /// Messages that the client still asks for.
    pub demand: u64,
    /// Nothing but failures since then.
    pub failing_since: Option<Timestamp>,
}
