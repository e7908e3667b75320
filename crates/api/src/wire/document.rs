//! Documents on the wire: lists, and the items and the report of a bulk write.

use flare_core::{document::Change, revision::RevisionFormat};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::page::Pagination;

/// A document in a list.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document<'a> {
    /// Its URL.
    pub id: &'a str,
    /// As in its change field: an integer, or a time in UTC as in RFC 3339.
    #[schema(value_type = RevisionValue)]
    pub revision: Box<RawValue>,
    /// When Flare took it in.
    #[schema(format = "date-time")]
    pub updated_at: String,
    #[schema(value_type = Object)]
    pub document: &'a RawValue,
}

/// An integer, or a time as in RFC 3339.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it only describes what a format renders")]
pub(crate) enum RevisionValue {
    Integer(i64),
    Time(String),
}

impl<'a> Document<'a> {
    /// `None` if the content is not JSON, which the intake does not let in.
    pub fn of(change: &'a Change, format: &RevisionFormat) -> Option<Self> {
        Some(Self {
            id: change.url.as_str(),
            revision: RawValue::from_string(format.render(change.revision)).ok()?,
            updated_at: change.updated_at.to_string(),
            document: serde_json::from_slice(change.content.as_deref()?).ok()?,
        })
    }
}

/// A page of documents, in the order of their URLs.
#[derive(Serialize, ToSchema)]
pub(crate) struct DocumentList<'a> {
    pub documents: Vec<Document<'a>>,
    pub pagination: Pagination,
}

/// One document of a bulk write: with `document` it is put, with `delete` it is deleted.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(
    json!({ "id": "http://api.company.com/users/1", "document": { "updatedAt": "2026-01-01T00:00:00Z" } }),
    json!({ "id": "http://api.company.com/users/2", "delete": true })
))]
pub(crate) struct BulkItem<'a> {
    /// Its URL.
    #[serde(borrow)]
    pub id: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>)]
    pub document: Option<&'a RawValue>,
    pub delete: Option<bool>,
    /// Of a delete: the revision at which it happened. Without it, it counts as the newest news.
    #[serde(borrow, default)]
    #[schema(value_type = Option<RevisionValue>)]
    pub revision: Option<&'a RawValue>,
}

/// What became of a bulk write. The three counts add up to the documents sent.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct BulkReport {
    /// New revisions, which are announced.
    #[schema(minimum = 0)]
    pub accepted: u64,
    /// The same or older revisions, which announce nothing.
    #[schema(minimum = 0)]
    pub unchanged: u64,
    /// What could not be taken; nothing was written of it.
    #[schema(minimum = 0)]
    pub failed: u64,
    /// The first failures, 100 at most.
    #[schema(max_items = 100)]
    pub errors: Vec<BulkError>,
}

/// Why one document of a bulk write was not taken.
#[derive(Serialize, ToSchema)]
pub(crate) struct BulkError {
    /// The line of the NDJSON, or the place in the array; the first is 1.
    #[schema(minimum = 1)]
    pub line: u64,
    /// Its URL, where it could be read.
    pub id: Option<String>,
    pub error: BulkErrorDetail,
}

/// What is wrong with one document.
#[derive(Serialize, ToSchema)]
pub(crate) struct BulkErrorDetail {
    pub code: &'static str,
    pub title: &'static str,
    pub detail: String,
}

/// The answer when no document could be taken.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes an error with a report")]
pub(crate) struct BulkRefusal<'a> {
    pub error: crate::error::ErrorDetail<'a>,
    pub accepted: u64,
    pub unchanged: u64,
    pub failed: u64,
    pub errors: Vec<BulkError>,
}
