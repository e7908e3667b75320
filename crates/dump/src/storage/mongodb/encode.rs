//! Values as BSON.
//!
//! Integers take the smaller of the two types that holds them, as MongoDB's own tools do: it compares both as equal.
//! Dates have milliseconds. What MongoDB has no type for is text, from which the same value can be read: dates without
//! a time, times, timestamps without a zone, and decimals of more than 34 digits.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mongodb::bson::Decimal128;

use crate::convert;
use crate::json;
use crate::value::{Other, Value};

/// The largest document that a server takes.
pub(super) const DOCUMENT_BYTES_MAX: usize = 16 << 20;

/// The digits of a decimal of MongoDB.
const DECIMAL_DIGITS_MAX: usize = 34;

/// Appends a document. The error says which field cannot be in one.
pub(super) fn document<'a>(
    fields: impl Iterator<Item = (&'a str, &'a Value)>,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let start = begin(out);
    for (name, value) in fields {
        if !matches!(value, Value::Missing) {
            element(name, value, out)?;
        }
    }
    end(start, out);
    Ok(())
}

/// Begins a document whose elements are appended one by one.
pub(super) fn begin(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 4]);
    out.len() - 4
}

/// Ends it, and writes down its length.
pub(super) fn end(start: usize, out: &mut Vec<u8>) {
    out.push(0);
    let length = i32::try_from(out.len() - start).unwrap_or(i32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Appends one field of a document.
pub(super) fn element(name: &str, value: &Value, out: &mut Vec<u8>) -> Result<(), String> {
    let at = out.len();
    out.push(0);
    put_name(name, out)?;
    out[at] = content(value, out).map_err(|reason| format!("field {name:?}: {reason}"))?;
    Ok(())
}

/// Appends what stands behind the name, and returns the type.
fn content(value: &Value, out: &mut Vec<u8>) -> Result<u8, String> {
    Ok(match value {
        Value::Missing | Value::Null => 0x0a,
        Value::Bool(value) => put(out, &[u8::from(*value)], 0x08),
        Value::Int(number) => match i32::try_from(*number) {
            Ok(number) => put(out, &number.to_le_bytes(), 0x10),
            Err(_) => put(out, &number.to_le_bytes(), 0x12),
        },
        Value::Float(number) => put(out, &number.to_le_bytes(), 0x01),
        Value::Decimal(number) => match exact(number.as_str()) {
            Some(decimal) => put(out, &decimal.bytes(), 0x13),
            None => put_text(number.as_str(), out)?,
        },
        Value::Text(text) => put_text(text, out)?,
        Value::Bytes(bytes) => put_binary(0, bytes, out)?,
        Value::Uuid(uuid) => put_binary(4, uuid, out)?,
        Value::ObjectId(id) => put(out, id, 0x07),
        Value::Instant(at) => {
            let millis = at.as_nanosecond().div_euclid(1_000_000);
            put(out, &(millis as i64).to_le_bytes(), 0x09)
        }
        Value::Date(_) | Value::Time(_) | Value::DateTime(_) => put_text(&convert::text(value), out)?,
        Value::Json(text) => match json::parse(text.as_bytes()) {
            Ok(parsed) => content(&parsed, out)?,
            Err(_) => put_text(text, out)?,
        },
        Value::Array(values) => {
            let start = begin(out);
            for (index, value) in values.iter().enumerate() {
                element(&index.to_string(), value, out)?;
            }
            end(start, out);
            0x04
        }
        Value::Object(fields) => {
            document(fields.iter().map(|(name, value)| (name.as_str(), value)), out)?;
            0x03
        }
        Value::Other(special) => other(special, out)?,
    })
}

/// The decimal, if it can be the same number. Zeros at its end are kept as long as there is room for them.
fn exact(text: &str) -> Option<Decimal128> {
    let digits = |text: &str| {
        let digits = text.bytes().take_while(|byte| !matches!(byte, b'e' | b'E')).filter(u8::is_ascii_digit);
        digits.skip_while(|digit| *digit == b'0').count()
    };
    let mut text = text;
    let has_zeros = text.contains('.') && !text.contains(['e', 'E']);
    while digits(text) > DECIMAL_DIGITS_MAX && has_zeros {
        text = text.strip_suffix('0')?;
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    (digits(text) <= DECIMAL_DIGITS_MAX).then(|| text.parse().ok())?
}

/// Types that only MongoDB has. What is none of them is a document.
fn other(other: &Other, out: &mut Vec<u8>) -> Result<u8, String> {
    let value = json::parse(other.json.as_bytes()).map_err(|_| format!("{:?} is not JSON", other.kind))?;
    let field = |wanted: &str| match &value {
        Value::Object(fields) => fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| value),
        _ => None,
    };
    let text = |wanted: &str| if let Some(Value::Text(text)) = field(wanted) { Some(text.as_str()) } else { None };
    let number = |wanted: &str| match field(wanted) {
        Some(Value::Int(number)) => u32::try_from(*number).ok(),
        _ => None,
    };
    let length = out.len();
    let written = match (other.kind.as_str(), &value) {
        ("undefined", _) => Some(0x06),
        ("minKey", _) => Some(0xff),
        ("maxKey", _) => Some(0x7f),
        ("date", Value::Int(millis)) => Some(put(out, &millis.to_le_bytes(), 0x09)),
        ("code", Value::Text(text)) => put_text(text, out).ok().map(|_| 0x0d),
        ("symbol", Value::Text(text)) => put_text(text, out).ok().map(|_| 0x0e),
        ("regularExpression", _) => text("pattern").zip(text("options")).and_then(|(pattern, options)| {
            put_name(pattern, out).ok()?;
            put_name(options, out).ok().map(|()| 0x0b)
        }),
        ("timestamp", _) => number("t").zip(number("i")).map(|(time, increment)| {
            put(out, &increment.to_le_bytes(), 0x11);
            put(out, &time.to_le_bytes(), 0x11)
        }),
        ("dbPointer", _) => text("ref").zip(field("id")).and_then(|(of, id)| {
            let Value::ObjectId(id) = id else { return None };
            put_text(of, out).ok()?;
            Some(put(out, id, 0x0c))
        }),
        ("codeWithScope", _) => text("code").zip(field("scope")).and_then(|(code, scope)| {
            let start = begin(out);
            put_text(code, out).ok()?;
            content(scope, out).ok()?;
            // Unlike a document it has no zero byte at its end.
            end(start, out);
            out.pop();
            let length = i32::try_from(out.len() - start).ok()?;
            out[start..start + 4].copy_from_slice(&length.to_le_bytes());
            Some(0x0f)
        }),
        ("binary", _) => binary(text("base64"), text("subType"), out),
        _ => None,
    };
    if let Some(kind) = written {
        return Ok(kind);
    }
    out.truncate(length);
    document([(format!("${}", other.kind).as_str(), &value)].into_iter(), out).map(|()| 0x03)
}

fn binary(base64: Option<&str>, subtype: Option<&str>, out: &mut Vec<u8>) -> Option<u8> {
    let subtype = u8::from_str_radix(subtype?, 16).ok()?;
    let mut bytes = STANDARD.decode(base64?).ok()?;
    if subtype == 2 {
        bytes.splice(0..0, i32::try_from(bytes.len()).ok()?.to_le_bytes());
    }
    put_binary(subtype, &bytes, out).ok()
}

fn put(out: &mut Vec<u8>, bytes: &[u8], kind: u8) -> u8 {
    out.extend_from_slice(bytes);
    kind
}

fn put_name(name: &str, out: &mut Vec<u8>) -> Result<(), String> {
    if name.contains('\0') {
        return Err(format!("the name {name:?} has a zero byte in it, which MongoDB does not take"));
    }
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    Ok(())
}

fn put_length(length: usize, out: &mut Vec<u8>) -> Result<(), String> {
    let length = i32::try_from(length).map_err(|_| "is too long".to_owned())?;
    out.extend_from_slice(&length.to_le_bytes());
    Ok(())
}

fn put_text(text: &str, out: &mut Vec<u8>) -> Result<u8, String> {
    put_length(text.len() + 1, out)?;
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    Ok(0x02)
}

fn put_binary(subtype: u8, bytes: &[u8], out: &mut Vec<u8>) -> Result<u8, String> {
    put_length(bytes.len(), out)?;
    out.push(subtype);
    out.extend_from_slice(bytes);
    Ok(0x05)
}

#[cfg(test)]
mod tests;
