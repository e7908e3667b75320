//! Values as they stand in statements.

use std::io::Write;

use crate::convert;
use crate::json;
use crate::value::{Kind, Value, to_hex};

/// A text in quotes.
pub(super) fn literal(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    quoted(text.as_bytes(), &mut out);
    String::from_utf8(out).expect("escapes are ASCII")
}

/// Appends the value for a column of the kind. The error says why the server cannot hold it.
pub(super) fn value(value: &Value, kind: Kind, out: &mut Vec<u8>) -> Result<(), String> {
    match value {
        Value::Missing | Value::Null => out.extend_from_slice(b"NULL"),
        Value::Bytes(bytes) if kind == Kind::Bytes => binary(bytes, out),
        Value::Uuid(uuid) if kind == Kind::Bytes => binary(uuid, out),
        Value::ObjectId(id) if kind == Kind::Bytes => binary(id, out),
        Value::Text(text) => quoted(text.as_bytes(), out),
        // A column of mixed values travels as JSON; one with a type wants what is in it.
        Value::Json(text) if !is_text(kind) => match json::parse(text.as_bytes()) {
            Ok(inner) if !matches!(inner, Value::Json(_)) => return self::value(&inner, kind, out),
            _ => quoted(text.as_bytes(), out),
        },
        Value::Json(text) => quoted(text.as_bytes(), out),
        _ if is_text(kind) => quoted(convert::text(value).as_bytes(), out),
        Value::Bool(value) => put(out, format_args!("{}", u8::from(*value))),
        Value::Int(number) => put(out, format_args!("{number}")),
        Value::Float(number) if number.is_finite() => put(out, format_args!("{number:e}")),
        Value::Float(number) => return Err(format!("the server has no float {number}")),
        // Bits take numbers, and no texts.
        Value::Decimal(number) if is_short_integer(number.as_str()) => put(out, format_args!("{number}")),
        Value::Decimal(number) if number.is_finite() => put(out, format_args!("'{number}'")),
        Value::Decimal(number) => return Err(format!("the server has no decimal {number}")),
        Value::DateTime(at) => put(out, format_args!("'{}'", moment(*at))),
        Value::Instant(at) => put(out, format_args!("'{}'", moment(jiff::tz::Offset::UTC.to_datetime(*at)))),
        other => quoted(convert::text(other).as_bytes(), out),
    }
    Ok(())
}

fn is_text(kind: Kind) -> bool {
    matches!(kind, Kind::Text | Kind::Json | Kind::JsonBinary | Kind::Uuid | Kind::ObjectId)
}

/// Whether the number has no more digits than the largest integer of a server.
fn is_short_integer(text: &str) -> bool {
    text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// To the microsecond, which is what the server has.
fn moment(at: jiff::civil::DateTime) -> String {
    let (date, time) = (at.date(), at.time());
    let micros = time.subsec_nanosecond() / 1000;
    format!("{date} {:02}:{:02}:{:02}.{micros:06}", time.hour(), time.minute(), time.second())
}

/// The value of a key in a comparison. Decimals are no texts there: those would be compared as floats.
pub(super) fn key(key: &Value, kind: Kind) -> String {
    match key {
        Value::Bytes(bytes) if bytes.is_empty() => "''".to_owned(),
        Value::Bytes(bytes) => format!("x'{}'", to_hex(bytes)),
        Value::Decimal(number) if number.is_finite() => number.to_string(),
        other => {
            let mut out = Vec::new();
            match value(other, kind, &mut out) {
                Ok(()) => String::from_utf8_lossy(&out).into_owned(),
                Err(_) => "NULL".to_owned(),
            }
        }
    }
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("memory takes what is written");
}

fn binary(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"_binary");
    quoted(bytes, out);
}

fn quoted(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'\'');
    for &byte in bytes {
        match byte {
            0 => out.extend_from_slice(b"\\0"),
            b'\'' => out.extend_from_slice(b"\\'"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\x1a' => out.extend_from_slice(b"\\Z"),
            _ => out.push(byte),
        }
    }
    out.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Decimal;

    #[test]
    fn a_value_stands_in_a_statement_so_that_nothing_of_it_is_lost() {
        let check = |given: Value, kind: Kind, expected: &str| {
            let mut out = Vec::new();
            value(&given, kind, &mut out).unwrap();
            assert_eq!(String::from_utf8_lossy(&out), expected);
        };
        let decimal = Value::Decimal(Decimal::parse("1E+3").unwrap());
        check(Value::text("it's\0 \\"), Kind::Text, r"'it\'s\0 \\'");
        check(Value::Bytes(vec![0, 39, 255]), Kind::Bytes, "_binary'\\0\\'\u{fffd}'");
        check(Value::Float(0.1), Kind::Float64, "1e-1");
        check(Value::Float(0.1), Kind::Text, "'0.1'");
        check(Value::Bool(true), Kind::Bool, "1");
        check(Value::Bool(true), Kind::Text, "'true'");
        check(decimal.clone(), Kind::Decimal(None), "'1E+3'");
        check(Value::Instant("1969-12-31T23:59:59.5Z".parse().unwrap()), Kind::Instant, "'1969-12-31 23:59:59.500000'");
        check(Value::Array(vec![Value::Int(1)]), Kind::Json, "'[1]'");
        check(Value::Json("\"0000-00-00\"".into()), Kind::Date, "'0000-00-00'");
        check(Value::Json("\"x\"".into()), Kind::Json, "'\"x\"'");
        assert_eq!(key(&decimal, Kind::Decimal(None)), "1E+3");
        assert!(value(&Value::Float(f64::NAN), Kind::Float64, &mut Vec::new()).is_err());
    }
}
