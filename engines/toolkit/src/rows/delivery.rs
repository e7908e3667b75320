//! Rows of what is kept of deliveries.
//!
//! Attempts of one outlet that were recorded together are one row: a delivery costs some bytes, not a row. Dead letters
//! are few, and JSON.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flare_core::{
    DocumentNumber, OutletId, Result, Sequence,
    delivery::{AttemptRecord, AttemptResult, Bodies, DeadLetter, DeathCause},
    document::Action,
    replay::Replay,
    revision::Revision,
    url::DocumentUrl,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{LAYOUT, damaged, decode_json, encode_json, micros, timestamp};

#[derive(Serialize, Deserialize)]
struct DeadLetterRow {
    number: u64,
    url: String,
    sequence: u64,
    revision: String,
    attempts: u32,
    cause: String,
    detail: String,
    at: i64,
}

pub fn encode_dead_letter(letter: &DeadLetter) -> Result<Bytes> {
    encode_json(&DeadLetterRow {
        number: letter.number.0,
        url: letter.url.as_str().into(),
        sequence: letter.sequence.0,
        revision: letter.revision.value().to_string(),
        attempts: letter.attempts,
        cause: letter.cause.as_str().into(),
        detail: letter.detail.clone(),
        at: micros(letter.at),
    })
}

pub fn decode_dead_letter(outlet: OutletId, row: &[u8]) -> Result<DeadLetter> {
    let broken = || damaged("dead letter");
    let row: DeadLetterRow = decode_json(row, "dead letter")?;
    Ok(DeadLetter {
        outlet,
        number: DocumentNumber(row.number),
        url: DocumentUrl::parse(&row.url).map_err(|error| broken().because(error))?,
        sequence: Sequence(row.sequence),
        revision: Revision::new(row.revision.parse().map_err(|_| broken())?),
        attempts: row.attempts,
        cause: DeathCause::ALL.into_iter().find(|cause| cause.as_str() == row.cause).ok_or_else(broken)?,
        detail: row.detail,
        at: timestamp(row.at)?,
    })
}

#[derive(Serialize, Deserialize)]
struct ReplayRow {
    stream: String,
    from: u64,
    position: u64,
    until: u64,
    prefix: String,
    revision: Option<String>,
    documents: u64,
    started_at: i64,
}

pub fn encode_replay(replay: &Replay) -> Result<Bytes> {
    encode_json(&ReplayRow {
        stream: replay.stream.to_string(),
        from: replay.from.0,
        position: replay.position.0,
        until: replay.until.0,
        prefix: replay.prefix.clone(),
        revision: replay.revision.map(|revision| revision.value().to_string()),
        documents: replay.documents,
        started_at: micros(replay.started_at),
    })
}

pub fn decode_replay(outlet: OutletId, row: &[u8]) -> Result<Replay> {
    let broken = || damaged("replay");
    let row: ReplayRow = decode_json(row, "replay")?;
    let revision = row.revision.map(|text| text.parse().map(Revision::new).map_err(|_| broken())).transpose()?;
    Ok(Replay {
        outlet,
        stream: row.stream.parse().map_err(|error| broken().because(error))?,
        from: Sequence(row.from),
        position: Sequence(row.position),
        until: Sequence(row.until),
        prefix: row.prefix,
        revision,
        documents: row.documents,
        started_at: timestamp(row.started_at)?,
    })
}

const ANSWERED: u8 = 0;
const FAILED: u8 = 1;
const WITH_BODIES: u8 = 2;

pub fn encode_attempts(attempts: &[AttemptRecord]) -> Bytes {
    let mut row = BytesMut::with_capacity(1 + attempts.len() * 128);
    row.put_u8(LAYOUT);
    for attempt in attempts {
        row.put_i128(attempt.at.as_nanosecond());
        row.put_i128(attempt.revision.value());
        row.put_u8(attempt.action as u8);
        row.put_u32(attempt.attempt);
        row.put_u64(attempt.duration.as_micros() as u64);
        row.put_u32(attempt.request_bytes);
        row.put_u32(attempt.response_bytes);
        put_bytes(&mut row, attempt.url.as_str().as_bytes());
        let with_bodies = if attempt.bodies.is_some() { WITH_BODIES } else { 0 };
        match &attempt.result {
            AttemptResult::Answered(status) => {
                row.put_u8(ANSWERED | with_bodies);
                row.put_u16(*status);
            }
            AttemptResult::Failed(reason) => {
                row.put_u8(FAILED | with_bodies);
                put_bytes(&mut row, reason.as_bytes());
            }
        }
        if let Some(bodies) = &attempt.bodies {
            put_bytes(&mut row, &bodies.request);
            put_bytes(&mut row, &bodies.response);
        }
    }
    row.freeze()
}

pub fn decode_attempts(row: Bytes) -> Result<Vec<AttemptRecord>> {
    decode(row).ok_or_else(|| damaged("attempts"))
}

fn decode(mut row: Bytes) -> Option<Vec<AttemptRecord>> {
    let mut attempts = Vec::new();
    if row.try_get_u8().ok()? != LAYOUT {
        return None;
    }
    while row.has_remaining() {
        let at = Timestamp::from_nanosecond(row.try_get_i128().ok()?).ok()?;
        let revision = Revision::new(row.try_get_i128().ok()?);
        let action = match row.try_get_u8().ok()? {
            0 => Action::Create,
            1 => Action::Update,
            2 => Action::Delete,
            _ => return None,
        };
        let attempt = row.try_get_u32().ok()?;
        let duration = Duration::from_micros(row.try_get_u64().ok()?);
        let (request_bytes, response_bytes) = (row.try_get_u32().ok()?, row.try_get_u32().ok()?);
        let url = DocumentUrl::parse(std::str::from_utf8(&get_bytes(&mut row)?).ok()?).ok()?;
        let kind = row.try_get_u8().ok()?;
        let result = match kind & !WITH_BODIES {
            ANSWERED => AttemptResult::Answered(row.try_get_u16().ok()?),
            FAILED => AttemptResult::Failed(String::from_utf8(get_bytes(&mut row)?.into()).ok()?),
            _ => return None,
        };
        let bodies = match kind & WITH_BODIES {
            0 => None,
            _ => Some(Bodies { request: get_bytes(&mut row)?, response: get_bytes(&mut row)? }),
        };
        attempts.push(AttemptRecord {
            at,
            url,
            revision,
            action,
            attempt,
            duration,
            result,
            request_bytes,
            response_bytes,
            bodies,
        });
    }
    Some(attempts)
}

fn put_bytes(row: &mut BytesMut, bytes: &[u8]) {
    row.put_u32(bytes.len() as u32);
    row.put_slice(bytes);
}

fn get_bytes(row: &mut Bytes) -> Option<Bytes> {
    let length = row.try_get_u32().ok()? as usize;
    (length <= row.remaining()).then(|| row.split_to(length))
}
