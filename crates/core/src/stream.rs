//! A stream: how messages come in. So far there is one kind, the resource.

use jiff::Timestamp;

use crate::{StreamId, change::ChangeRule, pattern::Pattern};

/// A set of documents that a service publishes over HTTP.
#[derive(Clone, Debug)]
pub struct Stream {
    pub id: StreamId,
    /// Which URLs are documents of this stream.
    pub endpoint: Pattern,
    /// Where a document shows its revision.
    pub change: ChangeRule,
    pub created_at: Timestamp,
}
