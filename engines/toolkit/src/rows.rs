//! How entities are written down: streams, outlets, tokens, dead letters and replays as JSON, because they are few, change
//! seldom and grow new members; attempts, which are many, as bytes that start with a layout.

mod delivery;
mod outlet;
mod stream;
mod token;

use bytes::Bytes;
use flare_core::{Error, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::{
    delivery::{
        decode_attempts, decode_dead_letter, decode_replay, encode_attempts, encode_dead_letter, encode_replay,
    },
    outlet::{decode_outlet, encode_outlet, outlet_stream},
    stream::{decode_stream, encode_stream},
    token::{decode_token, encode_token},
};

/// The layout of binary rows.
pub const LAYOUT: u8 = 1;

pub fn damaged(what: &str) -> Error {
    Error::internal(format!("a {what} row of the store is damaged"))
}

/// Times are kept in microseconds.
pub fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

pub fn timestamp(micros: i64) -> Result<Timestamp> {
    Timestamp::from_microsecond(micros).map_err(|error| damaged("timestamped").because(error))
}

fn encode_json(row: &impl Serialize) -> Result<Bytes> {
    serde_json::to_vec(row).map(Bytes::from).map_err(|error| Error::internal("could not encode a row").because(error))
}

fn decode_json<'a, T: Deserialize<'a>>(row: &'a [u8], what: &str) -> Result<T> {
    serde_json::from_slice(row).map_err(|error| damaged(what).because(error))
}
