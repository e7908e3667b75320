//! CSV as RFC 4180 has it. A field that is empty without quotes is null; in quotes it is an empty text.

use std::sync::Arc;

use crate::json::{self, Style};
use crate::row::{Names, Row};
use crate::value::{Value, to_hex, uuid_to_text};

/// The fields of a record, which is whole.
fn fields(record: &[u8], delimiter: u8) -> Result<Vec<Value>, String> {
    let mut fields = Vec::new();
    let mut rest = record;
    loop {
        let (value, after) = if rest.first() == Some(&b'"') { quoted(&rest[1..])? } else { bare(rest, delimiter)? };
        fields.push(value);
        match after.split_first() {
            None => return Ok(fields),
            Some((&byte, after)) if byte == delimiter => rest = after,
            Some(_) => return Err("text after the closing quote of a field".to_owned()),
        }
    }
}

fn bare(text: &[u8], delimiter: u8) -> Result<(Value, &[u8]), String> {
    let end = memchr::memchr(delimiter, text).unwrap_or(text.len());
    if end == 0 {
        return Ok((Value::Null, text));
    }
    let value = String::from_utf8(text[..end].to_vec()).map_err(|_| "a field is not UTF-8".to_owned())?;
    Ok((Value::Text(value), &text[end..]))
}

fn quoted(text: &[u8]) -> Result<(Value, &[u8]), String> {
    let mut value = Vec::new();
    let mut rest = text;
    loop {
        let Some(end) = memchr::memchr(b'"', rest) else { return Err("a field without closing quote".to_owned()) };
        value.extend_from_slice(&rest[..end]);
        rest = &rest[end + 1..];
        if rest.first() != Some(&b'"') {
            break;
        }
        value.push(b'"');
        rest = &rest[1..];
    }
    let value = String::from_utf8(value).map_err(|_| "a field is not UTF-8".to_owned())?;
    Ok((Value::Text(value), rest))
}

/// The row of a record.
pub(super) fn row(record: &[u8], delimiter: u8, columns: usize) -> Row {
    let reason = match fields(record, delimiter) {
        Ok(cells) if cells.len() == columns => return Row::Cells(cells),
        Ok(cells) => format!("the row has {} fields, the header {columns}", cells.len()),
        Err(reason) => reason,
    };
    Row::bad(String::from_utf8_lossy(record), reason)
}

/// The names of the columns: those of the header, or `c1`, `c2` …
pub(super) fn names(first: &[u8], delimiter: u8, header: bool) -> Result<Names, String> {
    let cells = fields(first, delimiter)?;
    let name = |(index, cell): (usize, Value)| match cell {
        Value::Text(text) if header => Arc::from(text.strip_prefix('\u{feff}').unwrap_or(&text)),
        _ => Arc::from(format!("c{}", index + 1)),
    };
    Ok(cells.into_iter().enumerate().map(name).collect())
}

/// Appends the values as one record with its line break.
pub(super) fn write<'a>(values: impl Iterator<Item = &'a Value>, delimiter: u8, style: Style, out: &mut Vec<u8>) {
    let from = out.len();
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.push(delimiter);
        }
        match value {
            Value::Missing | Value::Null => (),
            Value::Text(text) => write_text(text, delimiter, out),
            Value::Bytes(bytes) => write_text(&format!("\\x{}", to_hex(bytes)), delimiter, out),
            Value::Decimal(number) => out.extend_from_slice(number.as_str().as_bytes()),
            Value::Float(number) => out.extend_from_slice(format!("{number:?}").as_bytes()),
            Value::Date(date) => out.extend_from_slice(date.to_string().as_bytes()),
            Value::Time(time) => out.extend_from_slice(time.to_string().as_bytes()),
            Value::DateTime(at) => out.extend_from_slice(at.to_string().as_bytes()),
            Value::Instant(at) => out.extend_from_slice(at.to_string().as_bytes()),
            Value::Uuid(uuid) => out.extend_from_slice(uuid_to_text(uuid).as_bytes()),
            Value::ObjectId(id) => out.extend_from_slice(to_hex(id).as_bytes()),
            Value::Json(text) => write_text(text, delimiter, out),
            other => {
                let mut text = Vec::new();
                json::write(other, style, &mut text);
                write_text(&String::from_utf8_lossy(&text), delimiter, out);
            }
        }
    }
    // A line with nothing on it would be no record.
    if out.len() == from {
        out.extend_from_slice(b"\"\"");
    }
    out.push(b'\n');
}

/// Appends a field, in quotes where they are needed.
fn write_text(text: &str, delimiter: u8, out: &mut Vec<u8>) {
    let is_plain = !text.is_empty() && !text.bytes().any(|byte| byte == delimiter || b"\"\r\n".contains(&byte));
    if is_plain {
        return out.extend_from_slice(text.as_bytes());
    }
    out.push(b'"');
    out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let values = ["a", "", "x,y", "say \"hi\"", "two\nlines", " "].map(Value::text);
        let mut values = values.to_vec();
        values.push(Value::Null);
        let mut out = Vec::new();
        write(values.iter(), b',', Style::Extended, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), "a,\"\",\"x,y\",\"say \"\"hi\"\"\",\"two\nlines\", ,\n");
        assert_eq!(row(&out[..out.len() - 1], b',', 7), Row::Cells(values));
    }

    #[test]
    fn a_malformed_record_says_why() {
        let check = |text: &str, reason: &str| match row(text.as_bytes(), b',', 2) {
            Row::Bad(bad) => assert!(bad.reason.contains(reason), "{}", bad.reason),
            other => panic!("{other:?}"),
        };
        check("a", "1 fields, the header 2");
        check("a,\"b", "without closing quote");
        check("\"a\"x,b", "after the closing quote");
    }

    #[test]
    fn columns_have_the_names_of_the_header_or_numbers() {
        let named = |header| names("\u{feff}id,,b".as_bytes(), b',', header).unwrap().join(" ");
        assert_eq!(named(true), "id c2 b");
        assert_eq!(named(false), "c1 c2 c3");
    }
}
