//! Where a page stands in its list.

use serde::Serialize;
use utoipa::ToSchema;

use crate::parameters::PageQuery;

/// Where a page stands in its list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Pagination {
    /// How many entities the page could hold; the next page is at `offset` + `limit`. A page of large documents holds
    /// fewer than were asked for.
    #[schema(minimum = 1)]
    pub limit: u64,
    /// How many entities are before the page.
    #[schema(minimum = 0)]
    pub offset: u64,
    /// How many entities there are in all.
    #[schema(minimum = 0)]
    pub total: u64,
}

impl Pagination {
    pub fn new(page: PageQuery, total: usize) -> Self {
        Self { limit: page.limit as u64, offset: page.offset as u64, total: total as u64 }
    }
}
