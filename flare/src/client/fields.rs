//! A JSON value flattened to paths and values, in the order of the text, which `serde_json::Value` does not keep.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

use crate::terminal::harmless;

/// The members of a JSON text as `name: value` lines, nested ones as `outer.inner: value`; `None` if it is not JSON.
pub fn lines(json: &[u8]) -> Option<String> {
    let line = |(name, value): &(String, String)| format!("{}: {}", harmless(name), harmless(value));
    flatten(json).map(|leaves| leaves.iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// The leaves of a JSON text: `("delivery.timeout", "15s")`. Nulls and empty lists and objects are left out. `None` if the
/// text is not JSON.
fn flatten(json: &[u8]) -> Option<Vec<(String, String)>> {
    let mut leaves = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(json);
    Walk { path: String::new(), leaves: &mut leaves }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(leaves)
}

struct Walk<'a> {
    path: String,
    leaves: &'a mut Vec<(String, String)>,
}

impl Walk<'_> {
    fn leaf(self, value: impl fmt::Display) {
        self.leaves.push((self.path, value.to_string()));
    }

    fn below(&mut self, name: impl fmt::Display) -> Walk<'_> {
        let path = if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) };
        Walk { path, leaves: self.leaves }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.leaf(value);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.leaf(value);
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.leaf(value);
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.leaf(value);
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.leaf(value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut values: A) -> Result<(), A::Error> {
        let mut index = 0;
        while values.next_element_seed(self.below(index))?.is_some() {
            index += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            members.next_value_seed(self.below(name))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order() {
        let json = br#"{"b": 1, "a": {"y": "x\u001b", "x": []}, "list": [1, {"z": null}], "t": true, "none": null}"#;
        insta::assert_snapshot!(lines(json).unwrap(), @r"
        b: 1
        a.y: x\u{1b}
        list.0: 1
        t: true
        ");
        assert_eq!(lines(b"["), None);
        assert_eq!(lines(b"{} {}"), None);
        assert_eq!(lines(b"{}").unwrap(), "");
    }
}
