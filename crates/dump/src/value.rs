//! The exact values that every storage maps to and from.
//!
//! A storage gives a value the variant that says most about it, and takes any variant: what a target has no type for
//! is written as text or as extended JSON ([`crate::json`]), from which the same value can be read again.

mod decimal;
mod hex;

use std::sync::Arc;

pub use self::decimal::Decimal;
pub use self::hex::{from_hex, to_hex, uuid_from_text, uuid_to_text};

/// One value of a row.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// The document has no such field. Stores with columns have no such state: there it is null.
    Missing,
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// A number that is neither: larger integers, and decimals with every digit that they had.
    Decimal(Decimal),
    Text(String),
    Bytes(Vec<u8>),
    Date(jiff::civil::Date),
    Time(jiff::civil::Time),
    /// What a clock on a wall shows: no zone.
    DateTime(jiff::civil::DateTime),
    /// A point in time, in UTC.
    Instant(jiff::Timestamp),
    Uuid([u8; 16]),
    ObjectId([u8; 12]),
    /// A JSON document as the text that the source keeps it in. Extended forms within it count.
    Json(Box<str>),
    Array(Vec<Value>),
    /// The fields of a document, in order.
    Object(Vec<(String, Value)>),
    /// A value of a type that only some stores have.
    Other(Box<Other>),
}

/// A value that is carried through unread. In JSON it is `{"$<kind>": <json>}`.
#[derive(Clone, PartialEq, Debug)]
pub struct Other {
    /// The name of the extended form without its dollar, such as `regularExpression` or `timestamp`.
    pub kind: String,
    /// What stands behind the name, as JSON.
    pub json: Box<str>,
}

impl Value {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Whether there is nothing: null or missing.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Missing | Self::Null)
    }

    /// What the value is called in messages.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Self::Missing => "nothing",
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Decimal(_) => "a decimal",
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytes",
            Self::Date(_) => "a date",
            Self::Time(_) => "a time",
            Self::DateTime(_) => "a timestamp without zone",
            Self::Instant(_) => "a timestamp",
            Self::Uuid(_) => "a UUID",
            Self::ObjectId(_) => "an ObjectId",
            Self::Json(_) => "JSON",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
            Self::Other(_) => "a value of a special type",
        }
    }

    /// About how many bytes the value is, for limits and for people.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Missing => 0,
            Self::Null | Self::Bool(_) => 1,
            Self::Text(text) => text.len() + 1,
            Self::Bytes(bytes) => bytes.len() + 1,
            Self::Json(text) => text.len() + 1,
            Self::Decimal(decimal) => decimal.as_str().len() + 1,
            Self::Uuid(_) | Self::ObjectId(_) => 16,
            Self::Array(values) => values.iter().map(Self::bytes).sum::<usize>() + 2,
            Self::Object(fields) => {
                fields.iter().map(|(name, value)| name.len() + 3 + value.bytes()).sum::<usize>() + 2
            }
            Self::Other(other) => other.kind.len() + other.json.len() + 4,
            _ => 8,
        }
    }
}

/// The type of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Bool,
    Int16,
    Int32,
    Int64,
    /// With the number of digits and of those behind the point, where the source says so.
    Decimal(Option<(u16, u16)>),
    Float32,
    Float64,
    Text,
    Bytes,
    Date,
    Time,
    DateTime,
    Instant,
    Uuid,
    ObjectId,
    /// JSON that keeps its text: the order of fields, and numbers with all their digits.
    Json,
    /// JSON in the form that the target can search, if it has one; it may order fields and normalize numbers.
    JsonBinary,
}

impl Kind {
    /// The word of job files: `as = "…"`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Decimal(_) => "decimal",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::Date => "date",
            Self::Time => "time",
            Self::DateTime => "datetime",
            Self::Instant => "timestamp",
            Self::Uuid => "uuid",
            Self::ObjectId => "objectid",
            Self::Json => "json",
            Self::JsonBinary => "jsonb",
        }
    }

    /// Reads the word of a job file; some have a second name.
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some(digits) = name.strip_prefix("decimal(").and_then(|rest| rest.strip_suffix(')')) {
            let (precision, scale) = digits.split_once(',').unwrap_or((digits, "0"));
            return Some(Self::Decimal(Some((precision.trim().parse().ok()?, scale.trim().parse().ok()?))));
        }
        Some(match name {
            "bool" | "boolean" => Self::Bool,
            "int16" | "smallint" => Self::Int16,
            "int32" | "int" | "integer" => Self::Int32,
            "int64" | "bigint" => Self::Int64,
            "decimal" | "numeric" => Self::Decimal(None),
            "float32" | "real" => Self::Float32,
            "float64" | "float" | "double" => Self::Float64,
            "text" | "string" => Self::Text,
            "bytes" | "binary" => Self::Bytes,
            "date" => Self::Date,
            "time" => Self::Time,
            "datetime" => Self::DateTime,
            "timestamp" | "instant" => Self::Instant,
            "uuid" => Self::Uuid,
            "objectid" => Self::ObjectId,
            "json" => Self::Json,
            "jsonb" => Self::JsonBinary,
            _ => return None,
        })
    }
}

/// As job files have it, with its digits.
impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Decimal(Some((precision, scale))) => write!(f, "decimal({precision},{scale})"),
            kind => f.write_str(kind.name()),
        }
    }
}

/// One column of a table, or one field that documents have.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    pub name: Arc<str>,
    pub kind: Kind,
    pub nullable: bool,
    /// How the source itself names the type, with the dialect in front: `postgres:interval`. A target of the same
    /// dialect creates the same.
    pub native: Option<String>,
}

impl Column {
    pub fn new(name: impl Into<Arc<str>>, kind: Kind) -> Self {
        Self { name: name.into(), kind, nullable: true, native: None }
    }

    /// The type in the words of a dialect, if that is where the column comes from.
    pub fn native_of(&self, dialect: &str) -> Option<&str> {
        self.native.as_deref()?.strip_prefix(dialect)?.strip_prefix(':')
    }
}

/// What is known of the rows of a source or of a target.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Schema {
    pub columns: Vec<Column>,
    /// The names of the columns of the primary key, in order.
    pub key: Vec<Arc<str>>,
    /// Whether rows are documents: the columns are only those that were seen, and a row may have others.
    pub is_open: bool,
}

impl Schema {
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| &*column.name == name)
    }

    pub fn names(&self) -> Arc<[Arc<str>]> {
        self.columns.iter().map(|column| Arc::clone(&column.name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_small() {
        assert!(size_of::<Value>() <= 32, "{}", size_of::<Value>());
    }

    #[test]
    fn the_name_of_a_kind_is_read_as_that_kind() {
        for kind in [Kind::Bool, Kind::Int16, Kind::Int64, Kind::Decimal(None), Kind::Instant, Kind::JsonBinary] {
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(Kind::from_name("decimal(10, 2)"), Some(Kind::Decimal(Some((10, 2)))));
        assert_eq!(Kind::from_name("varchar"), None);
    }
}
