//! Values as JSON.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::extended;
use super::read::is_exact_float;
use crate::value::{Value, to_hex, uuid_to_text};

/// How values are written that JSON has no type for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// So that the same value can be read again.
    Extended,
    /// As strings.
    Plain,
}

/// Appends the value as JSON on one line. Nothing that is missing is ever written: in an array it is null.
pub fn write(value: &Value, style: Style, out: &mut Vec<u8>) {
    match value {
        Value::Missing | Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::Int(number) => put(out, format_args!("{number}")),
        Value::Float(number) if number.is_finite() => put(out, format_args!("{number:?}")),
        Value::Float(number) => wrapped(out, style, "numberDouble", special(*number)),
        Value::Decimal(number) => {
            let text = number.as_str();
            // A number that reads as a float or as an integer would come back as one.
            let is_other = || is_exact_float(text) || text.parse::<i64>().is_ok();
            let is_plain = number.is_finite() && (style == Style::Plain || !is_other());
            if is_plain { out.extend_from_slice(text.as_bytes()) } else { wrapped(out, style, "numberDecimal", text) }
        }
        Value::Text(text) => write_text(text, out),
        Value::Bytes(bytes) => write_bytes(bytes, style, out),
        Value::Date(date) => wrapped(out, style, "day", &date.to_string()),
        Value::Time(time) => wrapped(out, style, "time", &time.to_string()),
        Value::DateTime(at) => wrapped(out, style, "datetime", &at.to_string()),
        Value::Instant(at) => wrapped(out, style, "date", &at.to_string()),
        Value::Uuid(uuid) => wrapped(out, style, "uuid", &uuid_to_text(uuid)),
        Value::ObjectId(id) => wrapped(out, style, "oid", &to_hex(id)),
        // Within JSON a raw line break is only space between values.
        Value::Json(text) => {
            out.extend(text.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }))
        }
        Value::Array(values) => {
            out.push(b'[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(value, style, out);
            }
            out.push(b']');
        }
        Value::Object(fields) => write_object(fields, style, out),
        Value::Other(other) => put(out, format_args!("{{\"${}\":{}}}", other.kind, other.json)),
    }
}

/// Appends a row as one document. Its fields are never taken for an extended form.
pub fn write_document<'a>(fields: impl Iterator<Item = (&'a str, &'a Value)>, style: Style, out: &mut Vec<u8>) {
    out.push(b'{');
    let mut is_first = true;
    for (name, value) in fields {
        if matches!(value, Value::Missing) {
            continue;
        }
        if !is_first {
            out.push(b',');
        }
        is_first = false;
        write_text(name, out);
        out.push(b':');
        write(value, style, out);
    }
    out.push(b'}');
}

fn write_object(fields: &[(String, Value)], style: Style, out: &mut Vec<u8>) {
    let is_form = style == Style::Extended && is_form(fields);
    let fields = fields.iter().map(|(name, value)| (name.as_str(), value));
    if !is_form {
        return write_document(fields, style, out);
    }
    out.extend_from_slice(b"{\"$verbatim\":");
    write_document(fields, style, out);
    out.push(b'}');
}

/// Whether a document would be read as something else.
fn is_form(fields: &[(String, Value)]) -> bool {
    matches!(fields, [(name, _)] if name.starts_with('$'))
        && !matches!(extended::value_of(fields.to_vec()), Value::Object(read) if read == fields)
}

fn write_bytes(bytes: &[u8], style: Style, out: &mut Vec<u8>) {
    let text = STANDARD.encode(bytes);
    match style {
        Style::Plain => put(out, format_args!("\"{text}\"")),
        Style::Extended => put(out, format_args!("{{\"$binary\":{{\"base64\":\"{text}\",\"subType\":\"00\"}}}}")),
    }
}

/// A text that needs no escapes, as an extended form or as a string.
fn wrapped(out: &mut Vec<u8>, style: Style, form: &str, text: &str) {
    match style {
        Style::Plain => put(out, format_args!("\"{text}\"")),
        Style::Extended => put(out, format_args!("{{\"${form}\":\"{text}\"}}")),
    }
}

fn special(number: f64) -> &'static str {
    if number.is_nan() {
        "NaN"
    } else if number > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("memory takes what is written");
}

/// Appends a JSON string.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut from = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[from..at]);
        from = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => put(out, format_args!("\\u{byte:04x}")),
        }
    }
    out.extend_from_slice(&bytes[from..]);
    out.push(b'"');
}
