//! Which revision a document shows: the change rule of a resource, applied to the bytes of a document.
//!
//! One pass over the JSON does everything that must be known before a document is accepted: that it is one well-formed
//! object of bounded depth, and the value at the rule's path. No value is built; nothing is copied unless a string has
//! escapes. The bytes themselves are kept by the caller as they came.

use std::{fmt, str};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::{
    revision::{JsonScalar, ReadError, Revision, RevisionFormat},
    url::excerpt,
};

/// The most names that a path may have.
pub const FIELD_PARTS_MAX: usize = 16;

/// The longest path.
pub const FIELD_BYTES_MAX: usize = 1024;

/// The greatest depth that can be asked for: one less than serde_json itself allows, so that our limit speaks first.
pub const JSON_DEPTH_MAX: usize = 126;

/// Where a document shows that it changed, and how that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRule {
    pub field: FieldPath,
    pub format: RevisionFormat,
}

impl ChangeRule {
    /// The revision of a document.
    ///
    /// `json` must be one JSON object, with nothing behind it, whose objects and arrays are nested at most `depth_max`
    /// deep (at most [`JSON_DEPTH_MAX`]; the document itself is the first). Of equal keys the last one counts.
    pub fn revision_of(&self, json: &[u8], depth_max: usize) -> Result<Revision, ChangeError> {
        // Checked once as a whole, which is faster than string by string.
        let text = str::from_utf8(json).map_err(|error| not_utf8(json, error.valid_up_to()))?;
        let depth_max = depth_max.min(JSON_DEPTH_MAX);
        let mut search = Search { rule: self, depth_max, found: None, refused: None };
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let parsed = Walk { search: &mut search, depth: 0, place: Place::Root }
            .deserialize(&mut deserializer)
            .and_then(|()| deserializer.end());
        if let Some(refused) = search.refused {
            return Err(refused);
        }
        parsed.map_err(|error| malformed(&error))?;
        match search.found {
            Some(Ok(revision)) => Ok(revision),
            Some(Err(error)) => Err(ChangeError::Unreadable { path: excerpt(self.field.as_str()), error }),
            None => Err(ChangeError::Missing { path: excerpt(self.field.as_str()) }),
        }
    }
}

/// A dotted path to a field: `updatedAt`, `meta.version`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    text: Box<str>,
    parts: Box<[Box<str>]>,
}

impl FieldPath {
    /// Reads a path of one to sixteen names with dots between them. A name that has a dot itself cannot be written.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        if text.len() > FIELD_BYTES_MAX {
            return Err(FieldError::TooLong { path: excerpt(text), bytes: text.len() });
        }
        let parts: Box<[Box<str>]> = text.split('.').map(Box::from).collect();
        if parts.len() > FIELD_PARTS_MAX {
            return Err(FieldError::TooManyParts { path: excerpt(text), parts: parts.len() });
        }
        if parts.iter().any(|part| part.is_empty()) {
            return Err(FieldError::EmptyPart { path: excerpt(text) });
        }
        Ok(Self { text: text.into(), parts })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn parts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.parts.iter().map(|part| &**part)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a text is not a field path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    #[error("field {path:?} must be names with a dot between them, such as updatedAt or meta.version")]
    EmptyPart { path: String },
    #[error("field {path:?} has {parts} names, at most {FIELD_PARTS_MAX} are allowed")]
    TooManyParts { path: String, parts: usize },
    #[error("field {path:?} has {bytes} bytes, at most {FIELD_BYTES_MAX} are allowed")]
    TooLong { path: String, bytes: usize },
}

/// Why a document shows no revision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error("document is not well-formed JSON at line {line}, column {column}: {reason}")]
    Malformed { line: usize, column: usize, reason: String },
    #[error("document is nested too deep, at most {max} levels are allowed")]
    TooDeep { max: usize },
    #[error("document must be a JSON object, it is {seen}")]
    NotObject { seen: &'static str },
    #[error("document has no field {path:?}, which shows its revision")]
    Missing { path: String },
    #[error("field {path:?} shows no revision: {error}")]
    Unreadable { path: String, error: ReadError },
}

/// What is looked for in one document, and what came of it.
struct Search<'r> {
    rule: &'r ChangeRule,
    depth_max: usize,
    /// The last value at the path.
    found: Option<Result<Revision, ReadError>>,
    /// Why the walk was cut short although the JSON may be well-formed.
    refused: Option<ChangeError>,
}

/// Where a value stands in relation to the path.
#[derive(Clone, Copy)]
enum Place {
    /// It is the document.
    Root,
    /// So many names of the path lead to it, and more follow.
    On(usize),
    /// It is the field.
    Field,
    /// Neither it nor anything in it matters.
    Off,
}

/// Visits one value.
struct Walk<'s, 'r> {
    search: &'s mut Search<'r>,
    /// How many objects and arrays are around it.
    depth: usize,
    place: Place,
}

impl<'r> Walk<'_, 'r> {
    fn scalar<E: Error>(self, value: &JsonScalar<'_>) -> Result<(), E> {
        match self.place {
            Place::Root => Err(self.refuse(ChangeError::NotObject { seen: kind_of(value) })),
            Place::Field => {
                self.search.found = Some(self.search.rule.format.read(value));
                Ok(())
            }
            Place::On(_) | Place::Off => Ok(()),
        }
    }

    /// Goes into an object or an array.
    fn enter<E: Error>(self, seen: &'static str) -> Result<Self, E> {
        let depth = self.depth + 1;
        if depth > self.search.depth_max {
            let max = self.search.depth_max;
            return Err(self.refuse(ChangeError::TooDeep { max }));
        }
        if matches!(self.place, Place::Field) {
            let error = self.search.rule.format.refuse(seen.to_owned(), format!("it is {seen}"));
            self.search.found = Some(Err(error));
        }
        Ok(Self { depth, ..self })
    }

    /// Keeps the reason, and makes the error that ends the walk.
    fn refuse<E: Error>(self, error: ChangeError) -> E {
        self.search.refused = Some(error);
        E::custom("refused")
    }

    /// The walk of a value inside this one.
    fn inner(&mut self, place: Place) -> Walk<'_, 'r> {
        Walk { search: self.search, depth: self.depth, place }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.scalar(&JsonScalar::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.scalar(&JsonScalar::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.scalar(&JsonScalar::Integer(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.scalar(&JsonScalar::Integer(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.scalar(&JsonScalar::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.scalar(&JsonScalar::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        if matches!(self.place, Place::Root) {
            return Err(self.refuse(ChangeError::NotObject { seen: "an array" }));
        }
        let mut walk = self.enter("an array")?;
        while values.next_element_seed(walk.inner(Place::Off))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut walk = self.enter("an object")?;
        let parts = &*walk.search.rule.field.parts;
        let (wanted, place_of_wanted) = match walk.place {
            Place::Root => (parts.first(), place_after(1, parts.len())),
            Place::On(known) => (parts.get(known), place_after(known + 1, parts.len())),
            Place::Field | Place::Off => (None, Place::Off),
        };
        while let Some(is_wanted) = entries.next_key_seed(Key { wanted: wanted.map(|name| &**name) })? {
            let place = if is_wanted { place_of_wanted } else { Place::Off };
            if is_wanted {
                // A repeated key replaces the whole value before it.
                walk.search.found = None;
            }
            entries.next_value_seed(walk.inner(place))?;
        }
        Ok(())
    }
}

/// Compares one key with the name that is looked for, if any.
struct Key<'r> {
    wanted: Option<&'r str>,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<bool, E> {
        Ok(self.wanted == Some(key))
    }
}

fn place_after(known: usize, parts: usize) -> Place {
    if known == parts { Place::Field } else { Place::On(known) }
}

fn kind_of(value: &JsonScalar<'_>) -> &'static str {
    match value {
        JsonScalar::Null => "null",
        JsonScalar::Bool(_) => "a boolean",
        JsonScalar::Integer(_) | JsonScalar::Float(_) => "a number",
        JsonScalar::Text(_) => "a string",
    }
}

fn malformed(error: &serde_json::Error) -> ChangeError {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    // serde_json ends its messages with the position, which has its own place here.
    let reason = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
    ChangeError::Malformed { line, column, reason: excerpt(reason) }
}

fn not_utf8(json: &[u8], valid_bytes: usize) -> ChangeError {
    let valid = &json[..valid_bytes];
    let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
    let column = 1 + valid.iter().rev().take_while(|byte| **byte != b'\n').count();
    ChangeError::Malformed { line, column, reason: "it is not UTF-8".to_owned() }
}

#[cfg(test)]
mod tests;
