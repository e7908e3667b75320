//! Which partitions an outlet has in tables that are too long for one.

use flare_core::{OutletId, Result};
use flare_toolkit::rows::damaged;

use crate::{
    Core,
    layout::{self, ALL_OUTLETS, STANDINGS},
    statement::{Plan, Query},
};

const READ: Query =
    Query::new("SELECT start, retries, dead_letters, attempts FROM standings WHERE part = ? AND outlet = ?");
const READ_ALL: Query = Query::new("SELECT outlet, attempts FROM standings WHERE part = ?");
const READ_LETTERS: Query = Query::new("SELECT outlet, dead_letters FROM standings WHERE part = ?");
const UNLIST_ATTEMPTS: Query = Query::new("UPDATE standings SET attempts = attempts - ? WHERE part = ? AND outlet = ?");
pub(crate) const REMOVE: Query = Query::new("DELETE FROM standings WHERE part = ? AND outlet = ?");

/// The partitions of an outlet, in order.
pub(crate) struct Buckets {
    pub is_there: bool,
    pub retries: Vec<i32>,
    pub dead_letters: Vec<i32>,
    pub attempts: Vec<i32>,
}

/// None if the outlet is not there.
pub(crate) async fn buckets(core: &Core, outlet: OutletId) -> Result<Option<Buckets>> {
    Ok(leftover(core, outlet).await?.filter(|buckets| buckets.is_there))
}

/// What there is of an outlet, even if it was deleted.
pub(crate) async fn leftover(core: &Core, outlet: OutletId) -> Result<Option<Buckets>> {
    type Row = (Option<i64>, Option<Vec<i32>>, Option<Vec<i32>>, Option<Vec<i32>>);
    let row: Option<Row> = core.connection.row(READ, (ALL_OUTLETS, &outlet.as_bytes()[..])).await?;
    let in_order = |buckets: Option<Vec<i32>>| {
        let mut buckets = buckets.unwrap_or_default();
        buckets.sort_unstable();
        buckets
    };
    Ok(row.map(|(start, retries, dead_letters, attempts)| Buckets {
        is_there: start.is_some(),
        retries: in_order(retries),
        dead_letters: in_order(dead_letters),
        attempts: in_order(attempts),
    }))
}

/// Days of attempts before this one, of all outlets.
pub(crate) async fn attempts_before(core: &Core, today: i32) -> Result<Vec<(OutletId, i32)>> {
    let mut rows = core.connection.stream::<(Vec<u8>, Option<Vec<i32>>)>(READ_ALL, (ALL_OUTLETS,)).await?;
    let mut all = Vec::new();
    while let Some((id, days)) = rows.next().await? {
        let id = OutletId::from_bytes(id.try_into().map_err(|_| damaged("standing"))?);
        let past = days.unwrap_or_default().into_iter().filter(|day| *day < today);
        all.extend(past.map(|day| (id, day)));
    }
    Ok(all)
}

/// The outlets that have dead letters.
pub(crate) async fn with_letters(core: &Core) -> Result<Vec<OutletId>> {
    let mut rows = core.connection.stream::<(Vec<u8>, Option<Vec<i32>>)>(READ_LETTERS, (ALL_OUTLETS,)).await?;
    let mut all = Vec::new();
    while let Some((id, buckets)) = rows.next().await? {
        if buckets.is_some_and(|buckets| !buckets.is_empty()) {
            all.push(OutletId::from_bytes(id.try_into().map_err(|_| damaged("standing"))?));
        }
    }
    Ok(all)
}

/// A day of attempts is over: nothing is recorded for it any more.
pub(crate) async fn unlist_attempts(core: &Core, outlet: OutletId, day: i32) -> Result<()> {
    let mut plan = Plan::default();
    let row = (vec![day], ALL_OUTLETS, outlet.as_bytes().to_vec());
    plan.add(STANDINGS, &[], UNLIST_ATTEMPTS, row, 0);
    core.connection.write(layout::FOR_GOOD, plan).await
}
