//! The forms of extended JSON: documents whose first field begins with a dollar.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::to_string;
use crate::value::{Decimal, Other, Value, from_hex, uuid_from_text};

/// The value that the document stands for; itself if it is of no known form.
pub(super) fn value_of(mut fields: Vec<(String, Value)>) -> Value {
    if fields.len() == 1 {
        let (name, value) = fields.remove(0);
        return match of_one(&name[1..], value) {
            Ok(value) => value,
            Err(value) => Value::Object(vec![(name, value)]),
        };
    }
    Value::Object(fields)
}

/// The value of `{"$name": value}`, or the value back.
fn of_one(name: &str, value: Value) -> Result<Value, Value> {
    let text = if let Value::Text(text) = &value { text.as_str() } else { "" };
    let read = match name {
        "oid" => from_hex(text.as_bytes()).and_then(|bytes| bytes.try_into().ok()).map(Value::ObjectId),
        "uuid" => uuid_from_text(text).map(Value::Uuid),
        "day" => text.parse().ok().map(Value::Date),
        "time" => text.parse().ok().map(Value::Time),
        "datetime" => text.parse().ok().map(Value::DateTime),
        "date" => date(&value),
        "numberInt" | "numberLong" => text.parse().ok().map(Value::Int),
        "numberDouble" => text.parse().ok().map(Value::Float),
        "numberDecimal" => Decimal::parse(text).map(Value::Decimal),
        "binary" => binary(&value),
        "verbatim" if matches!(value, Value::Object(_)) => return Ok(value),
        "regularExpression" | "timestamp" | "code" | "codeWithScope" | "symbol" | "dbPointer" | "minKey" | "maxKey"
        | "undefined" => Some(other(name, &value)),
        // A date that no calendar of ours holds, as MongoDB may have.
        _ => None,
    };
    read.ok_or(value)
}

fn date(value: &Value) -> Option<Value> {
    match value {
        Value::Text(text) => text.parse().ok().map(Value::Instant),
        Value::Int(millis) => Some(instant_of_millis(*millis)),
        _ => None,
    }
}

/// A date of MongoDB. Those far from us no calendar holds; they are carried through.
pub(crate) fn instant_of_millis(millis: i64) -> Value {
    jiff::Timestamp::from_millisecond(millis).map_or_else(|_| other("date", &long(millis)), Value::Instant)
}

fn long(number: i64) -> Value {
    Value::Other(Box::new(Other { kind: "numberLong".to_owned(), json: format!("\"{number}\"").into() }))
}

fn other(kind: &str, value: &Value) -> Value {
    Value::Other(Box::new(Other { kind: kind.to_owned(), json: to_string(value).into() }))
}

/// Bytes of the usual kind are bytes, UUIDs are UUIDs; other kinds are carried through.
fn binary(value: &Value) -> Option<Value> {
    let Value::Object(fields) = value else { return None };
    let field = |wanted: &str| match fields.iter().find(|(name, _)| name == wanted) {
        Some((_, Value::Text(text))) => Some(text.as_str()),
        _ => None,
    };
    let bytes = STANDARD.decode(field("base64")?).ok()?;
    match field("subType")? {
        "0" | "00" => Some(Value::Bytes(bytes)),
        "4" | "04" if bytes.len() == 16 => bytes.try_into().ok().map(Value::Uuid),
        _ => Some(other("binary", value)),
    }
}
