//! A replay: an outlet is told again of what it has.

use jiff::Timestamp;

use crate::{OutletId, Sequence, StreamId, revision::Revision};

/// A replay under way. It goes through the feed once and is kept in the store, so that a restart goes on with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replay {
    pub outlet: OutletId,
    pub stream: StreamId,
    /// Only changes from this place on.
    pub from: Sequence,
    /// Everything up to here is done.
    pub position: Sequence,
    /// What changes later is told anyway.
    pub until: Sequence,
    /// Only documents whose URL starts so.
    pub prefix: String,
    /// Only this revision and newer ones.
    pub revision: Option<Revision>,
    /// Documents that are told again so far.
    pub documents: u64,
    pub started_at: Timestamp,
}
