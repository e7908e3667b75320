//! What columns rows have, from a sample of them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::convert::{self, convert};
use crate::row::RowBatch;
use crate::value::{Column, Kind, Schema, Value};

/// The native type of a column whose texts are all those of another type.
pub const READ_FROM_TEXT: &str = "text:";

/// The columns of the sample, in the order in which they were first seen. Text cells of a source without types (CSV)
/// stay text unless all of them are written as another type would write them.
pub fn schema(sample: &RowBatch) -> Schema {
    let mut seen: Vec<(Arc<str>, Seen)> = Vec::new();
    let mut places: HashMap<Arc<str>, usize> = HashMap::new();
    for name in sample.names.iter() {
        places.insert(Arc::clone(name), seen.len());
        seen.push((Arc::clone(name), Seen { reads_text: true, ..Seen::default() }));
    }
    for row in &sample.rows {
        for (name, value) in row.fields(&sample.names) {
            let at = places.get(name).copied().unwrap_or_else(|| {
                let name: Arc<str> = Arc::from(name);
                places.insert(Arc::clone(&name), seen.len());
                seen.push((name, Seen::default()));
                seen.len() - 1
            });
            seen[at].1.add(value);
        }
    }
    let columns = seen.into_iter().map(|(name, seen)| seen.column(name)).collect();
    Schema { columns, key: Vec::new(), is_open: sample.names.is_empty() }
}

#[derive(Default)]
struct Seen {
    kind: Option<Kind>,
    /// Whether text may be another type, as in a source that has nothing else.
    reads_text: bool,
}

impl Seen {
    fn add(&mut self, value: &Value) {
        let Some(kind) = kind_of(value) else { return };
        let kind = match value {
            Value::Text(text) if self.reads_text => kind_of_text(text),
            _ => kind,
        };
        self.kind = Some(self.kind.map_or(kind, |known| common(known, kind)));
    }

    /// A sample cannot tell that no row is without it: it may be null.
    fn column(self, name: Arc<str>) -> Column {
        // Texts of several types are texts.
        let kind = self.kind.filter(|kind| !(self.reads_text && *kind == Kind::Json)).unwrap_or(Kind::Text);
        let native = (self.reads_text && kind != Kind::Text).then(|| READ_FROM_TEXT.to_owned());
        Column { name, kind, nullable: true, native }
    }
}

/// The type that holds a value exactly; none for null.
pub fn kind_of(value: &Value) -> Option<Kind> {
    Some(match value {
        Value::Missing | Value::Null => return None,
        Value::Bool(_) => Kind::Bool,
        Value::Int(_) => Kind::Int64,
        Value::Float(_) => Kind::Float64,
        Value::Decimal(_) => Kind::Decimal(None),
        Value::Text(_) => Kind::Text,
        Value::Bytes(_) => Kind::Bytes,
        Value::Date(_) => Kind::Date,
        Value::Time(_) => Kind::Time,
        Value::DateTime(_) => Kind::DateTime,
        Value::Instant(_) => Kind::Instant,
        Value::Uuid(_) => Kind::Uuid,
        Value::ObjectId(_) => Kind::ObjectId,
        Value::Json(_) | Value::Array(_) | Value::Object(_) | Value::Other(_) => Kind::Json,
    })
}

/// The type that holds values of both exactly. A float in a column of decimals would lose what it is: JSON keeps both.
fn common(one: Kind, other: Kind) -> Kind {
    use Kind::{Decimal, Int64, Json};
    match (one, other) {
        (one, other) if one == other => one,
        (Int64, Decimal(_)) | (Decimal(_), Int64) => Decimal(None),
        _ => Json,
    }
}

/// The type that would write exactly this text.
fn kind_of_text(text: &str) -> Kind {
    let is_written_as = |kind: Kind| convert(Value::text(text), kind).is_ok_and(|value| convert::text(&value) == text);
    match text {
        "true" | "false" => return Kind::Bool,
        _ if !text.starts_with(|first: char| first.is_ascii_hexdigit() || first == '-') => return Kind::Text,
        _ => (),
    }
    let kinds = [Kind::Int64, Kind::Decimal(None), Kind::Uuid, Kind::Date, Kind::Instant];
    kinds.into_iter().find(|kind| is_written_as(*kind)).unwrap_or(Kind::Text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Row, RowBatch};

    #[test]
    fn text_is_taken_for_another_type_only_if_all_of_it_is_written_so() {
        let check = |texts: &[&str], expected: Kind| {
            let mut batch = RowBatch::new(Arc::from([Arc::from("c")]));
            texts.iter().for_each(|text| batch.push(Row::Cells(vec![Value::text(*text)])));
            assert_eq!(schema(&batch).columns[0].kind, expected, "{texts:?}");
        };
        check(&["1", "-20"], Kind::Int64);
        check(&["1", "007"], Kind::Text);
        check(&["1", "1.50"], Kind::Decimal(None));
        check(&["1", "x"], Kind::Text);
        check(&["2024-01-31"], Kind::Date);
        check(&["2024-01-31T10:00:00Z"], Kind::Instant);
        check(&["2024-01-31T10:00:00+02:00"], Kind::Text);
        check(&["true", "false"], Kind::Bool);
        check(&["11111111-1111-1111-1111-111111111111"], Kind::Uuid);
        check(&["NaN"], Kind::Text);
    }
}
