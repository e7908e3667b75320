//! How things are laid out in BSON: so that a person with a shell can read them, and nothing is lost.
//!
//! Times are dates, which have milliseconds, with the microseconds beside them where there are any. Revisions are
//! decimals. The content of a document is its exact text.

pub(crate) mod body;

use std::sync::Arc;

use bytes::Bytes;
use flare_core::{
    DocumentNumber, OutletId, Result, Sequence, StreamId,
    document::{Change, Retry, Version, WrittenChange},
    revision::Revision,
    trace::Trace,
    url::DocumentUrl,
};
use flare_toolkit::rows::damaged;
use jiff::Timestamp;
use mongodb::bson::{
    DateTime, Decimal128, RawBsonRef, RawDocument, RawDocumentBuf,
    raw::{CStr, cstr},
    rawdoc,
    spec::BinarySubtype,
};

const MICROS_PER_MILLI: i64 = 1000;

/// The places of a time: the date, and the microseconds past its millisecond.
#[derive(Clone, Copy)]
pub(crate) struct TimeNames {
    pub date: &'static CStr,
    pub micros: &'static CStr,
}

pub(crate) const UPDATED_AT: TimeNames = TimeNames { date: cstr!("updatedAt"), micros: cstr!("updatedAtMicros") };
pub(crate) const DUE: TimeNames = TimeNames { date: cstr!("due"), micros: cstr!("dueMicros") };

pub(crate) fn date(at: Timestamp) -> DateTime {
    DateTime::from_millis(at.as_microsecond().div_euclid(MICROS_PER_MILLI))
}

/// The microseconds past the date.
pub(crate) fn micros_past(at: Timestamp) -> i32 {
    at.as_microsecond().rem_euclid(MICROS_PER_MILLI) as i32
}

fn append_time(row: &mut RawDocumentBuf, names: TimeNames, at: Timestamp) {
    row.append(names.date, date(at));
    if micros_past(at) != 0 {
        row.append(names.micros, micros_past(at));
    }
}

fn read_time(row: &RawDocument, names: TimeNames) -> Result<Timestamp> {
    let broken = || damaged("timestamped");
    let date = row.get_datetime(names.date.as_str()).map_err(|error| broken().because(error))?;
    let past = row.get_i32(names.micros.as_str()).unwrap_or(0);
    let micros = date.timestamp_millis().saturating_mul(MICROS_PER_MILLI).saturating_add(past.into());
    Timestamp::from_microsecond(micros).map_err(|error| broken().because(error))
}

/// The exponent of an integer in a decimal, which is kept with this bias.
const DECIMAL_EXPONENT: u128 = 6176 << 113;
const DECIMAL_SIGN: u128 = 1 << 127;
const DECIMAL_COEFFICIENT: u128 = (1 << 113) - 1;
/// A decimal has 34 digits. No format makes a longer revision; one would be kept as text.
const DECIMAL_MAX: u128 = 10u128.pow(34) - 1;

pub(crate) fn append_revision(row: &mut RawDocumentBuf, revision: Revision) {
    let value = revision.value();
    if value.unsigned_abs() > DECIMAL_MAX {
        return row.append(cstr!("revision"), value.to_string());
    }
    let sign = if value < 0 { DECIMAL_SIGN } else { 0 };
    let bits = sign | DECIMAL_EXPONENT | value.unsigned_abs();
    row.append(cstr!("revision"), Decimal128::from_bytes(bits.to_le_bytes()));
}

pub(crate) fn read_revision(row: &RawDocument) -> Result<Revision> {
    match row.get("revision") {
        Ok(Some(RawBsonRef::Decimal128(decimal))) => {
            let bits = u128::from_le_bytes(decimal.bytes());
            if bits & !DECIMAL_SIGN & !DECIMAL_COEFFICIENT != DECIMAL_EXPONENT {
                return Err(damaged("revised"));
            }
            let value = (bits & DECIMAL_COEFFICIENT) as i128;
            Ok(Revision::new(if bits & DECIMAL_SIGN == 0 { value } else { -value }))
        }
        Ok(Some(RawBsonRef::String(text))) => text.parse().map(Revision::new).map_err(|_| damaged("revised")),
        _ => Err(damaged("revised")),
    }
}

pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn read_int(row: &RawDocument, name: &str) -> Result<u64> {
    let number = row.get_i64(name).map_err(|error| damaged(name).because(error))?;
    u64::try_from(number).map_err(|_| damaged(name))
}

pub(crate) fn read_text<'a>(row: &'a RawDocument, name: &str) -> Result<&'a str> {
    row.get_str(name).map_err(|error| damaged(name).because(error))
}

pub(crate) fn read_part<'a>(row: &'a RawDocument, name: &str) -> Result<&'a RawDocument> {
    row.get_document(name).map_err(|error| damaged(name).because(error))
}

fn read_url(row: &RawDocument) -> Result<DocumentUrl> {
    DocumentUrl::parse(read_text(row, "url")?).map_err(|error| damaged("url").because(error))
}

/// Bytes as text where they are text, so that they can be read.
pub(crate) fn append_bytes(row: &mut RawDocumentBuf, name: &CStr, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => row.append(name, text),
        Err(_) => row.append(name, binary(bytes)),
    }
}

pub(crate) fn binary(bytes: &[u8]) -> mongodb::bson::Binary {
    mongodb::bson::Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() }
}

/// None if there is neither text nor binary under the name.
pub(crate) fn read_bytes(row: &RawDocument, name: &str) -> Option<Bytes> {
    match row.get(name).ok().flatten() {
        Some(RawBsonRef::String(text)) => Some(Bytes::copy_from_slice(text.as_bytes())),
        Some(RawBsonRef::Binary(binary)) => Some(Bytes::copy_from_slice(binary.bytes)),
        _ => None,
    }
}

/// Where the newest change of a document is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DocumentHead {
    pub number: DocumentNumber,
    pub sequence: Sequence,
    pub revision: Revision,
    pub updated_at: Timestamp,
    pub deleted: bool,
}

pub(crate) fn document_key(stream: StreamId, url: &str) -> RawDocumentBuf {
    rawdoc! { "stream": stream.to_string(), "url": url }
}

impl DocumentHead {
    pub fn row(&self, stream: StreamId, url: &DocumentUrl) -> RawDocumentBuf {
        let mut row = RawDocumentBuf::new();
        row.append(cstr!("_id"), document_key(stream, url.as_str()));
        // Once more, for the index by which the feed is read.
        row.append(cstr!("stream"), stream.to_string());
        row.append(cstr!("number"), int(self.number.0));
        row.append(cstr!("sequence"), int(self.sequence.0));
        append_revision(&mut row, self.revision);
        append_time(&mut row, UPDATED_AT, self.updated_at);
        row.append(cstr!("deleted"), self.deleted);
        row
    }

    pub fn read(row: &RawDocument) -> Result<Self> {
        Ok(Self {
            number: DocumentNumber(read_int(row, "number")?),
            sequence: Sequence(read_int(row, "sequence")?),
            revision: read_revision(row)?,
            updated_at: read_time(row, UPDATED_AT)?,
            deleted: row.get_bool("deleted").map_err(|error| damaged("document").because(error))?,
        })
    }
}

/// Stream and URL of a row of documents.
pub(crate) fn read_document_key(row: &RawDocument) -> Result<(StreamId, DocumentUrl)> {
    let key = read_part(row, "_id")?;
    Ok((read_stream(key)?, read_url(key)?))
}

fn read_stream(row: &RawDocument) -> Result<StreamId> {
    read_text(row, "stream")?.parse().map_err(|error| damaged("stream").because(error))
}

/// `total` is how many documents the stream has after this change.
pub(crate) fn change_row(change: &Change, total: u64) -> RawDocumentBuf {
    let mut row = RawDocumentBuf::new();
    row.append(cstr!("_id"), int(change.sequence.0));
    row.append(cstr!("stream"), change.stream.to_string());
    row.append(cstr!("number"), int(change.number.0));
    row.append(cstr!("url"), change.url.as_str());
    append_revision(&mut row, change.revision);
    append_time(&mut row, UPDATED_AT, change.updated_at);
    if let Some(replaces) = change.replaces {
        row.append(cstr!("replaces"), int(replaces.0));
    }
    row.append(cstr!("total"), int(total));
    if let Some(trace) = &change.trace {
        let mut part = rawdoc! { "parent": trace.parent() };
        if let Some(state) = trace.state() {
            part.append(cstr!("state"), state);
        }
        row.append(cstr!("trace"), part);
    }
    match &change.content {
        Some(content) => append_bytes(&mut row, cstr!("content"), content),
        None => row.append(cstr!("content"), RawBsonRef::Null),
    }
    row
}

pub(crate) fn read_change(row: &RawDocument) -> Result<Change> {
    let written = WrittenChange {
        sequence: Sequence(read_int(row, "_id")?),
        number: DocumentNumber(read_int(row, "number")?),
        revision: read_revision(row)?,
        replaces: row.get_i64("replaces").ok().map(|sequence| Sequence(sequence as u64)),
    };
    let content = read_bytes(row, "content");
    let trace = match row.get_document("trace") {
        Ok(part) => Trace::parse(read_text(part, "parent")?, part.get_str("state").ok()).map(Arc::new),
        Err(_) => None,
    };
    let change = Change::new(read_stream(row)?, &written, read_url(row)?, read_time(row, UPDATED_AT)?, content);
    Ok(change.with_trace(trace))
}

/// The key of versions and retries.
pub(crate) fn outlet_document(outlet: OutletId, number: DocumentNumber) -> RawDocumentBuf {
    rawdoc! { "outlet": outlet.to_string(), "number": int(number.0) }
}

pub(crate) fn read_outlet_document(row: &RawDocument) -> Result<(OutletId, DocumentNumber)> {
    let key = read_part(row, "_id")?;
    let outlet = read_text(key, "outlet")?.parse().map_err(|error| damaged("outlet").because(error))?;
    Ok((outlet, DocumentNumber(read_int(key, "number")?)))
}

pub(crate) fn version_row(outlet: OutletId, number: DocumentNumber, version: &Version, epoch: u64) -> RawDocumentBuf {
    let mut row = RawDocumentBuf::new();
    row.append(cstr!("_id"), outlet_document(outlet, number));
    row.append(cstr!("sequence"), int(version.sequence.0));
    append_revision(&mut row, version.revision);
    row.append(cstr!("deleted"), version.deleted);
    row.append(cstr!("epoch"), int(epoch));
    row
}

pub(crate) fn read_version(row: &RawDocument) -> Result<Version> {
    Ok(Version {
        sequence: Sequence(read_int(row, "sequence")?),
        revision: read_revision(row)?,
        deleted: row.get_bool("deleted").map_err(|error| damaged("version").because(error))?,
    })
}

pub(crate) fn retry_row(retry: &Retry, epoch: u64) -> RawDocumentBuf {
    let mut row = RawDocumentBuf::new();
    row.append(cstr!("_id"), outlet_document(retry.outlet, retry.number));
    row.append(cstr!("url"), retry.url.as_str());
    row.append(cstr!("attempts"), i64::from(retry.attempts));
    append_time(&mut row, DUE, retry.due);
    row.append(cstr!("epoch"), int(epoch));
    row
}

pub(crate) fn read_retry(row: &RawDocument) -> Result<Retry> {
    let (outlet, number) = read_outlet_document(row)?;
    let attempts = u32::try_from(read_int(row, "attempts")?).map_err(|_| damaged("retry"))?;
    Ok(Retry { outlet, number, url: read_url(row)?, attempts, due: read_time(row, DUE)? })
}

#[cfg(test)]
mod tests;
