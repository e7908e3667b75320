//! The log of attempts: a partition for each outlet and day, which Cassandra drops by itself in the end.

use flare_core::{
    OutletId, Result,
    delivery::{AttemptQuery, AttemptRecord},
};
use flare_toolkit::rows::decode_attempts;
use jiff::Timestamp;

use crate::{
    Core,
    layout::{self, ATTEMPTS, STATE, outlet_uuid},
    standing::{self, Buckets},
    statement::{Plan, Query},
};

const READ: Query = Query::new("SELECT at, attempts FROM attempts WHERE outlet = ? AND day = ? AND at < ? AND at >= ?");
pub(crate) const REMOVE_DAY: Query = Query::new("DELETE FROM attempts WHERE outlet = ? AND day = ?");
const PUT_HORIZON: Query = Query::new("UPDATE state SET turn = ? WHERE name = 'attempts'");
const READ_HORIZON: Query = Query::new("SELECT turn FROM state WHERE name = 'attempts'");
/// Rows that are read for a page, newest first.
const ROWS_MAX: usize = 4096;

pub(crate) async fn find(core: &Core, outlet: OutletId, query: &AttemptQuery) -> Result<Vec<AttemptRecord>> {
    let Some(Buckets { attempts: days, .. }) = standing::buckets(core, outlet).await? else { return Ok(Vec::new()) };
    let horizon = horizon(core).await?;
    let before = query.before.map_or(i64::MAX, layout::nanos);
    let (mut found, mut passed) = (Vec::new(), 0);
    for day in days.into_iter().rev() {
        let range = (outlet_uuid(outlet), day, before, horizon);
        let mut rows = core.connection.stream::<(i64, Option<Vec<u8>>)>(READ, range).await?;
        while let Some((_, row)) = rows.next().await? {
            let attempts = decode_attempts(row.unwrap_or_default().into())?;
            let newest = attempts.last().map(|attempt| attempt.at);
            found.extend(attempts.into_iter().rev().filter(|attempt| query.matches(attempt)));
            passed += 1;
            let is_past = query.since.zip(newest).is_some_and(|(since, newest)| newest < since);
            if found.len() >= query.limit || is_past || passed >= ROWS_MAX {
                found.truncate(query.limit);
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Nobody sees attempts from before this time any more. Whole days of them are removed.
pub(crate) async fn forget(core: &Core, older_than: Timestamp) -> Result<()> {
    let nanos = layout::nanos(older_than);
    let mut plan = Plan::default();
    // It only ever rises: a later time has the newer timestamp.
    plan.add(STATE, &[], PUT_HORIZON, (nanos,), 0);
    core.connection.write(nanos, plan).await?;
    let today = layout::day(older_than);
    for (outlet, day) in standing::attempts_before(core, today).await? {
        let mut plan = Plan::default();
        plan.add(ATTEMPTS, &[], REMOVE_DAY, (outlet_uuid(outlet), day), 0);
        core.connection.write(layout::FOR_GOOD, plan).await?;
        standing::unlist_attempts(core, outlet, day).await?;
    }
    Ok(())
}

async fn horizon(core: &Core) -> Result<i64> {
    let row: Option<(Option<i64>,)> = core.connection.row(READ_HORIZON, ()).await?;
    Ok(row.and_then(|(nanos,)| nanos).unwrap_or(i64::MIN))
}
