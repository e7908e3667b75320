//! Work on the store that nobody waits for, in small steps.

use std::ops::ControlFlow;

use bytes::Bytes;
use flare_core::Result;
use jiff::Timestamp;

use crate::{KeyValue, Row, Table, keys, rows};

/// Rows removed in one step while a deleted stream or outlet is purged.
const PURGE_ROWS_MAX: usize = 2048;

/// A step of work that nobody waits for.
pub(crate) struct Chore {
    pub rows: Vec<Row>,
    /// There may be more to do.
    pub more: bool,
}

/// Removes some rows of a deleted stream or outlet, and the note of the deletion when none are left.
pub(crate) fn purge_some(map: &dyn KeyValue) -> Result<Chore> {
    let Some(purge) = first_purge(map)? else { return Ok(Chore { rows: Vec::new(), more: false }) };
    let mut removed = Vec::new();
    for table in purge.tables {
        let prefix = &purge.id[..];
        map.scan(*table, prefix, &keys::after_prefix(prefix), &mut |key, _| {
            removed.push(Row { table: *table, key, value: None });
            if removed.len() < PURGE_ROWS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if removed.len() >= PURGE_ROWS_MAX {
            return Ok(Chore { rows: removed, more: true });
        }
    }
    removed.push(Row { table: Table::Meta, key: purge.note, value: None });
    Ok(Chore { rows: removed, more: true })
}

pub(crate) fn expire_idempotency_keys(map: &dyn KeyValue) -> Result<Chore> {
    let oldest = Timestamp::now() - flare_core::port::Idempotency::RETENTION;
    let mut removed = Vec::new();
    let prefix = keys::IDEMPOTENCY_KEYS;
    map.scan(Table::Meta, prefix, &keys::after_prefix(prefix), &mut |key, value| {
        if rows::idempotency_at(&value).is_none_or(|at| at < oldest) {
            removed.push(Row { table: Table::Meta, key, value: None });
        }
        ControlFlow::Continue(())
    })?;
    Ok(Chore { rows: removed, more: false })
}

/// What is left to remove of something deleted.
struct Purge {
    note: Bytes,
    id: [u8; 16],
    tables: &'static [Table],
}

pub(crate) const PURGE_STREAM: u8 = b's';
pub(crate) const PURGE_OUTLET: u8 = b'o';

fn first_purge(map: &dyn KeyValue) -> Result<Option<Purge>> {
    let mut found = None;
    map.scan(Table::Meta, keys::PURGES, &keys::after_prefix(keys::PURGES), &mut |key, _| {
        let kind = key.get(2).copied();
        let tables: &[Table] = match kind {
            Some(PURGE_STREAM) => &[Table::Heads, Table::Changes],
            _ => {
                &[Table::Versions, Table::Retries, Table::DeadLetters, Table::Attempts, Table::Demands, Table::Cursors]
            }
        };
        found = keys::tail::<16>(&key).map(|id| Purge { note: key, id, tables });
        ControlFlow::Break(())
    })?;
    Ok(found)
}
