//! How rows of the hot path (heads, changes, versions, cursors, retries) are laid out: binary, with a first byte that names
//! the layout. The rows of entities are those of the toolkit.

mod trace;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flare_core::{
    DocumentNumber, OutletId, Result, Sequence, StreamId,
    document::{Change, Retry, Version, WrittenChange},
    port::Idempotency,
    revision::Revision,
    trace::Trace,
    url::DocumentUrl,
};
use jiff::Timestamp;

pub(crate) use flare_toolkit::rows::*;

use crate::{KeyValue, Table, keys};

/// Checks the layout byte and that at least `bytes_min` follow.
fn open<'a>(row: &'a [u8], bytes_min: usize, what: &str) -> Result<&'a [u8]> {
    match row.split_first() {
        Some((&LAYOUT, rest)) if rest.len() >= bytes_min => Ok(rest),
        _ => Err(damaged(what)),
    }
}

/// The caller has checked that the bytes are there.
fn read_revision(row: &mut impl Buf) -> Revision {
    let mut bytes = [0; 16];
    row.copy_to_slice(&mut bytes);
    Revision::from_bytes(bytes)
}

/// Where the newest change of a document is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub number: DocumentNumber,
    pub sequence: Sequence,
    pub revision: Revision,
    pub updated_at: Timestamp,
    pub deleted: bool,
}

impl Head {
    const BYTES: usize = 8 + 8 + 16 + 8 + 1;

    pub fn encode(&self) -> Bytes {
        let mut row = BytesMut::with_capacity(1 + Self::BYTES);
        row.put_u8(LAYOUT);
        row.put_u64(self.number.0);
        row.put_u64(self.sequence.0);
        row.put_slice(&self.revision.to_bytes());
        row.put_i64(micros(self.updated_at));
        row.put_u8(self.deleted.into());
        row.freeze()
    }

    pub fn decode(row: &[u8]) -> Result<Self> {
        let mut row = open(row, Self::BYTES, "head")?;
        Ok(Self {
            number: DocumentNumber(row.get_u64()),
            sequence: Sequence(row.get_u64()),
            revision: read_revision(&mut row),
            updated_at: timestamp(row.get_i64())?,
            deleted: row.get_u8() != 0,
        })
    }
}

/// The layout of changes that say which change they replaced; [`LAYOUT`] is without.
const CHANGE_LAYOUT: u8 = 2;
const CHANGE_HEAD_BYTES: usize = 8 + 16 + 8 + 1 + 2;
const REPLACES_BYTES: usize = 8;

/// Flags of a change.
const DELETED: u8 = 1;
/// The row ends with the trace of the change.
const HAS_TRACE: u8 = 0x80;

/// Writes what [`decode_change`] reads; the sequence is in the key.
pub(crate) fn encode_change(
    head: &Head,
    replaces: Option<Sequence>,
    url: &DocumentUrl,
    content: Option<&Bytes>,
    trace: Option<&Trace>,
) -> Bytes {
    let url = url.as_str().as_bytes();
    let content_bytes = content.map_or(0, Bytes::len);
    let trace_bytes = trace.map_or(0, trace::encoded_bytes);
    let bytes = 1 + REPLACES_BYTES + CHANGE_HEAD_BYTES + url.len() + content_bytes + trace_bytes;
    let mut row = BytesMut::with_capacity(bytes);
    row.put_u8(CHANGE_LAYOUT);
    // No change has the first sequence.
    row.put_u64(replaces.unwrap_or(Sequence::START).0);
    row.put_u64(head.number.0);
    row.put_slice(&head.revision.to_bytes());
    row.put_i64(micros(head.updated_at));
    row.put_u8(u8::from(head.deleted) | if trace.is_some() { HAS_TRACE } else { 0 });
    row.put_u16(url.len() as u16);
    row.put_slice(url);
    if let Some(content) = content {
        row.put_slice(content);
    }
    if let Some(trace) = trace {
        trace::append(&mut row, trace);
    }
    row.freeze()
}

pub(crate) fn decode_change(stream: StreamId, sequence: Sequence, mut row: Bytes) -> Result<Change> {
    let replaces = match row.first() {
        Some(&CHANGE_LAYOUT) if row.len() > REPLACES_BYTES + CHANGE_HEAD_BYTES => {
            row.advance(1);
            Some(Sequence(row.get_u64())).filter(|replaced| *replaced != Sequence::START)
        }
        _ => {
            open(&row, CHANGE_HEAD_BYTES, "change")?;
            row.advance(1);
            None
        }
    };
    let number = DocumentNumber(row.get_u64());
    let revision = read_revision(&mut row);
    let updated_at = timestamp(row.get_i64())?;
    let flags = row.get_u8();
    let url_bytes = usize::from(row.get_u16());
    if row.len() < url_bytes {
        return Err(damaged("change"));
    }
    let url = read_url(&row.split_to(url_bytes))?;
    let trace = if flags & HAS_TRACE == 0 { None } else { trace::split_off(&mut row)? };
    let content = (flags & DELETED == 0).then_some(row);
    let written = WrittenChange { sequence, number, revision, replaces };
    Ok(Change::new(stream, &written, url, updated_at, content).with_trace(trace))
}

fn read_url(bytes: &[u8]) -> Result<DocumentUrl> {
    std::str::from_utf8(bytes).ok().and_then(|url| DocumentUrl::parse(url).ok()).ok_or_else(|| damaged("URL"))
}

const VERSION_BYTES: usize = 8 + 16 + 1;

pub(crate) fn encode_version(version: &Version) -> Bytes {
    let mut row = BytesMut::with_capacity(1 + VERSION_BYTES);
    row.put_u8(LAYOUT);
    row.put_u64(version.sequence.0);
    row.put_slice(&version.revision.to_bytes());
    row.put_u8(version.deleted.into());
    row.freeze()
}

pub(crate) fn decode_version(row: &[u8]) -> Result<Version> {
    let mut row = open(row, VERSION_BYTES, "version")?;
    Ok(Version { sequence: Sequence(row.get_u64()), revision: read_revision(&mut row), deleted: row.get_u8() != 0 })
}

pub(crate) fn encode_cursor(cursor: Sequence) -> Bytes {
    Bytes::copy_from_slice(&cursor.0.to_be_bytes())
}

pub(crate) fn decode_cursor(row: &[u8]) -> Result<Sequence> {
    row.try_into().map(|bytes| Sequence(u64::from_be_bytes(bytes))).map_err(|_| damaged("cursor"))
}

/// How far replaced changes were removed.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Swept {
    /// Up to here a sweep has passed.
    pub from: Sequence,
    /// Up to here one is passing.
    pub to: Sequence,
}

impl Swept {
    pub fn read(map: &dyn KeyValue) -> Result<Self> {
        let Some(row) = map.get(Table::Meta, keys::SWEPT)? else { return Ok(Self::default()) };
        let (from, to) = row.split_at_checked(8).ok_or_else(|| damaged("sweep"))?;
        Ok(Self { from: decode_cursor(from)?, to: decode_cursor(to)? })
    }

    pub fn encode(self) -> Bytes {
        Bytes::from([self.from.0.to_be_bytes(), self.to.0.to_be_bytes()].concat())
    }
}

const RETRY_HEAD_BYTES: usize = 4 + 8;

pub(crate) fn encode_retry(retry: &Retry) -> Bytes {
    let url = retry.url.as_str().as_bytes();
    let mut row = BytesMut::with_capacity(1 + RETRY_HEAD_BYTES + url.len());
    row.put_u8(LAYOUT);
    row.put_u32(retry.attempts);
    row.put_i64(micros(retry.due));
    row.put_slice(url);
    row.freeze()
}

pub(crate) fn decode_retry(outlet: OutletId, number: DocumentNumber, row: &[u8]) -> Result<Retry> {
    let mut row = open(row, RETRY_HEAD_BYTES, "retry")?;
    let attempts = row.get_u32();
    let due = timestamp(row.get_i64())?;
    Ok(Retry { outlet, number, url: read_url(row)?, attempts, due })
}

const IDEMPOTENCY_BYTES: usize = 8 + 32 + 16;

pub(crate) fn encode_idempotency(once: &Idempotency, id: &[u8; 16]) -> Bytes {
    let mut row = BytesMut::with_capacity(1 + IDEMPOTENCY_BYTES);
    row.put_u8(LAYOUT);
    row.put_i64(micros(once.at));
    row.put_slice(&once.fingerprint);
    row.put_slice(id);
    row.freeze()
}

/// The fingerprint of the request and the id of what it made.
pub(crate) fn decode_idempotency(row: &[u8]) -> Result<([u8; 32], [u8; 16])> {
    let mut row = open(row, IDEMPOTENCY_BYTES, "idempotency")?;
    row.advance(8);
    let (mut fingerprint, mut id) = ([0; 32], [0; 16]);
    row.copy_to_slice(&mut fingerprint);
    row.copy_to_slice(&mut id);
    Ok((fingerprint, id))
}

pub(crate) fn idempotency_at(row: &[u8]) -> Option<Timestamp> {
    let mut row = open(row, IDEMPOTENCY_BYTES, "idempotency").ok()?;
    Timestamp::from_microsecond(row.get_i64()).ok()
}
