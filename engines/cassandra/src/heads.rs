//! The newest change of each document, as the node that writes needs to know it.

use std::hash::Hash;

use flare_core::{Result, StreamId, revision::Revision, url::DocumentUrl};
use flare_toolkit::rows::{damaged, timestamp};
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use scylla::value::CqlVarint;
use uuid::Uuid;

use crate::{
    connection::{Connection, all},
    layout,
    statement::Query,
};

const READ: Query = Query::new(
    "SELECT url, number, sequence, revision, updated_at, deleted, replaces, bytes, group_id, position FROM heads \
     WHERE stream = ? AND shard = ? AND url IN ?",
);
/// URLs of one partition that are asked for at once.
const URLS_MAX: usize = 50;

/// Where the newest change of a document is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub number: u64,
    pub sequence: u64,
    pub revision: Revision,
    pub updated_at: Timestamp,
    pub deleted: bool,
    pub replaces: Option<u64>,
    pub bytes: u32,
    pub group: Uuid,
    pub position: i32,
}

/// A row of `heads`; the first column is the URL.
pub(crate) type HeadRow = (
    String,
    Option<i64>,
    Option<i64>,
    Option<CqlVarint>,
    Option<i64>,
    Option<bool>,
    Option<i64>,
    Option<i32>,
    Option<Uuid>,
    Option<i32>,
);

pub(crate) fn decode(row: HeadRow) -> Result<(DocumentUrl, Head)> {
    let url = layout::url(&row.0)?;
    decode_head(row).map(|head| (url, head)).ok_or_else(|| damaged("head"))
}

fn decode_head(row: HeadRow) -> Option<Head> {
    let (_, number, sequence, revision, updated_at, deleted, replaces, bytes, group, position) = row;
    Some(Head {
        number: number? as u64,
        sequence: sequence? as u64,
        revision: layout::revision(&revision?).ok()?,
        updated_at: timestamp(updated_at?).ok()?,
        deleted: deleted?,
        replaces: replaces.map(|replaced| replaced as u64),
        bytes: bytes? as u32,
        group: group?,
        position: position?,
    })
}

/// The heads of these documents of a stream, as far as there are any.
pub(crate) async fn read(
    connection: &Connection,
    stream: StreamId,
    common_chars: usize,
    urls: impl Iterator<Item = &DocumentUrl>,
) -> Result<Vec<(DocumentUrl, Head)>> {
    let mut shards: FxHashMap<&str, Vec<&str>> = FxHashMap::default();
    for url in urls {
        shards.entry(layout::shard(url.as_str(), common_chars)).or_default().push(url.as_str());
    }
    let stream = layout::stream_uuid(stream);
    let mut reads = Vec::new();
    for (shard, urls) in &shards {
        for urls in urls.chunks(URLS_MAX) {
            reads.push(connection.rows::<HeadRow>(READ, (stream, *shard, urls)));
        }
    }
    let pages = all(reads).await?;
    pages.into_iter().flatten().map(decode).collect()
}

/// Values that were used lately. It holds between half of the maximum and the maximum.
pub(crate) struct Recent<K, V> {
    new: FxHashMap<K, V>,
    old: FxHashMap<K, V>,
    max: usize,
}

impl<K: Hash + Eq, V: Clone> Recent<K, V> {
    pub fn new(max: usize) -> Self {
        Self { new: FxHashMap::default(), old: FxHashMap::default(), max }
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.new.get(key).or_else(|| self.old.get(key))
    }

    pub fn insert(&mut self, key: K, value: V) {
        if self.new.len() >= self.max / 2 {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(key, value);
    }

    pub fn clear(&mut self) {
        self.new.clear();
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_lately_is_known_and_the_rest_is_bounded() {
        let mut recent = Recent::new(10);
        for number in 0..100 {
            recent.insert(number, number * 2);
            assert!(recent.new.len() + recent.old.len() <= 10);
        }
        assert_eq!(recent.get(&99), Some(&198));
        assert_eq!(recent.get(&96), Some(&192));
        assert_eq!(recent.get(&1), None);
        recent.insert(96, 0);
        assert_eq!(recent.get(&96), Some(&0));
    }
}
