//! Values from the text format of `COPY`.

use memchr::memchr;

use crate::convert::convert;
use crate::row::Row;
use crate::value::{Decimal, Kind, Value, from_hex, uuid_from_text};

/// The row of a line, which is whole.
pub(super) fn row(line: &[u8], kinds: &[Kind]) -> Row {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut cells = Vec::with_capacity(kinds.len());
    for (field, kind) in line.split(|byte| *byte == b'\t').zip(kinds) {
        match cell(field, *kind) {
            Ok(value) => cells.push(value),
            Err(reason) => return Row::bad(String::from_utf8_lossy(line), reason),
        }
    }
    Row::Cells(cells)
}

fn cell(field: &[u8], kind: Kind) -> Result<Value, String> {
    if field == b"\\N" {
        return Ok(Value::Null);
    }
    let bytes = if memchr(b'\\', field).is_some() { unescaped(field) } else { field.to_vec() };
    let text = String::from_utf8(bytes).map_err(|_| "a value is not UTF-8".to_owned())?;
    Ok(value(text, kind))
}

/// The escapes that the server writes.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next() {
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'v') => 11,
            Some(&other) => other,
            None => b'\\',
        });
    }
    bytes
}

/// The value that the server writes as this text. What no type of ours holds (`infinity`, years before Christ) is text.
pub(super) fn value(text: String, kind: Kind) -> Value {
    let read = match kind {
        Kind::Text => return Value::Text(text),
        Kind::Json | Kind::JsonBinary => return Value::Json(text.into()),
        Kind::Bool => match text.as_str() {
            "t" | "true" => Some(Value::Bool(true)),
            "f" | "false" => Some(Value::Bool(false)),
            _ => None,
        },
        Kind::Int16 | Kind::Int32 | Kind::Int64 => text.parse().ok().map(Value::Int),
        Kind::Float32 | Kind::Float64 => text.parse().ok().map(Value::Float),
        Kind::Decimal(_) => Decimal::parse(&text).map(Value::Decimal),
        Kind::Bytes => text.strip_prefix("\\x").and_then(|hex| from_hex(hex.as_bytes())).map(Value::Bytes),
        Kind::Uuid => uuid_from_text(&text).map(Value::Uuid),
        Kind::Date => text.parse().ok().map(Value::Date),
        Kind::Time => text.parse().ok().map(Value::Time),
        Kind::DateTime => text.parse().ok().map(Value::DateTime),
        Kind::Instant => text.parse().ok().map(Value::Instant),
        Kind::ObjectId => convert(Value::text(text.as_str()), Kind::ObjectId).ok(),
    };
    read.unwrap_or(Value::Text(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_line_of_copy_is_read() {
        let check = |field: &str, kind: Kind, expected: &str| {
            let Row::Cells(cells) = row(format!("{field}\n").as_bytes(), &[kind]) else { panic!("{field}") };
            assert_eq!(json::to_string(&cells[0]), expected);
        };
        check("\\N", Kind::Int64, "null");
        check("", Kind::Text, "\"\"");
        check("a\\tb\\\\N\\n", Kind::Text, "\"a\\tb\\\\N\\n\"");
        check("\\\\x00ff", Kind::Bytes, "{\"$binary\":{\"base64\":\"AP8=\",\"subType\":\"00\"}}");
        check("2024-01-31 12:00:00.5+00", Kind::Instant, "{\"$date\":\"2024-01-31T12:00:00.5Z\"}");
        check("2024-01-31 12:00:00", Kind::DateTime, "{\"$datetime\":\"2024-01-31T12:00:00\"}");
        check("infinity", Kind::Instant, "\"infinity\"");
        check("0044-03-15 BC", Kind::Date, "\"0044-03-15 BC\"");
        check("NaN", Kind::Decimal(None), "{\"$numberDecimal\":\"NaN\"}");
        check("-Infinity", Kind::Float64, "{\"$numberDouble\":\"-Infinity\"}");
        check("t", Kind::Bool, "true");
    }
}
