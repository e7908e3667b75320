//! How keys are laid out. Ids are fixed in length, numbers big-endian, so that byte order is the order wanted.

use bytes::{BufMut, Bytes, BytesMut};
use flare_core::{DocumentNumber, OutletId, Sequence, StreamId, TokenId, url::DocumentUrl};
use jiff::Timestamp;

pub(crate) const FORMAT: &[u8] = b"format";
pub(crate) const SEQUENCE: &[u8] = b"sequence";
/// Counts the writes to streams, outlets and tokens.
pub(crate) const ENTITIES: &[u8] = b"entities";
pub(crate) const EPOCH: &[u8] = b"epoch";
pub(crate) const SWEPT: &[u8] = b"swept";
// The zero keeps each kind apart from the plain names above.
pub(crate) const STREAMS: &[u8] = b"s\0";
pub(crate) const OUTLETS: &[u8] = b"o\0";
pub(crate) const IDEMPOTENCY_KEYS: &[u8] = b"i\0";
pub(crate) const COUNTS: &[u8] = b"c\0";
pub(crate) const PURGES: &[u8] = b"p\0";
pub(crate) const CLOCK: &[u8] = b"t\0";
pub(crate) const REPLAYS: &[u8] = b"r\0";
pub(crate) const TOKENS: &[u8] = b"k\0";
pub(crate) const MIGRATED: &[u8] = b"m\0";
pub(crate) const AGREED: &[u8] = b"a\0";

fn join(parts: &[&[u8]]) -> Bytes {
    let mut key = BytesMut::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| key.put_slice(part));
    key.freeze()
}

pub(crate) fn stream(id: StreamId) -> Bytes {
    join(&[STREAMS, id.as_bytes()])
}

pub(crate) fn outlet(id: OutletId) -> Bytes {
    join(&[OUTLETS, id.as_bytes()])
}

/// Stands beside the demand of the outlet.
pub(crate) fn failing(outlet: OutletId) -> Bytes {
    join(&[outlet.as_bytes(), b"f"])
}

pub(crate) fn replay(outlet: OutletId) -> Bytes {
    join(&[REPLAYS, outlet.as_bytes()])
}

pub(crate) fn token(id: TokenId) -> Bytes {
    join(&[TOKENS, id.as_bytes()])
}

/// Since when the data has this format.
pub(crate) fn migrated(format: u64) -> Bytes {
    join(&[MIGRATED, &format.to_be_bytes()])
}

pub(crate) fn agreed(key: &str) -> Bytes {
    join(&[AGREED, key.as_bytes()])
}

pub(crate) fn idempotency(key: &str) -> Bytes {
    join(&[IDEMPOTENCY_KEYS, key.as_bytes()])
}

pub(crate) fn count(id: StreamId) -> Bytes {
    join(&[COUNTS, id.as_bytes()])
}

pub(crate) fn purge(kind: u8, id: &[u8; 16]) -> Bytes {
    join(&[PURGES, &[kind], id])
}

pub(crate) fn head(stream: StreamId, url: &DocumentUrl) -> Bytes {
    join(&[stream.as_bytes(), url.as_str().as_bytes()])
}

pub(crate) fn head_prefix(stream: StreamId, url_prefix: &str) -> Bytes {
    join(&[stream.as_bytes(), url_prefix.as_bytes()])
}

pub(crate) fn change(stream: StreamId, sequence: Sequence) -> Bytes {
    join(&[stream.as_bytes(), &sequence.0.to_be_bytes()])
}

pub(crate) fn sequence_of_change(key: &[u8]) -> Sequence {
    tail::<8>(key).map_or(Sequence::START, |tail| Sequence(u64::from_be_bytes(tail)))
}

/// Times before 1970 are all one.
pub(crate) fn clock(at: Timestamp) -> Bytes {
    join(&[CLOCK, &(at.as_millisecond().max(0) as u64).to_be_bytes()])
}

/// The key of dead letters.
pub(crate) fn outlet_sequence(outlet: OutletId, sequence: Sequence) -> Bytes {
    join(&[outlet.as_bytes(), &sequence.0.to_be_bytes()])
}

/// The key of attempts.
pub(crate) fn outlet_time(outlet: OutletId, at: Timestamp) -> Bytes {
    join(&[outlet.as_bytes(), &nanos(at).to_be_bytes()])
}

/// Times before 1970 are all one; those that fit reach into the 26th century.
pub(crate) fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or(if at < Timestamp::UNIX_EPOCH { 0 } else { u64::MAX })
}

/// The key of versions and retries.
pub(crate) fn outlet_document(outlet: OutletId, number: DocumentNumber) -> Bytes {
    join(&[outlet.as_bytes(), &number.0.to_be_bytes()])
}

/// The last `N` bytes of a key, as an array.
pub(crate) fn tail<const N: usize>(key: &[u8]) -> Option<[u8; N]> {
    key.len().checked_sub(N).and_then(|start| key[start..].try_into().ok())
}

/// The least key that is greater than every key with this prefix.
pub(crate) fn after_prefix(prefix: &[u8]) -> Bytes {
    let kept = prefix.iter().rposition(|byte| *byte != u8::MAX).map_or(0, |last| last + 1);
    let mut end = BytesMut::from(&prefix[..kept]);
    match end.last_mut() {
        Some(last) => *last += 1,
        // A prefix of 0xff only: no stored key is as long as this.
        None => end.put_bytes(u8::MAX, prefix.len() + 64),
    }
    end.freeze()
}

/// The least key that is greater than this one.
pub(crate) fn after(key: &[u8]) -> Bytes {
    join(&[key, &[0]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_past_all_its_keys_and_before_the_next() {
        let check = |prefix: &[u8], end: &[u8]| assert_eq!(&after_prefix(prefix)[..], end);
        check(b"a", b"b");
        check(&[1, 0xff], &[2]);
        check(&[0xff, 1, 0xff, 0xff], &[0xff, 2]);
        assert!(after_prefix(&[0xff, 0xff])[..] > [0xff; 60][..]);
    }
}
