//! What columns rows have, from a sample of them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::row::RowBatch;
use crate::value::{Column, Kind, Schema, Value};

/// The columns of the sample, in the order in which they were first seen. Text cells of a source without types (CSV)
/// stay text unless all of them are written as another type would write them.
pub fn schema(sample: &RowBatch) -> Schema {
    let mut seen: Vec<(Arc<str>, Seen)> = Vec::new();
    let mut places: HashMap<Arc<str>, usize> = HashMap::new();
    for name in sample.names.iter() {
        places.insert(Arc::clone(name), seen.len());
        seen.push((Arc::clone(name), Seen::default()));
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
    let rows = sample.rows.len();
    let columns = seen.into_iter().map(|(name, seen)| seen.column(name, rows)).collect();
    Schema { columns, key: Vec::new(), is_open: sample.names.is_empty() }
}

#[derive(Default)]
struct Seen {
    kind: Option<Kind>,
    count: usize,
}

impl Seen {
    fn add(&mut self, value: &Value) {
        let Some(kind) = kind_of(value) else { return };
        self.count += 1;
        self.kind = Some(self.kind.map_or(kind, |known| common(known, kind)));
    }

    fn column(self, name: Arc<str>, rows: usize) -> Column {
        let kind = self.kind.unwrap_or(Kind::Text);
        Column { name, kind, nullable: self.count < rows || rows == 0, native: None }
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
