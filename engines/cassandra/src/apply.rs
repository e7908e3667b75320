//! The tables that are made from the log.
//!
//! Whatever a turn writes to them carries the turn as its timestamp. So it may be written twice, late, and by whichever
//! node finds that it is missing: nothing older ever covers something newer. `state` says up to which turn they are
//! complete, and is written last.

use flare_core::{Result, StreamId, url::DocumentUrl};
use flare_toolkit::rows::micros;
use rustc_hash::FxHashMap;
use uuid::Uuid;

use crate::{
    Core,
    connection::all,
    entities,
    group::{self, Entry},
    heads::Head,
    layout::{self, CHANGES, ENTITIES, FEED, HEADS, STATE},
    state::{Group, Placed, State},
    statement::{Plan, Query},
};

const PUT_HEAD: Query = Query::new(
    "INSERT INTO heads (stream, shard, url, number, sequence, revision, updated_at, deleted, replaces, bytes, \
     group_id, position) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
);
const PUT_FEED: Query = Query::new(
    "INSERT INTO feed (stream, bucket, sequence, number, url, revision, updated_at, deleted, replaces, bytes, \
     group_id, position, replaced_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
);
const REPLACE: Query = Query::new("UPDATE feed SET replaced_by = ? WHERE stream = ? AND bucket = ? AND sequence = ?");
const PLACE: Query = Query::new("SELECT group_id, position FROM feed WHERE stream = ? AND bucket = ? AND sequence = ?");
pub(crate) const REMOVE_FEED: Query = Query::new("DELETE FROM feed WHERE stream = ? AND bucket = ? AND sequence = ?");
const PUT_STATE: Query = Query::new(
    "UPDATE state SET turn = ?, sequence = ?, entities = ?, swept_from = ?, swept_to = ? WHERE name = 'log'",
);

/// How exactly the clock is kept.
const CLOCK_INTERVAL_MS: i64 = 60_000;
/// What a row costs besides its URL.
const ROW_BYTES: usize = 150;

/// The newest change of a document, as an entry of a group makes it.
pub(crate) fn head(entry: &Entry, position: usize, placed: &Placed) -> Head {
    let written = entry.written(position, placed.first);
    Head {
        number: written.number.0,
        sequence: written.sequence.0,
        revision: entry.revision,
        updated_at: entry.updated_at,
        deleted: entry.deleted,
        replaces: written.replaces.map(|replaced| replaced.0),
        bytes: entry.bytes,
        group: placed.turn.group,
        position: position as i32,
    }
}

/// Writes a turn to the tables. All turns before it are there.
pub(crate) async fn apply(core: &Core, state: &mut State, placed: &Placed) -> Result<()> {
    let timestamp = placed.turn.turn as i64;
    let (mut entities, mut swept) = (state.entities, state.swept);
    match &placed.group {
        Group::Changes(changes) => {
            let changes = changes.iter().filter(|(_, entry)| state.streams.contains_key(&entry.stream));
            let changes: Vec<_> = changes.map(|(position, entry)| (entry, head(entry, *position, placed))).collect();
            let (plan, noted) = plan_changes(core, state, placed, &changes);
            core.connection.write(timestamp, plan).await?;
            state.clock_at = noted.clock_at;
            core.note_shards(noted.shards);
            remove_replaced(core, state, timestamp, placed.first, &changes).await?;
        }
        Group::Rows(rows) => {
            for row in rows {
                if entities::is_entity(&row.kind) {
                    entities = placed.turn.turn;
                }
                if row.kind == entities::KIND_SWEPT {
                    swept = entities::decode_swept(row)?;
                }
            }
            core.connection.write(timestamp, entities::plan(rows)).await?;
        }
    }
    let mut plan = Plan::default();
    let row = (timestamp, placed.turn.last as i64, entities as i64, swept.from as i64, swept.to as i64);
    plan.add(STATE, &[], PUT_STATE, row, 0);
    core.connection.write(timestamp, plan).await
}

/// What need not be written again once it is written.
struct Noted {
    shards: Vec<(StreamId, String)>,
    clock_at: i64,
}

fn plan_changes(core: &Core, state: &State, placed: &Placed, changes: &[(&Entry, Head)]) -> (Plan, Noted) {
    let mut plan = Plan::default();
    let mut noted = Noted { shards: Vec::new(), clock_at: state.clock_at };
    let replaced_by: FxHashMap<u64, u64> =
        changes.iter().filter_map(|(_, head)| Some((head.replaces?, head.sequence))).collect();
    let mut newest: FxHashMap<(StreamId, &DocumentUrl), &Head> = FxHashMap::default();
    for (entry, head) in changes {
        let replaced = replaced_by.get(&head.sequence).copied();
        plan_feed(&mut plan, entry, head, replaced);
        newest.insert((entry.stream, &entry.url), head);
        if let Some(older) = head.replaces.filter(|older| *older < placed.first && *older > state.swept.to) {
            plan_replaced(&mut plan, entry.stream, older, head.sequence);
        }
    }
    for ((stream, url), head) in newest {
        let shard = layout::shard(url.as_str(), state.streams.get(&stream).copied().unwrap_or_default());
        plan_head(&mut plan, stream, shard, url, head);
        if core.is_new_shard(stream, shard) {
            noted.shards.push((stream, shard.to_owned()));
            add_row(&mut plan, &entities::kind_shards(stream), shard.as_bytes().to_vec(), String::new());
        }
    }
    for (stream, count) in &placed.turn.counts {
        add_row(&mut plan, entities::KIND_COUNT, stream.as_bytes().to_vec(), count.to_string());
    }
    if let Some((last, _)) = changes.last() {
        let at = last.updated_at.as_millisecond();
        if at.saturating_sub(state.clock_at) >= CLOCK_INTERVAL_MS {
            noted.clock_at = at;
            // What comes from here on is later; what was before is not.
            add_row(&mut plan, entities::KIND_CLOCK, entities::clock_id(at), (placed.first - 1).to_string());
        }
    }
    (plan, noted)
}

fn add_row(plan: &mut Plan, kind: &str, id: Vec<u8>, row: String) {
    plan.add(ENTITIES, &[kind.as_bytes()], entities::PUT, (kind.to_owned(), id, row), ROW_BYTES);
}

fn plan_head(plan: &mut Plan, stream: StreamId, shard: &str, url: &DocumentUrl, head: &Head) {
    let row = (
        layout::stream_uuid(stream),
        shard.to_owned(),
        url.as_str().to_owned(),
        head.number as i64,
        head.sequence as i64,
        layout::revision_value(head.revision),
        micros(head.updated_at),
        head.deleted,
        head.replaces.map(|replaced| replaced as i64),
        head.bytes as i32,
        head.group,
        head.position,
    );
    let bytes = ROW_BYTES + url.as_str().len();
    plan.add(HEADS, &[stream.as_bytes(), shard.as_bytes()], PUT_HEAD, row, bytes);
}

fn plan_feed(plan: &mut Plan, entry: &Entry, head: &Head, replaced_by: Option<u64>) {
    let bucket = layout::feed_bucket(head.sequence);
    let row = (
        layout::stream_uuid(entry.stream),
        bucket,
        head.sequence as i64,
        head.number as i64,
        entry.url.as_str().to_owned(),
        layout::revision_value(head.revision),
        micros(head.updated_at),
        head.deleted,
        head.replaces.map(|replaced| replaced as i64),
        head.bytes as i32,
        head.group,
        head.position,
        scylla::value::MaybeUnset::from_option(replaced_by.map(|newer| newer as i64)),
    );
    let bytes = ROW_BYTES + entry.url.as_str().len();
    plan.add(FEED, &[entry.stream.as_bytes(), &bucket.to_be_bytes()], PUT_FEED, row, bytes);
}

fn plan_replaced(plan: &mut Plan, stream: StreamId, older: u64, newer: u64) {
    let bucket = layout::feed_bucket(older);
    let row = (newer as i64, layout::stream_uuid(stream), bucket, older as i64);
    plan.add(FEED, &[stream.as_bytes(), &bucket.to_be_bytes()], REPLACE, row, ROW_BYTES);
}

/// A change that a sweep has passed is removed when it is replaced.
async fn remove_replaced(
    core: &Core,
    state: &State,
    timestamp: i64,
    first: u64,
    changes: &[(&Entry, Head)],
) -> Result<()> {
    let swept = changes.iter().filter_map(|(entry, head)| {
        let older = head.replaces.filter(|older| *older < first && *older <= state.swept.to)?;
        Some((entry.stream, older))
    });
    let mut removals = Vec::new();
    for (stream, older) in swept {
        removals.push(find_and_remove(core, timestamp, stream, older));
    }
    all(removals).await.map(drop)
}

async fn find_and_remove(core: &Core, timestamp: i64, stream: StreamId, older: u64) -> Result<()> {
    let key = (layout::stream_uuid(stream), layout::feed_bucket(older), older as i64);
    let place: Option<(Option<Uuid>, Option<i32>)> = core.connection.row(PLACE, key).await?;
    let place = place.and_then(|(group, position)| group.zip(position));
    remove_change(core, timestamp, stream, older, place).await
}

/// Removes a change that nobody needs any more: what it says, then its place in the feed.
pub(crate) async fn remove_change(
    core: &Core,
    timestamp: i64,
    stream: StreamId,
    sequence: u64,
    place: Option<(Uuid, i32)>,
) -> Result<()> {
    if let Some((group, position)) = place {
        let mut plan = Plan::default();
        plan.add(CHANGES, &[group.as_bytes()], group::REMOVE_ONE, (group, position), 0);
        core.connection.write(layout::REMOVED, plan).await?;
    }
    let mut plan = Plan::default();
    let bucket = layout::feed_bucket(sequence);
    let row = (layout::stream_uuid(stream), bucket, sequence as i64);
    plan.add(FEED, &[stream.as_bytes(), &bucket.to_be_bytes()], REMOVE_FEED, row, 0);
    core.connection.write(timestamp, plan).await
}
