//! The feed of a stream: its changes, in order.

use flare_core::{
    Result, Sequence, StreamId,
    document::Change,
    outlet::Revisions,
    port::{FeedPage, FeedQuery},
    url::DocumentUrl,
};
use flare_toolkit::rows::{damaged, timestamp};
use scylla::value::CqlVarint;
use uuid::Uuid;

use crate::{
    Core,
    connection::{Connection, all},
    documents,
    group::{self, Content},
    heads::Head,
    layout,
    statement::Query,
};

const READ: Query = Query::new(
    "SELECT sequence, number, url, revision, updated_at, deleted, replaces, bytes, group_id, position, replaced_by \
     FROM feed WHERE stream = ? AND bucket = ? AND sequence > ? AND sequence <= ?",
);
const READ_ONE: Query = Query::new(
    "SELECT sequence, number, url, revision, updated_at, deleted, replaces, bytes, group_id, position, replaced_by \
     FROM feed WHERE stream = ? AND bucket = ? AND sequence = ?",
);

/// The rows that a look into the feed passes at most, so that one with many replaced changes does not take forever.
const ROWS_MAX: usize = 8192;
/// The partitions that it passes at most: those of other streams are empty.
const BUCKETS_MAX: usize = 64;

/// A row of a feed.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub url: DocumentUrl,
    pub head: Head,
    pub replaced_by: Option<u64>,
}

type ItemRow = (
    i64,
    Option<i64>,
    Option<String>,
    Option<CqlVarint>,
    Option<i64>,
    Option<bool>,
    Option<i64>,
    Option<i32>,
    Option<Uuid>,
    Option<i32>,
    Option<i64>,
);

/// None for what is left when a change was removed while another one replaced it.
fn decode(row: ItemRow) -> Result<Option<Item>> {
    if row.1.is_none() {
        return Ok(None);
    }
    decode_item(row).map(Some).ok_or_else(|| damaged("feed"))
}

fn decode_item(row: ItemRow) -> Option<Item> {
    let (sequence, number, url, revision, updated_at, deleted, replaces, bytes, group, position, replaced_by) = row;
    let head = Head {
        number: number? as u64,
        sequence: sequence as u64,
        revision: layout::revision(&revision?).ok()?,
        updated_at: timestamp(updated_at?).ok()?,
        deleted: deleted?,
        replaces: replaces.map(|replaced| replaced as u64),
        bytes: bytes? as u32,
        group: group?,
        position: position?,
    };
    Some(Item { url: layout::url(&url?).ok()?, head, replaced_by: replaced_by.map(|newer| newer as u64) })
}

/// Goes through the feed after `after`, up to `until`. `visit` says whether to go on. Says how far it came.
pub(crate) async fn walk(
    connection: &Connection,
    stream: StreamId,
    after: u64,
    until: u64,
    mut visit: impl FnMut(Item) -> Result<bool>,
) -> Result<u64> {
    let (first, last) = (layout::feed_bucket(after + 1), layout::feed_bucket(until));
    for (passed, bucket) in (first..=last).enumerate() {
        if passed >= BUCKETS_MAX {
            return Ok(layout::feed_bucket_start(bucket) - 1);
        }
        let range = (layout::stream_uuid(stream), bucket, after as i64, until as i64);
        let mut rows = connection.stream::<ItemRow>(READ, range).await?;
        while let Some(row) = rows.next().await? {
            if let Some(item) = decode(row)? {
                let sequence = item.head.sequence;
                if !visit(item)? {
                    return Ok(sequence);
                }
            }
        }
    }
    Ok(until)
}

pub(crate) async fn read_one(connection: &Connection, stream: StreamId, sequence: u64) -> Result<Option<Item>> {
    let key = (layout::stream_uuid(stream), layout::feed_bucket(sequence), sequence as i64);
    let row: Option<ItemRow> = connection.row(READ_ONE, key).await?;
    row.map_or(Ok(None), decode)
}

/// The change that a row of the feed names; none if it is gone.
pub(crate) async fn change(connection: &Connection, stream: StreamId, item: Item) -> Result<Option<Change>> {
    let content = if item.head.bytes == 0 && item.head.deleted {
        Some(Content::default())
    } else {
        group::read_content(connection, item.head.group, item.head.position).await?
    };
    Ok(content.map(|content| documents::change(stream, item.url, &item.head, content)))
}

pub(crate) async fn page(core: &Core, stream: StreamId, query: &FeedQuery) -> Result<FeedPage> {
    let until = core.applied().min(core.follower.head());
    if query.after >= until || query.limit == 0 {
        return Ok(FeedPage { changes: Vec::new(), until: query.after });
    }
    let (mut items, mut bytes, mut looked) = (Vec::new(), 0, 0);
    let until = walk(&core.connection, stream, query.after.0, until.0, |item| {
        looked += 1;
        // What is newer than the end of this look does not count yet.
        let is_newest = item.replaced_by.is_none_or(|newer| newer > until.0);
        if is_newest || query.revisions == Revisions::All {
            bytes += item.head.bytes as usize + item.url.as_str().len();
            items.push(item);
        }
        Ok(items.len() < query.limit && bytes < query.bytes_max && looked < ROWS_MAX)
    })
    .await?;
    let connection = &core.connection;
    let mut reads = Vec::new();
    for item in items {
        reads.push(change(connection, stream, item));
    }
    let changes = all(reads).await?;
    // One that is gone was replaced and swept in between.
    Ok(FeedPage { changes: changes.into_iter().flatten().collect(), until: Sequence(until) })
}
