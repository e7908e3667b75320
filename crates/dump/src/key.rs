//! Keys: where in a source a chunk begins and ends.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json;
use crate::value::Value;

/// The key of a row, with its type: one value, or several for a composite key. Its order is the source's own, in which
/// the source is asked for the keys after it. The journal keeps it as extended JSON.
#[derive(Clone, PartialEq, Debug)]
pub struct Key(pub Vec<Value>);

impl Key {
    pub fn int(number: i64) -> Self {
        Self(vec![Value::Int(number)])
    }

    pub fn one(value: Value) -> Self {
        Self(vec![value])
    }

    /// The number of a key that is a position.
    pub fn as_int(&self) -> Option<i64> {
        match self.0.as_slice() {
            [Value::Int(number)] => Some(*number),
            _ => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(json::to_string).collect();
        f.write_str(&texts.join(", "))
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = json::to_string(&Value::Array(self.0.clone()));
        RawValue::from_string(text).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
        match json::parse(raw.get().as_bytes()) {
            Ok(Value::Array(values)) => Ok(Self(values)),
            Ok(_) => Err(serde::de::Error::custom("a key is an array")),
            Err(error) => Err(serde::de::Error::custom(error)),
        }
    }
}

/// Part of a source: after one key, up to and with another. No key is the beginning, or the end.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Range {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Key>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upto: Option<Key>,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.after, &self.upto) {
            (None, None) => f.write_str("everything"),
            (None, Some(upto)) => write!(f, "up to {upto}"),
            (Some(after), None) => write!(f, "after {after}"),
            (Some(after), Some(upto)) => write!(f, "after {after} up to {upto}"),
        }
    }
}
