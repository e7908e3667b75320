//! The log of attempts.

use std::ops::ControlFlow;

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

/// The newest attempts that match. Looks at the newest rows in windows of time that grow, so that a page of recent
/// attempts does not read the whole log.
pub(super) fn find(map: &dyn KeyValue, outlet: OutletId, query: &AttemptQuery) -> Result<Vec<AttemptRecord>> {
    let end = query.before.unwrap_or(Timestamp::MAX);
    let since = query.since.unwrap_or(Timestamp::UNIX_EPOCH);
    let mut found = std::collections::VecDeque::new();
    let mut failure = None;
    let mut starts = row_starts(map, outlet, end)?;
    // The row that holds `since` begins before it.
    while let Some(start) = starts.pop() {
        let Some(row) = map.get(Table::Attempts, &start)? else { continue };
        match rows::decode_attempts(row) {
            Ok(attempts) => {
                let newest = attempts.last().map(|attempt| attempt.at);
                found.extend(attempts.into_iter().rev().filter(|attempt| query.matches(attempt)));
                if found.len() >= query.limit || newest.is_some_and(|newest| newest < since) {
                    break;
                }
            }
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    found.truncate(query.limit);
    failure.map_or_else(|| Ok(found.into()), Err)
}

/// The keys of the newest rows that begin before `end`, oldest first.
fn row_starts(map: &dyn KeyValue, outlet: OutletId, end: Timestamp) -> Result<Vec<Bytes>> {
    let mut starts = std::collections::VecDeque::new();
    map.scan(Table::Attempts, outlet.as_bytes(), &keys::outlet_time(outlet, end), &mut |key, _| {
        starts.push_back(key);
        if starts.len() > ROWS_MAX {
            starts.pop_front();
        }
        ControlFlow::Continue(())
    })?;
    Ok(starts.into())
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
