//! Whether the target has what was written: counts, and a checksum that does not depend on the order of rows.

use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt;
use xxhash_rust::xxh3::xxh3_128;

use crate::convert::convert;
use crate::error::{Error, Result};
use crate::history::{ChunkId, History};
use crate::json;
use crate::key::Range;
use crate::port::{Reader, WriteMode};
use crate::row::{Batch, Names, Row, RowBatch};
use crate::session::Session;
use crate::storage::{self, ReadOptions};
use crate::value::{Kind, Schema, Value};

/// How many chunks a message names.
const SHOWN_MAX: usize = 10;

/// The sum of the digests of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checksum(u128);

impl Checksum {
    pub fn add(&mut self, batch: &RowBatch, schema: &Schema) {
        for row in &batch.rows {
            self.0 = self.0.wrapping_add(digest(row, &batch.names, schema));
        }
    }

    pub fn remove(&mut self, batch: &RowBatch, schema: &Schema) {
        for row in &batch.rows {
            self.0 = self.0.wrapping_sub(digest(row, &batch.names, schema));
        }
    }

    fn parse(text: &str) -> Option<Self> {
        u128::from_str_radix(text, 16).ok().map(Self)
    }

    fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Of a row in the one form that all storages agree on: fields by name, values as their column has them.
fn digest(row: &Row, names: &Names, schema: &Schema) -> u128 {
    let mut fields: Vec<(&str, String)> = row
        .fields(names)
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name, canonical(value, schema.column(name).map(|column| column.kind))))
        .collect();
    fields.sort_unstable();
    let mut text = Vec::new();
    for (name, value) in fields {
        text.extend_from_slice(name.as_bytes());
        text.push(0);
        text.extend_from_slice(value.as_bytes());
        text.push(0);
    }
    xxh3_128(&text)
}

fn canonical(value: &Value, kind: Option<Kind>) -> String {
    let value = match kind {
        Some(kind) => convert(value.clone(), kind).unwrap_or_else(|_| value.clone()),
        None => value.clone(),
    };
    match &value {
        Value::Json(text) => match json::parse(text.as_bytes()) {
            Ok(parsed) => json::to_string(&sorted(parsed)),
            Err(_) => text.to_string(),
        },
        Value::Array(_) | Value::Object(_) => json::to_string(&sorted(value)),
        Value::Float(number) if kind == Some(Kind::Float32) => (*number as f32).to_string(),
        Value::Float(number) => (*number + 0.0).to_string(),
        Value::Decimal(number) => trimmed(number.as_str()),
        Value::Instant(at) => at.as_millisecond().to_string(),
        Value::DateTime(at) => at.to_string(),
        other => json::to_string(other),
    }
}

/// Without the zeros that only say how a column is declared.
fn trimmed(text: &str) -> String {
    if !text.contains('.') || text.contains(['e', 'E']) {
        return text.to_owned();
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// With the fields in the order of their names, and numbers as floats: some stores keep neither.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(fields)
        }
        Value::Array(values) => Value::Array(values.into_iter().map(sorted).collect()),
        Value::Int(number) => Value::Float(number as f64),
        Value::Decimal(number) => number.as_str().parse().map_or(Value::Decimal(number), Value::Float),
        other => other,
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub rows_written: u64,
    pub rows_found: u64,
    /// Chunks whose rows differ, where the target can be asked for a chunk.
    pub differing: Vec<String>,
    pub is_same_sum: bool,
    /// Whether each chunk was looked at, or only the whole.
    pub by_chunk: bool,
}

impl Verified {
    pub fn is_same(&self) -> bool {
        self.rows_written == self.rows_found && self.is_same_sum && self.differing.is_empty()
    }
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_same() {
            let how = if self.by_chunk { "by chunk" } else { "as a whole" };
            return write!(f, "the target has the {} rows that were written, compared {how}", self.rows_found);
        }
        write!(f, "the target differs: {} rows were written, {} are there", self.rows_written, self.rows_found)?;
        if !self.differing.is_empty() {
            let shown: Vec<&str> = self.differing.iter().take(SHOWN_MAX).map(String::as_str).collect();
            let more = if self.differing.len() > SHOWN_MAX { " …" } else { "" };
            write!(f, "; chunks that differ: {}{more}", shown.join(", "))?;
        }
        Ok(())
    }
}

/// Reads the target and compares it with what the history says was written.
pub async fn verify(session: &Session, history: &History) -> Result<Verified> {
    let whole_target = matches!(session.job.mode, WriteMode::Create | WriteMode::Replace);
    let ranges: Vec<(&ChunkId, &Range)> = history.done().map(|(chunk, range, _)| (chunk, range)).collect();
    let by_chunk = is_ordered(session, &ranges);
    if !whole_target && !by_chunk {
        return Err(Error::invalid("a target that had rows before can be verified only by an integer key of its own"));
    }
    let reader = storage::reader(&session.target, &ReadOptions::default())?;
    let description = reader.describe().await?;
    let schema = &session.mapping.schema;
    let by_chunk = by_chunk && description.schema.key == schema.key;
    let (mut rows_written, mut rows_found) = (0, 0);
    let (mut written, mut found) = (Checksum::default(), Checksum::default());
    let mut differing = Vec::new();
    for (chunk, range, done) in history.done() {
        let expected = done.checksum.as_deref().and_then(Checksum::parse);
        let expected = expected.ok_or_else(|| Error::invalid(format!("chunk {chunk} was copied without --verify")))?;
        rows_written += done.rows;
        written = written.plus(expected);
        if by_chunk {
            let (rows, sum) = sum_of(&reader, range, schema).await?;
            rows_found += rows;
            found = found.plus(sum);
            if rows != done.rows || sum != expected {
                differing.push(chunk.to_string());
            }
        }
    }
    if !by_chunk {
        (rows_found, found) = sum_of(&reader, &Range::default(), schema).await?;
    }
    Ok(Verified { rows_written, rows_found, differing, is_same_sum: written == found, by_chunk })
}

/// Whether the ranges mean the same in the target: integers have one order everywhere.
fn is_ordered(session: &Session, ranges: &[(&ChunkId, &Range)]) -> bool {
    let source = &session.description;
    let crate::port::Walk::Key(columns) = &source.walk else { return false };
    let key: Vec<String> = session.mapping.schema.key.iter().map(|name| name.to_string()).collect();
    let is_integer = |name: &String| {
        let kind = source.schema.column(name).map(|column| column.kind);
        matches!(kind, Some(Kind::Int16 | Kind::Int32 | Kind::Int64))
    };
    *columns == key && columns.iter().all(is_integer) && !ranges.is_empty()
}

async fn sum_of(reader: &Arc<dyn Reader>, range: &Range, schema: &Schema) -> Result<(u64, Checksum)> {
    let mut batches = reader.read(range, false);
    let (mut rows, mut sum) = (0, Checksum::default());
    while let Some(batch) = batches.next().await {
        let Batch::Rows(batch) = batch? else { return Err(Error::failed("nobody asked for raw rows")) };
        rows += batch.rows.len() as u64;
        sum.add(&batch, schema);
    }
    Ok((rows, sum))
}
