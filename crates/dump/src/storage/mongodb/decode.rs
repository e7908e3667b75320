//! Values from BSON, straight from its bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mongodb::bson::Decimal128;

use crate::json;
use crate::value::{Decimal, Other, Value};

/// Room for the fields of a document before there are any.
const FIELDS_USUAL: usize = 8;

/// The fields of a document. The error says what is wrong with its bytes.
pub(super) fn document(bytes: &[u8]) -> Result<Vec<(String, Value)>, String> {
    let mut bytes = Bytes { rest: bytes };
    let fields = bytes.document()?;
    if bytes.rest.is_empty() { Ok(fields) } else { Err("bytes after the end of a document".to_owned()) }
}

/// The first document of several that follow each other, and the rest.
pub(super) fn split_first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = i32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    bytes.split_at_checked(usize::try_from(length).ok().filter(|length| *length >= 5)?)
}

struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or("a document ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(self.take(N)?.try_into().expect("as many were taken"))
    }

    fn int(&mut self) -> Result<i32, String> {
        self.array().map(i32::from_le_bytes)
    }

    fn long(&mut self) -> Result<i64, String> {
        self.array().map(i64::from_le_bytes)
    }

    fn length(&mut self) -> Result<usize, String> {
        usize::try_from(self.int()?).map_err(|_| "a length is negative".to_owned())
    }

    /// Up to a zero byte.
    fn name(&mut self) -> Result<&'a str, String> {
        // Names are short: to look at each byte is quicker than to begin a search.
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or("a name has no end")?;
        let name = utf8(self.take(end)?)?;
        self.take(1)?;
        Ok(name)
    }

    /// With its length in front and a zero byte at its end.
    fn text(&mut self) -> Result<&'a str, String> {
        let length = self.length()?.checked_sub(1).ok_or("a text has no length")?;
        let text = utf8(self.take(length)?)?;
        self.take(1)?;
        Ok(text)
    }

    fn document(&mut self) -> Result<Vec<(String, Value)>, String> {
        let mut fields = Vec::with_capacity(FIELDS_USUAL);
        self.elements(|name, value| fields.push((name.to_owned(), value)))?;
        Ok(fields)
    }

    fn elements(&mut self, mut found: impl FnMut(&str, Value)) -> Result<(), String> {
        let length = self.length()?.checked_sub(4).ok_or("a document has no length")?;
        let mut inner = Bytes { rest: self.take(length)? };
        loop {
            let [kind] = inner.array()?;
            if kind == 0 {
                return if inner.rest.is_empty() {
                    Ok(())
                } else {
                    Err("a document ends before its length".to_owned())
                };
            }
            let name = inner.name()?;
            let value = inner.value(kind).map_err(|reason| format!("field {name:?}: {reason}"))?;
            found(name, value);
        }
    }

    fn value(&mut self, kind: u8) -> Result<Value, String> {
        Ok(match kind {
            0x01 => Value::Float(f64::from_le_bytes(self.array()?)),
            0x02 => Value::text(self.text()?),
            0x03 => Value::Object(self.document()?),
            0x04 => {
                let mut values = Vec::new();
                self.elements(|_, value| values.push(value))?;
                Value::Array(values)
            }
            0x05 => self.binary()?,
            0x07 => Value::ObjectId(self.array()?),
            0x08 => Value::Bool(self.array()? != [0]),
            0x09 => json::instant_of_millis(self.long()?),
            0x0a => Value::Null,
            0x10 => Value::Int(self.int()?.into()),
            0x12 => Value::Int(self.long()?),
            0x13 => {
                let text = Decimal128::from_bytes(self.array()?).to_string();
                Value::Decimal(Decimal::parse(&text).ok_or_else(|| format!("{text} is no decimal"))?)
            }
            _ => self.special(kind)?,
        })
    }

    /// Types that only MongoDB has.
    fn special(&mut self, kind: u8) -> Result<Value, String> {
        Ok(match kind {
            0x06 => other("undefined", "true"),
            0x0b => {
                let (pattern, options) = (Value::text(self.name()?), Value::text(self.name()?));
                other_of("regularExpression", [("pattern", pattern), ("options", options)])
            }
            0x0c => {
                let (of, id) = (Value::text(self.text()?), Value::ObjectId(self.array()?));
                other_of("dbPointer", [("ref", of), ("id", id)])
            }
            0x0d => other("code", &json::to_string(&Value::text(self.text()?))),
            0x0e => other("symbol", &json::to_string(&Value::text(self.text()?))),
            0x0f => {
                self.take(4)?;
                let (code, scope) = (Value::text(self.text()?), Value::Object(self.document()?));
                other_of("codeWithScope", [("code", code), ("scope", scope)])
            }
            0x11 => {
                let increment = Value::Int(u32::from_le_bytes(self.array()?).into());
                let time = Value::Int(u32::from_le_bytes(self.array()?).into());
                other_of("timestamp", [("t", time), ("i", increment)])
            }
            0xff => other("minKey", "1"),
            0x7f => other("maxKey", "1"),
            unknown => return Err(format!("a value has the unknown type {unknown:#04x}")),
        })
    }

    /// Bytes of the usual kind are bytes, UUIDs are UUIDs; other kinds are carried through.
    fn binary(&mut self) -> Result<Value, String> {
        let length = self.length()?;
        let [subtype] = self.array()?;
        let bytes = self.take(length)?;
        Ok(match (subtype, <[u8; 16]>::try_from(bytes)) {
            (0, _) => Value::Bytes(bytes.to_vec()),
            (4, Ok(uuid)) => Value::Uuid(uuid),
            _ => {
                // An old kind has its length once more within.
                let bytes = if subtype == 2 { bytes.get(4..).unwrap_or_default() } else { bytes };
                let base64 = Value::Text(STANDARD.encode(bytes));
                other_of("binary", [("base64", base64), ("subType", Value::Text(format!("{subtype:02x}")))])
            }
        })
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "a text is not UTF-8".to_owned())
}

fn other(kind: &str, json: &str) -> Value {
    Value::Other(Box::new(Other { kind: kind.to_owned(), json: json.into() }))
}

fn other_of<const N: usize>(kind: &str, fields: [(&str, Value); N]) -> Value {
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    other(kind, &json::to_string(&Value::Object(fields)))
}
