//! Entities: the JSON of the toolkit as members of a BSON document, with names in camel case.

use bytes::Bytes;
use flare_core::{Error, Result};
use flare_toolkit::rows::damaged;
use mongodb::bson::{Bson, Document, RawDocument, RawDocumentBuf};
use serde_json::{Map, Number, Value};

/// Names that are written otherwise in JSON. All others are the same in both.
const NAMES: [(&str, &str); 7] = [
    ("created_at", "createdAt"),
    ("updated_at", "updatedAt"),
    ("expires_at", "expiresAt"),
    ("started_at", "startedAt"),
    ("previous_secret", "previousSecret"),
    ("timeout_ms", "timeoutMs"),
    ("ttl_ms", "ttlMs"),
];

/// The row of an entity: first what identifies it, then the members of its JSON.
pub(crate) fn entity_row(start: Document, json: &[u8]) -> Result<RawDocumentBuf> {
    let mut row = start;
    let Value::Object(members) = serde_json::from_slice(json).map_err(unreadable)? else {
        return Err(Error::internal("an entity is no JSON object"));
    };
    for (name, value) in members {
        row.insert(in_bson(&name), to_bson(value));
    }
    RawDocumentBuf::try_from(&row).map_err(unreadable)
}

/// The JSON of an entity. Members that only the store knows are ignored by those who read it.
pub(crate) fn entity_json(row: &RawDocument) -> Result<Bytes> {
    let row = Document::try_from(row).map_err(|error| damaged("entity").because(error))?;
    let json = to_json(Bson::Document(row)).ok_or_else(|| damaged("entity"))?;
    serde_json::to_vec(&json).map(Bytes::from).map_err(unreadable)
}

fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::internal("could not lay out an entity").because(error)
}

fn in_bson(name: &str) -> String {
    NAMES.iter().find(|(json, _)| *json == name).map_or(name, |(_, bson)| bson).to_owned()
}

fn in_json(name: String) -> String {
    NAMES.iter().find(|(_, bson)| *bson == name).map_or(name, |(json, _)| (*json).to_owned())
}

fn to_bson(value: Value) -> Bson {
    match value {
        Value::Null => Bson::Null,
        Value::Bool(value) => Bson::Boolean(value),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Bson::Int64(integer),
            (None, Some(float)) => Bson::Double(float),
            (None, None) => Bson::String(number.to_string()),
        },
        Value::String(text) => Bson::String(text),
        Value::Array(items) => Bson::Array(items.into_iter().map(to_bson).collect()),
        Value::Object(members) => {
            Bson::Document(members.into_iter().map(|(name, value)| (in_bson(&name), to_bson(value))).collect())
        }
    }
}

/// None for what no JSON was made of; such members of a row are left out.
fn to_json(value: Bson) -> Option<Value> {
    Some(match value {
        Bson::Null => Value::Null,
        Bson::Boolean(value) => Value::Bool(value),
        Bson::Int32(integer) => Value::Number(integer.into()),
        Bson::Int64(integer) => Value::Number(integer.into()),
        Bson::Double(float) => Value::Number(Number::from_f64(float)?),
        Bson::String(text) => Value::String(text),
        Bson::Array(items) => Value::Array(items.into_iter().filter_map(to_json).collect()),
        Bson::Document(members) => {
            let members = members.into_iter().filter_map(|(name, value)| Some((in_json(name), to_json(value)?)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        _ => return None,
    })
}
