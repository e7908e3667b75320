//! What the client of a passive subscription asks and says, on the wire.

use flare_core::stream::Stream;
use flare_node::{Message, ReceiptError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{document::RevisionValue, life::revision};

/// How many more messages the client asks for.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewDemand {
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub quantity: u64,
}

/// How many messages are asked for and not yet sent.
#[derive(Serialize, ToSchema)]
pub(crate) struct Demand {
    pub left: u64,
}

/// A leased message.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessageShown {
    /// The URL of the document.
    pub id: String,
    /// For `ack`, `nack` and `extend`, as long as the lease lasts.
    pub receipt: String,
    pub action: &'static str,
    #[schema(value_type = RevisionValue)]
    pub revision: Box<RawValue>,
    #[schema(format = "date-time")]
    pub updated_at: String,
    /// One for the first time.
    pub attempt: u32,
    #[schema(format = "date-time")]
    pub leased_until: String,
    /// Absent when the document was deleted, or `content.document` is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Object)]
    pub document: Option<Box<RawValue>>,
}

impl MessageShown {
    pub fn of(message: &Message, stream: &Stream, with_document: bool) -> Self {
        let change = &message.change;
        let content = change.content.as_ref().filter(|_| with_document);
        let document = content.and_then(|content| std::str::from_utf8(content).ok());
        Self {
            id: change.url.as_str().to_owned(),
            receipt: message.receipt.clone(),
            action: message.action.as_str(),
            revision: revision(stream, change.revision),
            updated_at: change.updated_at.to_string(),
            attempt: message.attempt,
            leased_until: message.leased_until.to_string(),
            document: document.and_then(|json| RawValue::from_string(json.to_owned()).ok()),
        }
    }
}

/// Leased messages.
#[derive(Serialize, ToSchema)]
pub(crate) struct MessageList {
    pub messages: Vec<MessageShown>,
}

/// Receipts of messages that are done.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Acknowledgement {
    #[schema(min_items = 1, max_items = 1000)]
    pub receipts: Vec<String>,
}

/// Receipts of messages that are offered again.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refusal {
    #[schema(min_items = 1, max_items = 1000)]
    pub receipts: Vec<String>,
    /// How long not to offer them: a whole number with `ms`, `s`, `m` or `h`. At once if it is absent.
    #[schema(pattern = "^[0-9]+(ms|s|m|h)$", examples("10s"))]
    pub delay: Option<String>,
}

/// Receipts of messages that are kept for longer.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extension {
    #[schema(min_items = 1, max_items = 1000)]
    pub receipts: Vec<String>,
    /// From now on: a whole number with `ms`, `s`, `m` or `h`. 30 seconds if it is absent.
    #[schema(pattern = "^[0-9]+(ms|s|m|h)$", examples("30s"))]
    pub lease: Option<String>,
}

/// What became of the receipts.
#[derive(Serialize, ToSchema)]
pub(crate) struct Settled {
    /// How many receipts did what was asked.
    pub done: usize,
    /// Those that did nothing.
    pub refused: Vec<RefusedReceipt>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct RefusedReceipt {
    pub receipt: String,
    pub reason: &'static str,
}

impl Settled {
    pub fn of(receipts: Vec<String>, results: &[Result<(), ReceiptError>]) -> Self {
        let reason = |error: &ReceiptError| match error {
            ReceiptError::Malformed => "this is not a receipt",
            ReceiptError::Unknown => "its lease has ended, or there was none; the message may be pulled again",
        };
        let refused = receipts.into_iter().zip(results).filter_map(|(receipt, result)| {
            let reason = reason(result.as_ref().err()?);
            Some(RefusedReceipt { receipt, reason })
        });
        Self { done: results.iter().filter(|result| result.is_ok()).count(), refused: refused.collect() }
    }
}
