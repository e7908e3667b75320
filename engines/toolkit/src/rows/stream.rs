//! The row of a stream.

use bytes::Bytes;
use flare_core::{
    Result, StreamId,
    change::{ChangeRule, FieldPath},
    pattern::Pattern,
    revision::RevisionFormat,
    stream::Stream,
};
use serde::{Deserialize, Serialize};

use super::{damaged, decode_json, encode_json, micros, timestamp};

#[derive(Serialize, Deserialize)]
struct StreamRow {
    endpoint: String,
    field: String,
    format: Option<String>,
    created_at: i64,
}

pub fn encode_stream(stream: &Stream) -> Result<Bytes> {
    encode_json(&StreamRow {
        endpoint: stream.endpoint.as_str().into(),
        field: stream.change.field.to_string(),
        format: stream.change.format.as_str().map(Into::into),
        created_at: micros(stream.created_at),
    })
}

pub fn decode_stream(id: StreamId, row: &[u8]) -> Result<Stream> {
    let row: StreamRow = decode_json(row, "stream")?;
    let format = match &row.format {
        None => RevisionFormat::Integer,
        Some(text) => RevisionFormat::parse(text).map_err(|error| damaged("stream").because(error))?,
    };
    let field = FieldPath::parse(&row.field).map_err(|error| damaged("stream").because(error))?;
    Ok(Stream {
        id,
        endpoint: Pattern::parse(&row.endpoint).map_err(|error| damaged("stream").because(error))?,
        change: ChangeRule { field, format },
        created_at: timestamp(row.created_at)?,
    })
}
