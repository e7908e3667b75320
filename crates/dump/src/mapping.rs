//! Normalize: rows of the source as rows of the target.

mod expression;
mod path;
mod plan;

use std::borrow::Cow;
use std::sync::Arc;

pub use self::plan::{Takes, inferred, plan};

use self::expression::Expression;
use self::path::Path;
use crate::convert::{convert, converted, is_written_so};
use crate::error::{Error, Result};
use crate::job::{Nulls, OnError};
use crate::json;
use crate::row::{Names, Row, RowBatch};
use crate::value::{Kind, Schema, Value};

/// How rows are made. Cheap to share.
#[derive(Debug)]
pub struct Mapping {
    /// Of the rows that come out. Open where they are documents as they came.
    pub schema: Schema,
    names: Names,
    columns: Vec<Made>,
    /// The place of the column for what is left over.
    rest: Option<usize>,
    /// The fields that columns are made from, which are not left over; sorted.
    used: Vec<String>,
    spread: Option<String>,
    nulls: Nulls,
    is_identity: bool,
}

/// How a column is made.
#[derive(Debug)]
struct Made {
    name: Arc<str>,
    from: From,
    /// What values become; none where they are passed on as they came.
    kind: Option<Kind>,
    why: Why,
    default: Option<Value>,
    on_error: OnError,
}

/// Who says what the values of a column become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    /// The job.
    Asked,
    /// The column of a target that exists. It may hold more than our types do, and then has the last word.
    Target {
        /// Whether a text of the source is JSON where the target has JSON, rather than a string of it.
        is_json_text: bool,
    },
    /// All texts of a sample. What is written in another way (`007` among integers) would lose by it.
    Sample,
}

#[derive(Debug)]
enum From {
    Paths(Vec<Path>),
    Expression(Expression),
    Rest,
}

/// A row that was refused, and why.
#[derive(Clone, Debug)]
pub struct Reject {
    /// The place of the row in its chunk, from 0.
    pub row: u64,
    pub reason: String,
    /// The row as it came, in extended JSON, or the text that is none.
    pub text: String,
}

impl Mapping {
    /// Rows as they came.
    pub fn identity(schema: Schema) -> Self {
        Self {
            names: schema.names(),
            schema,
            columns: Vec::new(),
            rest: None,
            used: Vec::new(),
            spread: None,
            nulls: Nulls::Keep,
            is_identity: true,
        }
    }

    /// Whether rows can be passed on unread.
    pub fn is_identity(&self) -> bool {
        self.is_identity
    }

    /// The rows of the target. Those that cannot be made are among the rejects; `first` is the number of the first row.
    pub fn apply(&self, batch: RowBatch, first: u64) -> Result<(Mapped, Vec<Reject>)> {
        let mut rejects = Vec::new();
        if self.is_identity {
            let mut numbers = Vec::with_capacity(batch.rows.len());
            let mut kept =
                RowBatch { names: batch.names, rows: Vec::with_capacity(batch.rows.len()), bytes: batch.bytes };
            for (number, row) in (first..).zip(batch.rows) {
                match row {
                    Row::Bad(bad) => rejects.push(Reject { row: number, reason: bad.reason, text: bad.text }),
                    row => {
                        numbers.push(number);
                        kept.rows.push(row);
                    }
                }
            }
            return Ok((Mapped { batch: kept, numbers }, rejects));
        }
        let mut mapped = RowBatch::new(Arc::clone(&self.names));
        let mut numbers = Vec::with_capacity(batch.rows.len());
        for (number, row) in (first..).zip(batch.rows) {
            if let Row::Bad(bad) = row {
                rejects.push(Reject { row: number, reason: bad.reason, text: bad.text });
                continue;
            }
            match self.row(&row, &batch.names)? {
                Ok(row) => {
                    numbers.push(number);
                    mapped.push(row);
                }
                Err(reason) => rejects.push(Reject { row: number, reason, text: as_text(&row, &batch.names) }),
            }
        }
        Ok((Mapped { batch: mapped, numbers }, rejects))
    }

    /// One row, or why it is refused. The outer error stops the copy.
    fn row(&self, row: &Row, names: &Names) -> Result<Result<Row, String>> {
        if self.columns.is_empty() {
            return Ok(Ok(Row::Document(self.document(row, names))));
        }
        let mut cells = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let made = match &column.from {
                From::Rest => Ok(Value::Null),
                From::Paths(paths) => column.of_paths(paths, row, names),
                From::Expression(expression) => {
                    expression.evaluate(row, names).and_then(|value| column.finished(Cow::Owned(value)))
                }
            };
            match (made, column.on_error) {
                (Ok(value), _) => cells.push(value),
                (Err(_), OnError::Null) => cells.push(Value::Null),
                (Err(reason), OnError::Reject) => return Ok(Err(format!("column {}: {reason}", column.name))),
                (Err(reason), OnError::Fail) => {
                    let row = as_text(row, names);
                    return Err(Error::invalid(format!("column {}: {reason} (in the row {row})", column.name)));
                }
            }
        }
        if let Some(at) = self.rest {
            cells[at] = self.left_over(row, names, &cells);
        }
        Ok(Ok(Row::Cells(cells)))
    }

    /// What no column was made from. A null of a document is left over too: in a column it would look as if the field
    /// was not there.
    fn left_over(&self, row: &Row, names: &Names, cells: &[Value]) -> Value {
        let is_document = matches!(row, Row::Document(_));
        let keeps = |name: &str, value: &Value| {
            if self.used.binary_search_by(|used| used.as_str().cmp(name)).is_err() {
                return true;
            }
            let column = self.names.iter().position(|other| &**other == name);
            let is_null = column.is_some_and(|at| matches!(cells[at], Value::Null));
            is_document && is_null && matches!(value, Value::Null)
        };
        let fields: Vec<(&str, &Value)> = row.fields(names).filter(|(name, value)| keeps(name, value)).collect();
        if fields.is_empty() {
            return Value::Null;
        }
        let mut text = Vec::new();
        json::write_document(fields.into_iter(), json::Style::Extended, &mut text);
        Value::Json(String::from_utf8(text).expect("JSON is written as UTF-8").into())
    }

    /// The row with the fields of one column spread out, and without nulls if they stand for nothing.
    fn document(&self, row: &Row, names: &Names) -> Vec<(String, Value)> {
        let mut fields = Vec::new();
        let mut spread = Vec::new();
        for (name, value) in row.fields(names) {
            if self.spread.as_deref() == Some(name) {
                spread = object_of(value);
                continue;
            }
            if self.nulls == Nulls::Omit && matches!(value, Value::Null) {
                continue;
            }
            fields.push((name.to_owned(), value.clone()));
        }
        for (name, value) in spread {
            match fields.iter_mut().find(|(other, _)| *other == name) {
                Some((_, known)) => *known = value,
                None => fields.push((name, value)),
            }
        }
        fields
    }
}

/// Rows of the target, and which rows of the chunk they were.
#[derive(Clone, Debug)]
pub struct Mapped {
    pub batch: RowBatch,
    pub numbers: Vec<u64>,
}

impl Made {
    fn of_paths(&self, paths: &[Path], row: &Row, names: &Names) -> Result<Value, String> {
        let found = paths.iter().map(|path| path.find(row, names)).find(|value| !value.is_empty());
        // Whether it is null or missing is decided by the first path.
        let first = || paths.first().map_or(Cow::Borrowed(&Value::Missing), |path| path.find(row, names));
        self.finished(found.unwrap_or_else(first))
    }

    fn finished(&self, value: Cow<'_, Value>) -> Result<Value, String> {
        let value = match &self.default {
            Some(default) if value.is_empty() => Cow::Borrowed(default),
            _ => value,
        };
        match (self.kind, self.why, value) {
            (None, _, value) => Ok(value.into_owned()),
            (Some(kind), Why::Asked, Cow::Owned(value)) => convert(value, kind),
            (Some(kind), Why::Asked, Cow::Borrowed(value)) => converted(value, kind),
            (Some(kind), Why::Target { is_json_text }, value) => for_target(value, kind, is_json_text),
            (Some(kind), Why::Sample, value) => as_sampled(&value, kind),
        }
    }
}

/// The value for a column that exists.
fn for_target(value: Cow<'_, Value>, kind: Kind, is_json_text: bool) -> Result<Value, String> {
    match &*value {
        Value::Text(text) if is_json_text && matches!(kind, Kind::Json | Kind::JsonBinary) => {
            match json::parse(text.as_bytes()) {
                Ok(_) => Ok(Value::Json(text.as_str().into())),
                Err(reason) => Err(format!("the text is no JSON: {reason}")),
            }
        }
        // Targets have days that we have not, such as `infinity` or `0000-00-00`, and booleans that are small numbers.
        Value::Text(_) if matches!(kind, Kind::Date | Kind::Time | Kind::DateTime | Kind::Instant) => {
            Ok(converted(&value, kind).unwrap_or_else(|_| value.into_owned()))
        }
        Value::Int(_) if kind == Kind::Bool => Ok(converted(&value, kind).unwrap_or_else(|_| value.into_owned())),
        _ => match value {
            Cow::Owned(value) => convert(value, kind),
            Cow::Borrowed(value) => converted(value, kind),
        },
    }
}

/// The value of a text, if its type would write it in the same way.
fn as_sampled(value: &Value, kind: Kind) -> Result<Value, String> {
    const HINT: &str = "the first rows suggest the type, a job file can name another (`flare dump guess` writes one)";
    let reason = match (value, converted(value, kind)) {
        (Value::Text(text), Ok(_)) if !is_written_so(text, kind) => {
            format!("{} is not how {kind} is written", crate::convert::shown(value))
        }
        (_, Ok(value)) => return Ok(value),
        (_, Err(reason)) => reason,
    };
    Err(format!("{reason}; {HINT}"))
}

/// The fields of a JSON object.
fn object_of(value: &Value) -> Vec<(String, Value)> {
    match value {
        Value::Object(fields) => fields.clone(),
        Value::Json(text) => match json::parse(text.as_bytes()) {
            Ok(Value::Object(fields)) => fields,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// A row for the reject file and for messages.
pub fn as_text(row: &Row, names: &Names) -> String {
    let mut text = Vec::new();
    json::write_document(row.fields(names), json::Style::Extended, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests;
