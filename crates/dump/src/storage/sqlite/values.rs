//! Values in SQLite's five types.

use rusqlite::types::{ToSqlOutput, Value as Sql, ValueRef};

use crate::convert::{self, convert};
use crate::value::{Kind, Value};

/// What a cell holds, as the column is declared; if it is something else, as what it is.
pub(super) fn from_sql(cell: ValueRef<'_>, kind: Kind) -> Result<Value, String> {
    let value = match cell {
        ValueRef::Null => return Ok(Value::Null),
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Real(number) => Value::Float(number),
        ValueRef::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => Value::text(text),
            Err(_) => return Err("a text is not UTF-8".to_owned()),
        },
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    };
    Ok(match (kind, value) {
        (Kind::Text, value) => value,
        (Kind::Json | Kind::JsonBinary, Value::Text(text)) => Value::Json(text.into()),
        (kind, value) => convert(value.clone(), kind).unwrap_or(value),
    })
}

/// What is written for a value.
pub(super) fn to_sql(value: &Value) -> ToSqlOutput<'_> {
    match value {
        Value::Missing | Value::Null => ToSqlOutput::Owned(Sql::Null),
        Value::Bool(value) => ToSqlOutput::Owned(Sql::Integer(i64::from(*value))),
        Value::Int(number) => ToSqlOutput::Owned(Sql::Integer(*number)),
        // SQLite makes null of it.
        Value::Float(number) if number.is_nan() => ToSqlOutput::Owned(Sql::Text("NaN".to_owned())),
        Value::Float(number) => ToSqlOutput::Owned(Sql::Real(*number)),
        Value::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        Value::Json(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        Value::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        other => ToSqlOutput::Owned(Sql::Text(convert::text(other))),
    }
}
