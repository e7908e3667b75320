//! Paths into rows.

use std::borrow::Cow;

use crate::json;
use crate::row::{Names, Row};
use crate::value::{Schema, Value};

/// `address.city`, `tags.0`. A field whose name has a dot in it is found by its whole name first.
#[derive(Clone, Debug)]
pub(super) struct Path {
    text: String,
    parts: Vec<String>,
}

impl Path {
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), parts: text.split('.').map(str::to_owned).collect() }
    }

    /// The field of the rows that the path is all of; none if it leads into one.
    pub fn field(&self, rows: &Schema) -> Option<&str> {
        (self.parts.len() == 1 || rows.column(&self.text).is_some()).then_some(&self.text)
    }

    pub fn find<'a>(&self, row: &'a Row, names: &Names) -> Cow<'a, Value> {
        let whole = row.get(names, &self.text);
        if !matches!(whole, Value::Missing) || self.parts.len() == 1 {
            return Cow::Borrowed(whole);
        }
        within(row.get(names, &self.parts[0]), &self.parts[1..])
    }
}

fn within<'a>(value: &'a Value, path: &[String]) -> Cow<'a, Value> {
    const NOTHING: Cow<'static, Value> = Cow::Borrowed(&Value::Missing);
    let Some((first, rest)) = path.split_first() else { return Cow::Borrowed(value) };
    match value {
        Value::Object(fields) => {
            fields.iter().find(|(name, _)| name == first).map_or(NOTHING, |(_, value)| within(value, rest))
        }
        Value::Array(values) => {
            let found = first.parse::<usize>().ok().and_then(|at| values.get(at));
            found.map_or(NOTHING, |value| within(value, rest))
        }
        Value::Json(text) => {
            let parsed = json::parse(text.as_bytes());
            parsed.map_or(NOTHING, |value| Cow::Owned(within(&value, path).into_owned()))
        }
        _ => NOTHING,
    }
}
