//! Rows of entities: streams, outlets, tokens, and a few more that are small and few. They are changed by turns of
//! the log, like documents, so that every check and the write that follows from it are one step.

use std::collections::BTreeMap;

use flare_core::{Result, StreamId};
use flare_toolkit::rows::damaged;
use uuid::Uuid;

use crate::{
    Core,
    connection::Connection,
    group::{self, RowChange},
    layout::{ALL_OUTLETS, ENTITIES, STANDINGS},
    log::{self, Appended, Kind, Turn},
    operation::{Operation, Outcome},
    state::{Group, Placed, Swept},
    statement::{Plan, Query},
    writer::{LOST_MAX, always_late},
};

pub(crate) const KIND_STREAM: &str = "stream";
pub(crate) const KIND_OUTLET: &str = "outlet";
pub(crate) const KIND_TOKEN: &str = "token";
pub(crate) const KIND_REPLAY: &str = "replay";
/// What is left to remove of something deleted.
pub(crate) const KIND_PURGE: &str = "purge";
/// How many documents a stream has.
pub(crate) const KIND_COUNT: &str = "count";
/// Times, and how far the sequences were then.
pub(crate) const KIND_CLOCK: &str = "clock";
/// Where an outlet begins; it rests in `standings`.
pub(crate) const KIND_STANDING: &str = "standing";
/// How far sweeps are; it rests in `state`.
pub(crate) const KIND_SWEPT: &str = "swept";
/// Up to which bucket the log is removed.
pub(crate) const KIND_TRIMMED: &str = "trimmed";
const KEY_PREFIX: &str = "key:";

/// The partitions of a stream's heads.
pub(crate) fn kind_shards(stream: StreamId) -> String {
    format!("shards:{stream}")
}

/// The outlets of a stream.
pub(crate) fn kind_outlets(stream: StreamId) -> String {
    format!("outlets:{stream}")
}

/// An idempotency key: a partition of its own, which goes by itself.
pub(crate) fn kind_key(key: &str) -> String {
    format!("{KEY_PREFIX}{key}")
}

/// Whether nodes are to look at streams, outlets and tokens again.
pub(crate) fn is_entity(kind: &str) -> bool {
    matches!(kind, KIND_STREAM | KIND_OUTLET | KIND_TOKEN)
}

/// Times before 1970 are all one.
pub(crate) fn clock_id(at_ms: i64) -> Vec<u8> {
    (at_ms.max(0) as u64).to_be_bytes().to_vec()
}

pub(crate) fn swept_row(swept: Swept) -> RowChange {
    let row = format!("{} {}", swept.from, swept.to);
    RowChange { kind: KIND_SWEPT.into(), id: Vec::new(), row: Some(row) }
}

pub(crate) fn decode_swept(row: &RowChange) -> Result<Swept> {
    let numbers = row.row.as_deref().and_then(|row| row.split_once(' '));
    let numbers = numbers.and_then(|(from, to)| Some(Swept { from: from.parse().ok()?, to: to.parse().ok()? }));
    numbers.ok_or_else(|| damaged("sweep"))
}

pub(crate) const PUT: Query = Query::new("INSERT INTO entities (kind, id, row) VALUES (?, ?, ?)");
/// Twice as long as a key is remembered at least.
const PUT_KEY: Query = Query::new("INSERT INTO entities (kind, id, row) VALUES (?, ?, ?) USING TTL 172800");
const REMOVE: Query = Query::new("DELETE FROM entities WHERE kind = ? AND id = ?");
pub(crate) const REMOVE_KIND: Query = Query::new("DELETE FROM entities WHERE kind = ?");
const READ: Query = Query::new("SELECT row FROM entities WHERE kind = ? AND id = ?");
const READ_ALL: Query = Query::new("SELECT id, row FROM entities WHERE kind = ?");
const READ_PAGE: Query = Query::new("SELECT id, row FROM entities WHERE kind = ? AND id > ? LIMIT ?");
const READ_LAST: Query = Query::new("SELECT row FROM entities WHERE kind = ? AND id <= ? ORDER BY id DESC LIMIT 1");
pub(crate) const LAST_ID: Query =
    Query::new("SELECT id FROM entities WHERE kind = ? AND id <= ? ORDER BY id DESC LIMIT 1");
pub(crate) const REMOVE_BEFORE: Query = Query::new("DELETE FROM entities WHERE kind = ? AND id < ?");
const BEGIN_OUTLET: Query = Query::new("UPDATE standings SET start = ? WHERE part = ? AND outlet = ?");
const END_OUTLET: Query = Query::new("DELETE start FROM standings WHERE part = ? AND outlet = ?");

/// The writes that a turn of rows comes to.
pub(crate) fn plan(rows: &[RowChange]) -> Plan {
    let mut plan = Plan::default();
    for change in rows {
        let (kind, id) = (change.kind.clone(), change.id.clone());
        let partition: &[&[u8]] = &[change.kind.as_bytes()];
        match (change.kind.as_str(), &change.row) {
            (KIND_SWEPT, _) => {}
            (KIND_STANDING, Some(start)) => {
                let start: i64 = start.parse().unwrap_or_default();
                plan.add(STANDINGS, &[], BEGIN_OUTLET, (start, ALL_OUTLETS, id), 0);
            }
            (KIND_STANDING, None) => plan.add(STANDINGS, &[], END_OUTLET, (ALL_OUTLETS, id), 0),
            (name, Some(row)) => {
                let put = if name.starts_with(KEY_PREFIX) { PUT_KEY } else { PUT };
                plan.add(ENTITIES, partition, put, (kind, id, row.clone()), row.len());
            }
            (_, None) => plan.add(ENTITIES, partition, REMOVE, (kind, id), 0),
        }
    }
    plan
}

pub(crate) async fn read(connection: &Connection, kind: &str, id: &[u8]) -> Result<Option<String>> {
    let row: Option<(Option<String>,)> = connection.row(READ, (kind, id)).await?;
    Ok(row.and_then(|(row,)| row))
}

/// All rows of a kind. Only for kinds of which there are few.
pub(crate) async fn read_all(connection: &Connection, kind: &str) -> Result<Vec<(Vec<u8>, String)>> {
    let mut rows = connection.stream::<(Vec<u8>, Option<String>)>(READ_ALL, (kind,)).await?;
    let mut all = Vec::new();
    while let Some((id, row)) = rows.next().await? {
        all.push((id, row.unwrap_or_default()));
    }
    Ok(all)
}

/// The rows of a kind after an id, in order of the ids.
pub(crate) async fn read_page(
    connection: &Connection,
    kind: &str,
    after: &[u8],
    limit: usize,
) -> Result<Vec<(Vec<u8>, String)>> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let limit = i32::try_from(limit).unwrap_or(i32::MAX);
    let rows: Vec<(Vec<u8>, Option<String>)> = connection.rows(READ_PAGE, (kind, after, limit)).await?;
    Ok(rows.into_iter().map(|(id, row)| (id, row.unwrap_or_default())).collect())
}

/// The last row of a kind up to an id.
pub(crate) async fn read_last(connection: &Connection, kind: &str, until: &[u8]) -> Result<Option<String>> {
    let row: Option<(Option<String>,)> = connection.row(READ_LAST, (kind, until)).await?;
    Ok(row.and_then(|(row,)| row))
}

pub(crate) async fn read_count(connection: &Connection, stream: StreamId) -> Result<u64> {
    let row = read(connection, KIND_COUNT, stream.as_bytes()).await?;
    row.map_or(Ok(0), |row| row.parse().map_err(|_| damaged("count")))
}

impl Core {
    /// Does an operation as one turn of the log.
    pub async fn operate(&self, operation: &Operation) -> Result<Outcome> {
        let mut state = self.state.lock().await;
        for _ in 0..LOST_MAX {
            self.catch_up(&mut state).await?;
            let (rows, outcome) = operation.decide(&self.connection, &state).await?;
            if rows.is_empty() {
                return Ok(outcome);
            }
            let group = Uuid::new_v4();
            group::write_rows(&self.connection, group, &rows).await?;
            let turn =
                Turn { turn: state.turn + 1, group, kind: Kind::Rows, last: state.sequence, counts: BTreeMap::new() };
            match log::append(&self.connection, &turn).await? {
                Appended::Yes => {
                    let first = state.sequence + 1;
                    let placed = Placed { turn, first, group: Group::Rows(rows) };
                    self.settle(&mut state, placed).await?;
                    return Ok(outcome);
                }
                Appended::Lost => {
                    group::remove(&self.connection, group).await;
                    self.lost(&mut state).await?;
                }
            }
        }
        Err(always_late())
    }
}
