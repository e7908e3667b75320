//! The log of attempts.

use std::{collections::VecDeque, ops::ControlFlow};

use bytes::Bytes;
use flare_core::{
    OutletId, Result,
    delivery::{AttemptQuery, AttemptRecord},
};
use jiff::Timestamp;

use crate::{KeyValue, Table, keys, rows};

/// Rows of an outlet's log that are read for a page, newest last: a map is scanned in one direction only.
const ROWS_MAX: usize = 4096;
/// Keys removed at once.
const STEP_KEYS_MAX: usize = 2048;

/// The newest attempts that match. The keys of the outlet's whole log are passed over; of its rows, only as many are
/// decoded as the page needs.
pub(super) fn find(map: &dyn KeyValue, outlet: OutletId, query: &AttemptQuery) -> Result<Vec<AttemptRecord>> {
    let since = query.since.unwrap_or(Timestamp::UNIX_EPOCH);
    let starts = row_starts(map, outlet, query.before.unwrap_or(Timestamp::MAX))?;
    let mut found = Vec::new();
    for start in starts.into_iter().rev() {
        let Some(row) = map.get(Table::Attempts, &start)? else { continue };
        let attempts = rows::decode_attempts(row)?;
        let newest = attempts.last().map(|attempt| attempt.at);
        found.extend(attempts.into_iter().rev().filter(|attempt| query.matches(attempt)));
        if found.len() >= query.limit || newest.is_some_and(|newest| newest < since) {
            break;
        }
    }
    found.truncate(query.limit);
    Ok(found)
}

/// The keys of the newest rows that begin before `end`, oldest first.
fn row_starts(map: &dyn KeyValue, outlet: OutletId, end: Timestamp) -> Result<VecDeque<Bytes>> {
    let mut starts = VecDeque::new();
    map.scan(Table::Attempts, outlet.as_bytes(), &keys::outlet_time(outlet, end), &mut |key, _| {
        starts.push_back(key);
        if starts.len() > ROWS_MAX {
            starts.pop_front();
        }
        ControlFlow::Continue(())
    })?;
    Ok(starts)
}

/// The keys of rows that began before `older_than`, in steps.
pub(super) fn old(map: &dyn KeyValue, older_than: Timestamp) -> Result<Vec<Vec<Bytes>>> {
    let limit = keys::nanos(older_than);
    let mut steps: Vec<Vec<Bytes>> = Vec::new();
    map.scan(Table::Attempts, &[], &[u8::MAX; 25], &mut |key, _| {
        if keys::tail::<8>(&key).is_some_and(|at| u64::from_be_bytes(at) < limit) {
            match steps.last_mut() {
                Some(step) if step.len() < STEP_KEYS_MAX => step.push(key),
                _ => steps.push(vec![key]),
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok(steps)
}
