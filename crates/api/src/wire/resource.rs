//! Resources on the wire.

use flare_core::{
    change::{ChangeRule, FieldPath},
    pattern::Pattern,
    revision::RevisionFormat,
    stream::Stream,
};
use flare_node::NewStream;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Refusal, json, page::Pagination};

/// A resource to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({
    "endpoint": "http://api.company.com/users/{id}",
    "change": { "field": "updatedAt", "format": "rfc3339" }
})))]
pub(crate) struct NewResource {
    /// Which URLs are its documents: scheme, host and path; whole path segments may be wildcards, `{name}` or `{*}`.
    /// No two resources may match the same URL.
    #[schema(max_length = 2048, pattern = r"^[hH][tT][tT][pP][sS]?://[^?#]+$")]
    pub endpoint: String,
    #[serde(deserialize_with = "json::object")]
    pub change: NewChange,
}

/// Where a document shows that it changed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChangeField)]
pub(crate) struct NewChange {
    /// A dotted path into the document, such as `updatedAt` or `meta.version`.
    #[schema(min_length = 1, max_length = 1024, pattern = r"^[^.]+(\.[^.]+){0,15}$")]
    pub field: String,
    /// How the field is written: `rfc3339`, a strftime pattern, or a Go reference layout. Without it the field is an
    /// integer.
    #[schema(max_length = 256)]
    pub format: Option<String>,
}

impl NewResource {
    pub fn into_domain(self) -> Result<NewStream, Refusal> {
        let endpoint = Pattern::parse(&self.endpoint).map_err(|error| Refusal::because("endpoint", error))?;
        let field = FieldPath::parse(&self.change.field).map_err(|error| Refusal::because("change.field", error))?;
        let format = match &self.change.format {
            Some(format) => RevisionFormat::parse(format).map_err(|error| Refusal::because("change.format", error))?,
            None => RevisionFormat::Integer,
        };
        Ok(NewStream { endpoint, change: ChangeRule { field, format } })
    }
}

/// A set of documents that a service publishes.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resource {
    #[schema(format = "uuid")]
    pub id: String,
    /// Which URLs are its documents.
    pub endpoint: String,
    pub change: ChangeShown,
    #[schema(format = "date-time")]
    pub created_at: String,
}

/// Where a document shows that it changed.
#[derive(Serialize, ToSchema)]
#[schema(as = ChangeFieldShown)]
pub(crate) struct ChangeShown {
    /// A dotted path into the document.
    pub field: String,
    /// How the field is written; absent for integers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub format: Option<String>,
}

impl From<&Stream> for Resource {
    fn from(stream: &Stream) -> Self {
        let change = ChangeShown {
            field: stream.change.field.as_str().to_owned(),
            format: stream.change.format.as_str().map(str::to_owned),
        };
        Self {
            id: stream.id.to_string(),
            endpoint: stream.endpoint.as_str().to_owned(),
            change,
            created_at: stream.created_at.to_string(),
        }
    }
}

/// A page of resources, in the order of their ids.
#[derive(Serialize, ToSchema)]
pub(crate) struct ResourceList {
    pub resources: Vec<Resource>,
    pub pagination: Pagination,
}
