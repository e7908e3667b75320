//! Filters of subscriptions on the wire.

use flare_core::filter::Filter;
use flare_node::FilterProblem;
use serde::Serialize;
use utoipa::ToSchema;

use super::Refusal;

/// A refusal says where in the expression the mistake is, as line and column.
pub(crate) fn read(text: Option<&str>) -> Result<Option<Filter>, Refusal> {
    text.map(Filter::parse).transpose().map_err(|error| Refusal::because("filter", error))
}

/// The last document that the filter did not fit, since the server started. It counted as no match.
#[derive(Serialize, ToSchema)]
#[schema(as = FilterProblem)]
pub(crate) struct FilterProblemShown {
    #[schema(format = "date-time")]
    pub at: String,
    /// The URL of the document.
    pub document: String,
    pub reason: String,
}

impl From<FilterProblem> for FilterProblemShown {
    fn from(problem: FilterProblem) -> Self {
        Self {
            at: problem.at.to_string(),
            document: problem.document.as_str().to_owned(),
            reason: problem.reason.to_string(),
        }
    }
}
