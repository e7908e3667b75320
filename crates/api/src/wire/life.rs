//! What is kept of deliveries, on the wire.

use flare_core::{
    Sequence,
    delivery::{AttemptRecord, AttemptResult, Behind, DeadLetter},
    stream::Stream,
};
use flare_node::{Lag, Resync, Tested};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{document::RevisionValue, page::Pagination};

/// One request of a delivery.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attempt {
    #[schema(format = "date-time")]
    pub at: String,
    /// The URL of the document.
    pub document: String,
    #[schema(value_type = RevisionValue)]
    pub revision: Box<RawValue>,
    pub action: &'static str,
    /// One for the first.
    pub attempt: u32,
    /// What the endpoint answered; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<u16>,
    /// Why there was no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error: Option<String>,
    pub duration_ms: f64,
    pub request_bytes: u32,
    pub response_bytes: u32,
    /// Only with `delivery.keep-bodies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub request_body: Option<String>,
    /// Only with `delivery.keep-bodies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub response_body: Option<String>,
}

impl Attempt {
    pub fn of(attempt: &AttemptRecord, stream: &Stream) -> Self {
        let (status, error) = match &attempt.result {
            AttemptResult::Answered(status) => (Some(*status), None),
            AttemptResult::Failed(reason) => (None, Some(reason.clone())),
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            at: attempt.at.to_string(),
            document: attempt.url.as_str().to_owned(),
            revision: revision(stream, attempt.revision),
            action: attempt.action.as_str(),
            attempt: attempt.attempt,
            status,
            error,
            duration_ms: attempt.duration.as_secs_f64() * 1e3,
            request_bytes: attempt.request_bytes,
            response_bytes: attempt.response_bytes,
            request_body: attempt.bodies.as_ref().map(|bodies| text(&bodies.request)),
            response_body: attempt.bodies.as_ref().map(|bodies| text(&bodies.response)),
        }
    }
}

/// Attempts, the newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct AttemptList {
    pub attempts: Vec<Attempt>,
    /// The `before` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = "date-time")]
    pub next: Option<String>,
}

/// A revision that was given up.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeadLetterShown {
    /// Its name in `replay` and `discard`.
    pub id: u64,
    /// The URL of the document.
    pub document: String,
    #[schema(value_type = RevisionValue)]
    pub revision: Box<RawValue>,
    /// `exhausted`: all retries failed; `expired`: older than `delivery.ttl`.
    pub reason: &'static str,
    /// What the last attempt met.
    pub detail: String,
    pub attempts: u32,
    #[schema(format = "date-time")]
    pub at: String,
}

impl DeadLetterShown {
    pub fn of(letter: &DeadLetter, stream: &Stream) -> Self {
        Self {
            id: letter.sequence.0,
            document: letter.url.as_str().to_owned(),
            revision: revision(stream, letter.revision),
            reason: letter.cause.as_str(),
            detail: letter.detail.clone(),
            attempts: letter.attempts,
            at: letter.at.to_string(),
        }
    }
}

/// A page of dead letters, the oldest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeadLetterList {
    pub dead_letters: Vec<DeadLetterShown>,
    pub pagination: Pagination,
}

/// Which dead letters are meant: without `ids`, all, up to 1000 at once.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadLetterChoice {
    #[schema(max_items = 1000)]
    pub ids: Option<Vec<u64>>,
}

impl DeadLetterChoice {
    pub fn sequences(&self) -> Option<Vec<Sequence>> {
        self.ids.as_ref().map(|ids| ids.iter().copied().map(Sequence).collect())
    }
}

/// How many dead letters it concerned.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeadLettersSettled {
    pub dead_letters: usize,
}

/// What came of a test.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TestShown {
    /// The URL that was called.
    pub url: String,
    /// The answer would have counted as a delivery.
    pub delivered: bool,
    /// What the endpoint answered; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<u16>,
    /// The beginning of the answer's body.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub response_body: Option<String>,
    /// Why there was no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error: Option<String>,
    pub duration_ms: f64,
}

impl From<Tested> for TestShown {
    fn from(tested: Tested) -> Self {
        let (status, response_body, error) = match tested.answer {
            Ok((status, body)) => (Some(status), Some(body), None),
            Err(reason) => (None, None, Some(reason)),
        };
        Self {
            url: tested.url,
            delivered: tested.is_delivered,
            status,
            response_body,
            error,
            duration_ms: tested.duration.as_secs_f64() * 1e3,
        }
    }
}

/// How far a subscription is behind.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LagShown {
    /// Documents on which it is behind.
    pub documents: usize,
    /// There may be more than were counted.
    pub is_lower_bound: bool,
    /// When the oldest of them changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = "date-time")]
    pub oldest_change: Option<String>,
    /// How many wait for another attempt.
    pub retries: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = "date-time")]
    pub next_retry: Option<String>,
}

impl From<Lag> for LagShown {
    fn from(lag: Lag) -> Self {
        Self {
            documents: lag.documents,
            is_lower_bound: lag.is_lower_bound,
            oldest_change: lag.oldest.map(|at| at.to_string()),
            retries: lag.retries,
            next_retry: lag.next_retry.map(|at| at.to_string()),
        }
    }
}

/// A document on which a subscription is behind.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BehindShown {
    /// The URL of the document.
    pub document: String,
    /// The revision that it should have.
    #[schema(value_type = RevisionValue)]
    pub revision: Box<RawValue>,
    #[schema(format = "date-time")]
    pub updated_at: String,
}

impl BehindShown {
    pub fn of(behind: &Behind, stream: &Stream) -> Self {
        Self {
            document: behind.url.as_str().to_owned(),
            revision: revision(stream, behind.revision),
            updated_at: behind.updated_at.to_string(),
        }
    }
}

/// Documents on which a subscription is behind.
#[derive(Serialize, ToSchema)]
pub(crate) struct BehindList {
    pub documents: Vec<BehindShown>,
}

/// What a resync found.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResyncShown {
    /// Documents that the subscription should have had; it is told of them now.
    pub repaired: usize,
    /// There may be more: resync again.
    pub has_more: bool,
}

impl From<Resync> for ResyncShown {
    fn from(resync: Resync) -> Self {
        Self { repaired: resync.repaired, has_more: resync.has_more }
    }
}

/// A revision as the resource writes it.
pub(crate) fn revision(stream: &Stream, revision: flare_core::revision::Revision) -> Box<RawValue> {
    RawValue::from_string(stream.change.format.render(revision)).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
