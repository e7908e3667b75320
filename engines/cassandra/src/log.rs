//! The log: the one order of everything that happens to the store.
//!
//! Every turn is decided once. A turn is appended by one conditional batch on the partition of its bucket: it moves
//! `head` from the turn before, and adds the row that names the group. The node that appends has seen all turns
//! before, so what it decided from them still holds if, and only if, the batch is applied. The head of a bucket is
//! never removed, so a node that comes back after days cannot append to what is long past.
//!
//! A batch whose answer is lost is sent again as it was. Either it is applied now, or the turn is taken; then the row
//! says by whom, and both answers are final.

use std::{collections::BTreeMap, time::Duration};

use flare_core::{Error, Result, StreamId};
use flare_toolkit::rows::damaged;
use jiff::Timestamp;
use scylla::value::CqlTimestamp;
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    connection::{Connection, Decision},
    layout::{self, LOG_BUCKET},
    statement::Query,
};

const MOVE_HEAD: Query = Query::conditional("UPDATE log SET head = ? WHERE bucket = ? IF head = ?");
const INSERT: Query =
    Query::conditional("INSERT INTO log (bucket, turn, group_id, kind, last, counts, at) VALUES (?, ?, ?, ?, ?, ?, ?)");
const READ_AFTER: Query =
    Query::new("SELECT turn, group_id, kind, last, counts FROM log WHERE bucket = ? AND turn > ? LIMIT 200");
const EXISTS: Query = Query::new("SELECT turn FROM log WHERE bucket = ? AND turn = ?");
const READ_ONE: Query = Query::serial_read("SELECT group_id FROM log WHERE bucket = ? AND turn = ?");
pub(crate) const TRIM: Query = Query::new("DELETE FROM log WHERE bucket = ? AND turn >= ? AND turn < ?");

/// How long a node tries to learn what became of an append.
const UNKNOWN_MAX: Duration = Duration::from_secs(30);
const UNKNOWN_WAIT: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Changes of documents.
    Changes,
    /// Rows of entities.
    Rows,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Changes => "changes",
            Self::Rows => "rows",
        }
    }
}

/// A row of the log.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub turn: u64,
    pub group: Uuid,
    pub kind: Kind,
    /// The sequence of the last change so far.
    pub last: u64,
    /// How many documents the streams have that gained or lost some.
    pub counts: BTreeMap<StreamId, u64>,
}

pub(crate) enum Appended {
    Yes,
    /// Another node was first.
    Lost,
}

/// Appends the turn if nobody else has.
///
/// `Unavailable` means that it is not in the log and never will be; any other error that nobody knows.
pub(crate) async fn append(connection: &Connection, turn: &Turn) -> Result<Appended> {
    let end = Instant::now() + UNKNOWN_MAX;
    let mut is_first = true;
    loop {
        let error = match connection.compare_and_set(batch(turn)).await {
            Decision::Applied => return Ok(Appended::Yes),
            Decision::Refused if is_first => return Ok(Appended::Lost),
            Decision::Refused => match holder(connection, turn.turn).await {
                Ok(Some(group)) if group == turn.group => return Ok(Appended::Yes),
                Ok(Some(_)) => return Ok(Appended::Lost),
                // The head has moved without its row: a later look tells.
                Ok(None) => damaged("log"),
                Err(error) => error,
            },
            Decision::NotTried(error) if is_first => return Err(error),
            Decision::NotTried(error) | Decision::Unknown(error) => error,
        };
        is_first = false;
        if connection.is_closed() || Instant::now() >= end {
            let unknown = "nobody knows whether the write was made: the same write again does no harm";
            return Err(Error::internal(unknown).because(error));
        }
        tokio::time::sleep(UNKNOWN_WAIT).await;
    }
}

fn batch(turn: &Turn) -> Vec<(Query, Box<dyn scylla::serialize::row::SerializeRow + Send + Sync>)> {
    let bucket = layout::log_bucket(turn.turn);
    // The first turn of all is one.
    let is_first_of_bucket = turn.turn.is_multiple_of(LOG_BUCKET) || turn.turn == 1;
    let before = (!is_first_of_bucket).then(|| turn.turn as i64 - 1);
    let counts: BTreeMap<Uuid, i64> =
        turn.counts.iter().map(|(stream, count)| (layout::stream_uuid(*stream), *count as i64)).collect();
    let row = (
        bucket,
        turn.turn as i64,
        turn.group,
        turn.kind.as_str(),
        turn.last as i64,
        counts,
        CqlTimestamp(Timestamp::now().as_millisecond()),
    );
    vec![(MOVE_HEAD, Box::new((turn.turn as i64, bucket, before))), (INSERT, Box::new(row))]
}

async fn holder(connection: &Connection, turn: u64) -> Result<Option<Uuid>> {
    let row: Option<(Option<Uuid>,)> = connection.row(READ_ONE, (layout::log_bucket(turn), turn as i64)).await?;
    Ok(row.and_then(|(group,)| group))
}

/// Whether somebody has appended a turn after this one.
pub(crate) async fn has_after(connection: &Connection, after: u64) -> Result<bool> {
    let row: Option<(i64,)> = connection.row(EXISTS, (layout::log_bucket(after + 1), after as i64 + 1)).await?;
    Ok(row.is_some())
}

type TurnRow = (i64, Option<Uuid>, Option<String>, Option<i64>, Option<BTreeMap<Uuid, i64>>);

/// Some turns after this one, in order and without a gap; none if there are none.
pub(crate) async fn read_after(connection: &Connection, after: u64) -> Result<Vec<Turn>> {
    let rows: Vec<TurnRow> = connection.rows(READ_AFTER, (layout::log_bucket(after + 1), after as i64)).await?;
    let mut turns = Vec::with_capacity(rows.len());
    for (expected, row) in (after + 1..).zip(rows) {
        if row.0 as u64 != expected {
            break;
        }
        turns.push(decode(row).ok_or_else(|| damaged("log"))?);
    }
    Ok(turns)
}

fn decode((turn, group, kind, last, counts): TurnRow) -> Option<Turn> {
    let kind = [Kind::Changes, Kind::Rows].into_iter().find(|known| Some(known.as_str()) == kind.as_deref())?;
    let counts = counts.unwrap_or_default();
    let counts = counts.into_iter().map(|(stream, count)| (layout::stream_id(stream), count as u64)).collect();
    Some(Turn { turn: turn as u64, group: group?, kind, last: last? as u64, counts })
}
