//! Where rows rest: partitions, timestamps, and how values are written down.

use flare_core::{OutletId, Result, StreamId, revision::Revision, trace::Trace, url::DocumentUrl};
use flare_toolkit::rows::damaged;
use jiff::Timestamp;
use scylla::value::CqlVarint;
use uuid::Uuid;

/// Tables, as parts of a plan.
pub(crate) const HEADS: u8 = 1;
pub(crate) const FEED: u8 = 2;
pub(crate) const ENTITIES: u8 = 3;
pub(crate) const STANDINGS: u8 = 4;
pub(crate) const VERSIONS: u8 = 5;
pub(crate) const RETRIES: u8 = 6;
pub(crate) const DEAD_LETTERS: u8 = 7;
pub(crate) const ATTEMPTS: u8 = 8;
pub(crate) const CHANGES: u8 = 9;
pub(crate) const STATE: u8 = 10;

/// Turns in one partition of the log.
pub(crate) const LOG_BUCKET: u64 = 1000;
/// Sequences in one partition of a feed. A read that passes only removed rows must stay below the 100 000 tombstones at
/// which Cassandra gives up.
const FEED_BUCKET: u64 = 1 << 16;
/// Documents in one partition of versions.
const VERSIONS_BUCKET: u64 = 1 << 14;
/// Documents in one partition of retries, and sequences in one of dead letters; bounded for the same reason.
const RETRIES_BUCKET: u64 = 1 << 16;

/// All outlets are one partition of `standings`: they are read in order of their ids.
pub(crate) const ALL_OUTLETS: &str = "outlets";

/// Rows of `changes` are written once; what removes one comes after.
pub(crate) const WRITTEN_ONCE: i64 = 1;
pub(crate) const REMOVED: i64 = 2;
/// What is removed with this is never written again: ids are not used twice.
pub(crate) const FOR_GOOD: i64 = i64::MAX - 1;

pub(crate) fn log_bucket(turn: u64) -> i64 {
    (turn / LOG_BUCKET) as i64
}

pub(crate) fn feed_bucket(sequence: u64) -> i64 {
    (sequence / FEED_BUCKET) as i64
}

/// The first sequence of a partition of a feed.
pub(crate) fn feed_bucket_start(bucket: i64) -> u64 {
    bucket as u64 * FEED_BUCKET
}

pub(crate) fn versions_bucket(number: u64) -> i64 {
    (number / VERSIONS_BUCKET) as i64
}

pub(crate) fn retries_bucket(number: u64) -> i32 {
    (number / RETRIES_BUCKET) as i32
}

pub(crate) fn day(at: Timestamp) -> i32 {
    at.as_second().div_euclid(86_400) as i32
}

/// Times that fit reach from the 17th to the 23rd century.
pub(crate) fn nanos(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(if at < Timestamp::UNIX_EPOCH { i64::MIN } else { i64::MAX })
}

pub(crate) fn stream_uuid(id: StreamId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

pub(crate) fn stream_id(uuid: Uuid) -> StreamId {
    StreamId::from_bytes(uuid.into_bytes())
}

pub(crate) fn outlet_uuid(id: OutletId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

/// The partition of `heads` that a URL of a stream is in: its start, one character past what all URLs of the stream
/// have in common. So partitions stand in the order of the URLs in them.
pub(crate) fn shard(url: &str, common_chars: usize) -> &str {
    url.char_indices().nth(common_chars + 1).map_or(url, |(end, _)| &url[..end])
}

/// How many characters all URLs of a pattern start with.
pub(crate) fn common_chars(pattern: &str) -> usize {
    pattern.chars().take_while(|character| *character != '{').count()
}

/// As a number that people can read: the shortest form of two's complement.
pub(crate) fn revision_value(revision: Revision) -> CqlVarint {
    let bytes = revision.value().to_be_bytes();
    let sign = if revision.value() < 0 { u8::MAX } else { 0 };
    let mut start = 0;
    while start < bytes.len() - 1 && bytes[start] == sign && (bytes[start + 1] ^ sign) & 0x80 == 0 {
        start += 1;
    }
    CqlVarint::from_signed_bytes_be_slice(&bytes[start..])
}

pub(crate) fn revision(value: &CqlVarint) -> Result<Revision> {
    let digits = value.as_signed_bytes_be_slice();
    let sign = if digits.first().is_some_and(|first| first & 0x80 != 0) { u8::MAX } else { 0 };
    let mut bytes = [sign; 16];
    let start = bytes.len().checked_sub(digits.len()).ok_or_else(|| damaged("revision"))?;
    bytes[start..].copy_from_slice(digits);
    Ok(Revision::new(i128::from_be_bytes(bytes)))
}

pub(crate) fn url(text: &str) -> Result<DocumentUrl> {
    DocumentUrl::parse(text).map_err(|error| damaged("URL").because(error))
}

pub(crate) fn trace(parent: Option<&str>, state: Option<&str>) -> Option<Trace> {
    Trace::parse(parent?, state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_reads_back() {
        for value in [0, 1, -1, 127, 128, -128, -129, 255, 1 << 64, i128::MAX, i128::MIN] {
            let written = revision_value(Revision::new(value));
            assert_eq!(revision(&written).unwrap(), Revision::new(value), "{value}");
        }
        assert_eq!(revision_value(Revision::new(127)).as_signed_bytes_be_slice().len(), 1);
        assert_eq!(revision_value(Revision::new(-129)).as_signed_bytes_be_slice().len(), 2);
    }

    #[test]
    fn shards_stand_in_the_order_of_their_urls() {
        let common = common_chars("http://api.test/users/{id}");
        let mut urls = [
            "http://api.test/users/",
            "http://api.test/users/a",
            "http://api.test/users/ab",
            "http://api.test/u",
            "http://b.test/",
        ];
        urls.sort_unstable();
        let shards: Vec<_> = urls.iter().map(|url| shard(url, common)).collect();
        assert!(shards.is_sorted(), "{shards:?}");
        assert_eq!(shard("http://api.test/users/ab", common), "http://api.test/users/a");
        assert_eq!(shard("http://api.test/users/é1", common), "http://api.test/users/é");
    }
}
