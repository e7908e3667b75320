//! A group: what is appended to the log together. Its rows are written first, under a name of its own; the log then
//! only names it. Until it does, nobody reads them.
//!
//! A group does not know its sequences: they are given by its place in the log. What refers to a change of the same
//! group refers to its position. So a group that was not first can be appended again without being written again, as
//! long as nobody touched its documents.

use std::sync::Arc;

use bytes::Bytes;
use flare_core::{
    DocumentNumber, Result, Sequence, StreamId,
    document::{Change, WrittenChange},
    revision::Revision,
    trace::Trace,
    url::DocumentUrl,
};
use flare_toolkit::rows::{damaged, micros, timestamp};
use jiff::Timestamp;
use scylla::value::CqlVarint;
use uuid::Uuid;

use crate::{
    connection::Connection,
    layout::{self, CHANGES},
    statement::{Plan, Query},
};

const INSERT_CHANGE: Query = Query::new(
    "INSERT INTO changes (group_id, position, stream, url, number, revision, updated_at, deleted, replaces, bytes, \
     trace_parent, trace_state, content) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
);
const INSERT_ROW: Query = Query::new("INSERT INTO changes (group_id, position, kind, id, row) VALUES (?, ?, ?, ?, ?)");
const READ_CHANGES: Query = Query::new(
    "SELECT position, stream, url, number, revision, updated_at, deleted, replaces, bytes FROM changes \
     WHERE group_id = ?",
);
const READ_ROWS: Query = Query::new("SELECT kind, id, row FROM changes WHERE group_id = ?");
const READ_CONTENTS: Query =
    Query::new("SELECT position, trace_parent, trace_state, content FROM changes WHERE group_id = ?");
const READ_CONTENT: Query =
    Query::new("SELECT trace_parent, trace_state, content FROM changes WHERE group_id = ? AND position = ?");
const REMOVE: Query = Query::new("DELETE FROM changes WHERE group_id = ?");
pub(crate) const REMOVE_ONE: Query = Query::new("DELETE FROM changes WHERE group_id = ? AND position = ?");

/// A sequence, or the position of a change in the same group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reference {
    Sequence(u64),
    Position(u32),
}

impl Reference {
    pub fn resolve(self, first: u64) -> u64 {
        match self {
            Self::Sequence(sequence) => sequence,
            Self::Position(position) => first + u64::from(position),
        }
    }

    /// Positions are negative numbers, from minus one down.
    fn encode(self) -> i64 {
        match self {
            Self::Sequence(sequence) => sequence as i64,
            Self::Position(position) => -1 - i64::from(position),
        }
    }

    fn decode(value: i64) -> Self {
        if value < 0 { Self::Position((-1 - value) as u32) } else { Self::Sequence(value as u64) }
    }
}

/// A change in a group, without its content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub stream: StreamId,
    pub url: DocumentUrl,
    pub number: Reference,
    pub revision: Revision,
    pub updated_at: Timestamp,
    pub deleted: bool,
    pub replaces: Option<Reference>,
    /// Of the content and the trace; with none there is nothing more to read.
    pub bytes: u32,
}

/// What a change says, besides its entry.
#[derive(Clone, Default, Debug)]
pub(crate) struct Content {
    pub content: Option<Bytes>,
    pub trace: Option<Arc<Trace>>,
}

impl Content {
    pub fn bytes(&self) -> u32 {
        let trace = self.trace.as_ref().map_or(0, |trace| trace.memory_bytes());
        (self.content.as_ref().map_or(0, Bytes::len) + trace) as u32
    }
}

impl Entry {
    pub fn written(&self, position: usize, first: u64) -> WrittenChange {
        WrittenChange {
            sequence: Sequence(first + position as u64),
            number: DocumentNumber(self.number.resolve(first)),
            revision: self.revision,
            replaces: self.replaces.map(|replaced| Sequence(replaced.resolve(first))),
        }
    }

    pub fn change(&self, position: usize, first: u64, content: Content) -> Change {
        let written = self.written(position, first);
        Change::new(self.stream, &written, self.url.clone(), self.updated_at, content.content).with_trace(content.trace)
    }
}

/// A row of an entity that is set or removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RowChange {
    pub kind: String,
    pub id: Vec<u8>,
    pub row: Option<String>,
}

/// Writes the changes of a group. Nobody sees them before the group is in the log.
pub(crate) async fn write_changes(
    connection: &Connection,
    group: Uuid,
    changes: impl Iterator<Item = (&Entry, &Content)>,
) -> Result<()> {
    let mut plan = Plan::default();
    for (position, (entry, content)) in changes.enumerate() {
        let trace = content.trace.as_deref();
        let row = (
            group,
            position as i32,
            layout::stream_uuid(entry.stream),
            entry.url.as_str().to_owned(),
            entry.number.encode(),
            layout::revision_value(entry.revision),
            micros(entry.updated_at),
            entry.deleted,
            entry.replaces.map(Reference::encode),
            entry.bytes as i32,
            trace.map(|trace| trace.parent().to_owned()),
            trace.and_then(Trace::state).map(str::to_owned),
            content.content.clone(),
        );
        let bytes = entry.bytes as usize + entry.url.as_str().len();
        plan.add(CHANGES, &[group.as_bytes()], INSERT_CHANGE, row, bytes);
    }
    connection.write(layout::WRITTEN_ONCE, plan).await
}

pub(crate) async fn write_rows(connection: &Connection, group: Uuid, rows: &[RowChange]) -> Result<()> {
    let mut plan = Plan::default();
    for (position, change) in rows.iter().enumerate() {
        let row = (group, position as i32, change.kind.clone(), change.id.clone(), change.row.clone());
        let bytes = change.row.as_ref().map_or(0, String::len);
        plan.add(CHANGES, &[group.as_bytes()], INSERT_ROW, row, bytes);
    }
    connection.write(layout::WRITTEN_ONCE, plan).await
}

/// Removes a group that will never be in the log. What is not removed is only in nobody's way.
pub(crate) async fn remove(connection: &Connection, group: Uuid) {
    let mut plan = Plan::default();
    plan.add(CHANGES, &[group.as_bytes()], REMOVE, (group,), 0);
    if let Err(error) = connection.write(layout::REMOVED, plan).await {
        tracing::debug!(%group, reason = error.chain(), "a group that nobody needs was not removed");
    }
}

type ChangeRow = (
    i32,
    Option<Uuid>,
    Option<String>,
    Option<i64>,
    Option<CqlVarint>,
    Option<i64>,
    Option<bool>,
    Option<i64>,
    Option<i32>,
);

/// The changes of a group with their positions. Those that were swept are not there any more.
pub(crate) async fn read_changes(connection: &Connection, group: Uuid) -> Result<Vec<(usize, Entry)>> {
    let mut rows = connection.stream::<ChangeRow>(READ_CHANGES, (group,)).await?;
    let mut changes = Vec::new();
    while let Some(row) = rows.next().await? {
        changes.push((row.0 as usize, decode(row).ok_or_else(|| damaged("change"))?));
    }
    Ok(changes)
}

fn decode((_, stream, url, number, revision, updated_at, deleted, replaces, bytes): ChangeRow) -> Option<Entry> {
    Some(Entry {
        stream: layout::stream_id(stream?),
        url: layout::url(&url?).ok()?,
        number: Reference::decode(number?),
        revision: layout::revision(&revision?).ok()?,
        updated_at: timestamp(updated_at?).ok()?,
        deleted: deleted?,
        replaces: replaces.map(Reference::decode),
        bytes: bytes? as u32,
    })
}

pub(crate) async fn read_rows(connection: &Connection, group: Uuid) -> Result<Vec<RowChange>> {
    let mut rows = connection.stream::<(Option<String>, Option<Vec<u8>>, Option<String>)>(READ_ROWS, (group,)).await?;
    let mut changes = Vec::new();
    while let Some((kind, id, row)) = rows.next().await? {
        let (kind, id) = kind.zip(id).ok_or_else(|| damaged("log"))?;
        changes.push(RowChange { kind, id, row });
    }
    Ok(changes)
}

type ContentRow = (Option<String>, Option<String>, Option<Vec<u8>>);

/// The changes of a group, with all that they say.
pub(crate) async fn read_whole(connection: &Connection, group: Uuid) -> Result<Vec<(usize, Entry, Content)>> {
    type Row = (i32, Option<String>, Option<String>, Option<Vec<u8>>);
    let entries = read_changes(connection, group).await?;
    let mut contents = connection.stream::<Row>(READ_CONTENTS, (group,)).await?;
    let mut whole = Vec::with_capacity(entries.len());
    let mut entries = entries.into_iter().peekable();
    while let Some((position, parent, state, content)) = contents.next().await? {
        let position = position as usize;
        // What was swept in between is in one of the two only.
        while entries.next_if(|(at, _)| *at < position).is_some() {}
        if let Some((_, entry)) = entries.next_if(|(at, _)| *at == position) {
            whole.push((position, entry, decode_content((parent, state, content))));
        }
    }
    Ok(whole)
}

/// What one change says, if it is still there.
pub(crate) async fn read_content(connection: &Connection, group: Uuid, position: i32) -> Result<Option<Content>> {
    let row: Option<ContentRow> = connection.row(READ_CONTENT, (group, position)).await?;
    Ok(row.map(decode_content))
}

fn decode_content((parent, state, content): ContentRow) -> Content {
    let trace = layout::trace(parent.as_deref(), state.as_deref()).map(Arc::new);
    Content { content: content.map(Bytes::from), trace }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_reads_back_and_finds_its_change() {
        for reference in
            [Reference::Sequence(0), Reference::Sequence(7), Reference::Position(0), Reference::Position(9)]
        {
            assert_eq!(Reference::decode(reference.encode()), reference);
        }
        assert_eq!(Reference::Position(2).resolve(10), 12);
        assert_eq!(Reference::Sequence(2).resolve(10), 2);
    }
}
