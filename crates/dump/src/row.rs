//! Rows and batches of them.

use std::sync::Arc;

use bytes::Bytes;

use crate::value::Value;

/// The names of the columns of a batch, shared by its rows.
pub type Names = Arc<[Arc<str>]>;

/// One row: the values of the batch's columns, or a document with names of its own.
#[derive(Clone, PartialEq, Debug)]
pub enum Row {
    Cells(Vec<Value>),
    Document(Vec<(String, Value)>),
    /// What the source has here cannot be read. It goes to the reject file.
    Bad(Box<BadRow>),
}

/// Something that should have been a row.
#[derive(Clone, PartialEq, Debug)]
pub struct BadRow {
    pub text: String,
    pub reason: String,
}

impl Row {
    pub fn bad(text: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Bad(Box::new(BadRow { text: text.into(), reason: reason.into() }))
    }

    pub fn bytes(&self) -> usize {
        match self {
            Self::Cells(cells) => cells.iter().map(Value::bytes).sum(),
            Self::Document(fields) => fields.iter().map(|(name, value)| name.len() + 3 + value.bytes()).sum(),
            Self::Bad(bad) => bad.text.len(),
        }
    }

    /// The value of a column or field.
    pub fn get<'a>(&'a self, names: &Names, name: &str) -> &'a Value {
        match self {
            Self::Cells(cells) => {
                let at = names.iter().position(|other| &**other == name);
                at.and_then(|at| cells.get(at)).unwrap_or(&Value::Missing)
            }
            Self::Document(fields) => {
                fields.iter().find(|(other, _)| other == name).map_or(&Value::Missing, |(_, value)| value)
            }
            Self::Bad(_) => &Value::Missing,
        }
    }

    /// The row as a document: fields that are missing are left out.
    pub fn into_document(self, names: &Names) -> Vec<(String, Value)> {
        match self {
            Self::Document(fields) => fields,
            Self::Cells(cells) => {
                let named = names.iter().zip(cells).filter(|(_, value)| !matches!(value, Value::Missing));
                named.map(|(name, value)| (name.to_string(), value)).collect()
            }
            Self::Bad(_) => Vec::new(),
        }
    }

    /// The names and values that are there, in order.
    pub fn fields<'a>(&'a self, names: &'a Names) -> Box<dyn Iterator<Item = (&'a str, &'a Value)> + 'a> {
        match self {
            Self::Cells(cells) => {
                let named = names.iter().map(|name| &**name).zip(cells);
                Box::new(named.filter(|(_, value)| !matches!(value, Value::Missing)))
            }
            Self::Document(fields) => Box::new(fields.iter().map(|(name, value)| (name.as_str(), value))),
            Self::Bad(_) => Box::new(std::iter::empty()),
        }
    }
}

/// Rows that travel together. A reader closes a batch at about [`BATCH_BYTES`].
#[derive(Clone, PartialEq, Debug)]
pub struct RowBatch {
    /// The columns of the rows that are [`Row::Cells`].
    pub names: Names,
    pub rows: Vec<Row>,
    /// About how many bytes the rows have.
    pub bytes: usize,
}

/// A batch is closed when it has this many bytes.
pub const BATCH_BYTES: usize = 96 << 10;
/// And when it has this many rows.
pub const BATCH_ROWS: usize = 2048;

impl RowBatch {
    pub fn new(names: Names) -> Self {
        Self { names, rows: Vec::new(), bytes: 0 }
    }

    pub fn documents() -> Self {
        Self::new(Arc::from([]))
    }

    pub fn push(&mut self, row: Row) {
        self.bytes += row.bytes();
        self.rows.push(row);
    }

    pub fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.rows.len() >= BATCH_ROWS
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Takes what was gathered, and leaves an empty batch of the same columns.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(Arc::clone(&self.names)))
    }
}

/// Rows in a form that both sides know, passed on unread.
#[derive(Clone, Debug)]
pub struct RawBatch {
    /// Whole rows.
    pub data: Bytes,
    pub rows: u64,
}

/// The name of such a form, and its columns. Storages agree on the meaning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawFormat {
    pub name: &'static str,
    pub names: Names,
}

impl RawFormat {
    /// One JSON document per line, in extended JSON.
    pub const JSON_LINES: &'static str = "json-lines";
    /// The text format of PostgreSQL's `COPY`.
    pub const POSTGRES_COPY: &'static str = "postgres-copy";
    /// BSON documents, one behind the other.
    pub const BSON: &'static str = "bson";
}

/// What a reader gives and a writer takes.
#[derive(Clone, Debug)]
pub enum Batch {
    Rows(RowBatch),
    Raw(RawBatch),
}

impl Batch {
    pub fn rows(&self) -> u64 {
        match self {
            Self::Rows(batch) => batch.rows.len() as u64,
            Self::Raw(batch) => batch.rows,
        }
    }

    pub fn bytes(&self) -> u64 {
        match self {
            Self::Rows(batch) => batch.bytes as u64,
            Self::Raw(batch) => batch.data.len() as u64,
        }
    }
}
