//! What is kept of deliveries: attempts, and what was given up.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::{DocumentNumber, OutletId, Sequence, document::Action, revision::Revision, url::DocumentUrl};

/// A revision that was given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    pub outlet: OutletId,
    pub number: DocumentNumber,
    pub url: DocumentUrl,
    pub sequence: Sequence,
    pub revision: Revision,
    pub attempts: u32,
    pub cause: DeathCause,
    /// What the last attempt met.
    pub detail: String,
    pub at: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeathCause {
    /// All retries failed.
    Exhausted,
    /// It was older than the outlet's `ttl`.
    Expired,
}

impl DeathCause {
    pub const ALL: [Self; 2] = [Self::Exhausted, Self::Expired];

    /// The name in the API and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Expired => "expired",
        }
    }
}

/// One request of a delivery.
#[derive(Clone, PartialEq, Debug)]
pub struct AttemptRecord {
    pub at: Timestamp,
    pub url: DocumentUrl,
    pub revision: Revision,
    pub action: Action,
    /// One for the first.
    pub attempt: u32,
    pub duration: Duration,
    pub result: AttemptResult,
    /// Length of the body that was sent.
    pub request_bytes: u32,
    /// Length of the answer's body, as far as it was read.
    pub response_bytes: u32,
    /// What was sent and answered, where it is kept.
    pub bodies: Option<Bodies>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum AttemptResult {
    /// The endpoint answered with this status.
    Answered(u16),
    /// There was no answer, for this reason.
    Failed(String),
}

#[derive(Clone, PartialEq, Debug)]
pub struct Bodies {
    pub request: Bytes,
    pub response: Bytes,
}

impl AttemptResult {
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Answered(status) => Some(*status),
            Self::Failed(_) => None,
        }
    }
}

/// Which attempts a list holds, the newest first.
#[derive(Clone, Debug)]
pub struct AttemptQuery {
    /// Only attempts before this time: where the page before ended.
    pub before: Option<Timestamp>,
    pub since: Option<Timestamp>,
    /// Only of this document.
    pub document: Option<DocumentUrl>,
    pub which: AttemptKind,
    pub limit: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttemptKind {
    All,
    /// Answered with exactly this.
    Status(u16),
    /// Not answered with any 2xx.
    Failed,
}

impl AttemptQuery {
    pub fn matches(&self, attempt: &AttemptRecord) -> bool {
        let status = attempt.result.status();
        self.before.is_none_or(|before| attempt.at < before)
            && self.since.is_none_or(|since| attempt.at >= since)
            && self.document.as_ref().is_none_or(|document| *document == attempt.url)
            && match self.which {
                AttemptKind::All => true,
                AttemptKind::Status(wanted) => status == Some(wanted),
                AttemptKind::Failed => !status.is_some_and(|status| (200..300).contains(&status)),
            }
    }
}

/// A document on which an outlet is behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Behind {
    pub number: DocumentNumber,
    pub url: DocumentUrl,
    pub sequence: Sequence,
    pub revision: Revision,
    pub updated_at: Timestamp,
}
