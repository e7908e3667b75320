//! The row of a token.

use bytes::Bytes;
use flare_core::{
    Result, TokenId,
    token::{Scope, Token},
};
use serde::{Deserialize, Serialize};

use super::{damaged, decode_json, encode_json, micros, timestamp};

#[derive(Serialize, Deserialize)]
struct TokenRow {
    name: String,
    scope: String,
    streams: Vec<String>,
    digest: [u8; 32],
    created_at: i64,
    expires_at: Option<i64>,
}

pub fn encode_token(token: &Token) -> Result<Bytes> {
    encode_json(&TokenRow {
        name: token.name.clone(),
        scope: token.scope.as_str().into(),
        streams: token.streams.iter().map(ToString::to_string).collect(),
        digest: token.digest,
        created_at: micros(token.created_at),
        expires_at: token.expires_at.map(micros),
    })
}

pub fn decode_token(id: TokenId, row: &[u8]) -> Result<Token> {
    let row: TokenRow = decode_json(row, "token")?;
    let streams = row.streams.iter().map(|stream| stream.parse().map_err(|error| damaged("token").because(error)));
    Ok(Token {
        id,
        name: row.name,
        scope: Scope::parse(&row.scope).ok_or_else(|| damaged("token"))?,
        streams: streams.collect::<Result<_>>()?,
        digest: row.digest,
        created_at: timestamp(row.created_at)?,
        expires_at: row.expires_at.map(timestamp).transpose()?,
    })
}
