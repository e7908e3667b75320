//! Values as the text that `COPY` and casts take.

use std::io::Write;

use crate::json::{self, Style};
use crate::row::{Names, Row, RowBatch};
use crate::value::{Value, to_hex, uuid_to_text};

/// Appends the rows as lines, with the columns in the order of `names`.
pub(super) fn rows(batch: &RowBatch, names: &Names, out: &mut Vec<u8>) {
    let is_same = batch.names == *names;
    for row in &batch.rows {
        match row {
            Row::Cells(cells) if is_same => line(cells.iter(), out),
            _ => line(names.iter().map(|name| row.get(&batch.names, name)), out),
        }
    }
}

fn line<'a>(values: impl Iterator<Item = &'a Value>, out: &mut Vec<u8>) {
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.push(b'\t');
        }
        cell(value, out);
    }
    out.push(b'\n');
}

fn cell(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Missing | Value::Null => out.extend_from_slice(b"\\N"),
        Value::Text(text) => escaped(text, out),
        Value::Json(text) => escaped(text, out),
        // The backslash is escaped once for COPY.
        Value::Bytes(bytes) => put(out, format_args!("\\\\x{}", to_hex(bytes))),
        Value::Array(_) | Value::Object(_) | Value::Other(_) => {
            let mut text = Vec::new();
            json::write(value, Style::Extended, &mut text);
            escaped(&String::from_utf8_lossy(&text), out);
        }
        plain => unescaped(plain, out),
    }
}

/// Values whose text has nothing to escape.
fn unescaped(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Bool(value) => out.push(if *value { b't' } else { b'f' }),
        Value::Int(number) => put(out, format_args!("{number}")),
        Value::Float(number) if number.is_infinite() => {
            out.extend_from_slice(if *number > 0.0 { b"Infinity" } else { b"-Infinity" });
        }
        Value::Float(number) => put(out, format_args!("{number:?}")),
        Value::Decimal(number) => out.extend_from_slice(number.as_str().as_bytes()),
        Value::Date(date) => put(out, format_args!("{date}")),
        Value::Time(time) => put(out, format_args!("{time}")),
        Value::DateTime(at) => put(out, format_args!("{at}")),
        Value::Instant(at) => put(out, format_args!("{at}")),
        Value::Uuid(uuid) => out.extend_from_slice(uuid_to_text(uuid).as_bytes()),
        Value::ObjectId(id) => out.extend_from_slice(to_hex(id).as_bytes()),
        _ => (),
    }
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("memory takes what is written");
}

fn escaped(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\\' | b'\t' | b'\n' | b'\r')) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(match rest[at] {
            b'\\' => b"\\\\",
            b'\t' => b"\\t",
            b'\n' => b"\\n",
            _ => b"\\r",
        });
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// The text of a key's value, for a cast.
pub(super) fn key_text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Json(text) => text.to_string(),
        Value::Bytes(bytes) => format!("\\x{}", to_hex(bytes)),
        other => {
            let mut out = Vec::new();
            unescaped(other, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        }
    }
}
