//! Which mapping a job means: its rules, the columns of the target that exists, or what was seen of the source.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Expression, From, Made, Mapping, Path, Why};
use crate::error::{Error, Result};
use crate::job::{ColumnRule, Job, Nulls, OnError, Paths};
use crate::value::{Column, Kind, Schema, Value};

/// The column for what is left over, where a document becomes a row and nobody named one.
const REST: &str = "_rest";

/// What a target takes.
#[derive(Clone, Debug, Default)]
pub struct Takes {
    /// Rows may be documents, rather than values of known columns.
    pub documents: bool,
    /// Columns that hold whatever comes: their type says nothing.
    pub as_is: HashSet<Arc<str>>,
}

/// The mapping of a job. `target` is what the target has, if it exists.
pub fn plan(job: &Job, source: &Schema, target: Option<&Schema>, takes: &Takes) -> Result<Mapping> {
    let target = target.filter(|target| !target.columns.is_empty() && !target.is_open);
    let sides = Sides { source, target, takes };
    if !job.columns.is_empty() {
        return sides.of_rules(job, &job.columns);
    }
    if job.spread.is_some() || job.nulls == Nulls::Omit {
        if !takes.documents {
            return Err(Error::invalid("spread and nulls = \"omit\" make documents: the target has columns"));
        }
        let schema = Schema { is_open: true, ..source.clone() };
        let (spread, nulls) = (job.spread.clone(), job.nulls);
        return Ok(Mapping { spread, nulls, is_identity: false, ..Mapping::identity(schema) });
    }
    let is_as_it_is = job.rest.is_none() && !has_text_to_read(source);
    if takes.documents && is_as_it_is {
        return Ok(Mapping::identity(source.clone()));
    }
    if let Some(target) = target {
        return sides.onto(job, target);
    }
    if !source.is_open && is_as_it_is {
        return Ok(Mapping::identity(source.clone()));
    }
    let rest = job.rest.clone().or_else(|| rest_of(source));
    let own_rest = rest_of(source);
    let columns = columns_of(source, own_rest.as_deref());
    let rules: Vec<ColumnRule> = columns.map(|column| rule(column, None)).collect();
    sides.of_rules(&Job { rest, ..job.clone() }, &rules)
}

/// Whether columns of text were found to hold another type, as those of CSV files.
fn has_text_to_read(source: &Schema) -> bool {
    source.columns.iter().any(is_read_from_text)
}

fn is_read_from_text(column: &Column) -> bool {
    column.native.as_deref() == Some(crate::infer::READ_FROM_TEXT)
}

/// The rules that a source suggests, and the column for what is left over.
pub fn inferred(source: &Schema) -> (Vec<ColumnRule>, Option<String>) {
    let rest = rest_of(source);
    (columns_of(source, rest.as_deref()).map(|column| rule(column, Some(column.kind.to_string()))).collect(), rest)
}

/// The column for what is left over of documents.
fn rest_of(source: &Schema) -> Option<String> {
    source.is_open.then(|| REST.to_owned())
}

fn columns_of<'a>(source: &'a Schema, rest: Option<&'a str>) -> impl Iterator<Item = &'a Column> {
    source.columns.iter().filter(move |column| Some(&*column.name) != rest)
}

fn rule(column: &Column, kind: Option<String>) -> ColumnRule {
    let name = column.name.to_string();
    ColumnRule { name, from: None, expression: None, kind, default: None, on_error: OnError::Reject }
}

/// What is copied to what.
struct Sides<'a> {
    source: &'a Schema,
    target: Option<&'a Schema>,
    takes: &'a Takes,
}

impl Sides<'_> {
    /// By name onto the columns of a table that exists.
    fn onto(&self, job: &Job, target: &Schema) -> Result<Mapping> {
        let source = self.source;
        let is_kept = source.is_open && target.column(REST).is_some();
        let rest = job.rest.clone().or_else(|| is_kept.then(|| REST.to_owned()));
        let is_known = |column: &&Column| target.column(&column.name).is_some();
        if let (Some(lost), None) = (source.columns.iter().find(|column| !is_known(column)), &rest) {
            return Err(Error::invalid(format!(
                "the target has no column {:?}: map it with [[column]], or name a column of JSON for such fields with \
                 rest",
                lost.name
            )));
        }
        let is_as_it_is = |column: &Column| {
            target.column(&column.name).is_some_and(|known| self.conversion(Some(column), known).is_none())
        };
        if !source.is_open && rest.is_none() && source.columns.iter().all(is_as_it_is) {
            // A table that a copy has begun gets its key at the end.
            let key = if target.key.is_empty() { source.key.clone() } else { target.key.clone() };
            return Ok(Mapping::identity(Schema { key, ..source.clone() }));
        }
        let columns = columns_of(source, rest.as_deref()).filter(is_known);
        let rules: Vec<ColumnRule> = columns.map(|column| rule(column, None)).collect();
        self.of_rules(&Job { rest, ..job.clone() }, &rules)
    }

    /// What becomes of the values for a column that exists, and why; nothing where they are what the column holds.
    fn conversion(&self, origin: Option<&Column>, known: &Column) -> Option<(Kind, Why)> {
        if self.takes.as_is.contains(&known.name) {
            return None;
        }
        let why = Why::Target { is_json_text: !self.source.is_open };
        let Some(origin) = origin.filter(|_| !self.source.is_open) else { return Some((known.kind, why)) };
        if is_read_from_text(origin) {
            let is_sampled = is_integer(origin.kind) && is_integer(known.kind)
                || std::mem::discriminant(&origin.kind) == std::mem::discriminant(&known.kind);
            return Some((known.kind, if is_sampled { Why::Sample } else { why }));
        }
        (!holds(known.kind, origin.kind)).then_some((known.kind, why))
    }

    fn of_rules(&self, job: &Job, rules: &[ColumnRule]) -> Result<Mapping> {
        let mut columns = Vec::new();
        let mut made = Vec::new();
        let mut used = Vec::new();
        for rule in rules {
            let known = self.target.and_then(|target| target.column(&rule.name));
            if let (Some(_), None) = (self.target, known) {
                return Err(Error::invalid(format!("the target has no column {:?}", rule.name)));
            }
            let one = self.make(rule, known).map_err(|error| error.within(format_args!("column {:?}", rule.name)))?;
            if let From::Paths(paths) = &one.made.from {
                used.extend(paths.iter().filter_map(|path| path.field(self.source)).map(str::to_owned));
            }
            columns.push(one.column);
            made.push(one.made);
        }
        used.sort();
        let mut rest = None;
        if let Some(name) = &job.rest {
            if columns.iter().any(|column| &*column.name == name) {
                return Err(Error::invalid(format!("rest is {name:?}, which is a column of its own")));
            }
            rest = Some(made.len());
            columns.push(Column::new(name.as_str(), Kind::Json));
            let (kind, why, default) = (None, Why::Asked, None);
            let (name, from) = (Arc::from(name.as_str()), From::Rest);
            made.push(Made { name, from, kind, why, default, on_error: OnError::Reject });
        }
        let key = key_of(&columns, rules, self.source, self.target);
        for column in &mut columns {
            column.nullable &= !key.contains(&column.name);
        }
        let schema = Schema { columns, key, is_open: false };
        let identity = Mapping::identity(schema);
        Ok(Mapping { columns: made, rest, used, spread: None, nulls: job.nulls, is_identity: false, ..identity })
    }

    fn make(&self, rule: &ColumnRule, known: Option<&Column>) -> Result<One> {
        let from = from_of(rule)?;
        let said = match &rule.kind {
            None => None,
            Some(name) => Some(
                Kind::from_name(name)
                    .ok_or_else(|| Error::invalid(format!("{name:?} is no type: see docs/dump.md")))?,
            ),
        };
        let origin = match &from {
            From::Paths(paths) => paths.first().and_then(|path| path.field(self.source)),
            _ => None,
        };
        let origin = origin.and_then(|name| self.source.column(name));
        let seen = origin.map_or(Kind::Json, |column| column.kind);
        let is_text = origin.is_some_and(is_read_from_text);
        let (kind, native, conversion) = match (said, known) {
            (Some(kind), _) => (kind, None, Some((kind, Why::Asked))),
            (None, Some(known)) => (known.kind, known.native.clone(), self.conversion(origin, known)),
            (None, None) if is_text => (seen, None, Some((seen, Why::Sample))),
            (None, None) => (seen, origin.and_then(|column| column.native.clone()), Some((seen, Why::Asked))),
        };
        let default = rule.default.as_ref().map(from_toml).transpose()?;
        let nullable = default.is_none() && origin.is_none_or(|column| column.nullable);
        let name: Arc<str> = Arc::from(rule.name.as_str());
        let column = Column { name: Arc::clone(&name), kind, nullable, native };
        let (kind, why) = conversion.map_or((None, Why::Asked), |(kind, why)| (Some(kind), why));
        Ok(One { column, made: Made { name, from, kind, why, default, on_error: rule.on_error } })
    }
}

fn is_integer(kind: Kind) -> bool {
    matches!(kind, Kind::Int16 | Kind::Int32 | Kind::Int64)
}

/// Whether a column of one type holds all values of another as they are. What a source has as text may be bytes too.
fn holds(kind: Kind, other: Kind) -> bool {
    match (kind, other) {
        (Kind::Decimal(None), Kind::Decimal(_)) | (Kind::Int32, Kind::Int16) => true,
        (Kind::Int64, other) if is_integer(other) => true,
        (Kind::Float64, Kind::Float32) | (Kind::Bytes, Kind::Text) => true,
        (Kind::Json | Kind::JsonBinary, Kind::Json | Kind::JsonBinary) => true,
        (kind, other) => kind == other,
    }
}

/// Where the values of a column come from.
fn from_of(rule: &ColumnRule) -> Result<From> {
    Ok(match (&rule.from, &rule.expression) {
        (Some(_), Some(_)) => return Err(Error::invalid("has both from and expression: write one of them")),
        (None, Some(text)) => {
            let compiled = Expression::compile(text);
            From::Expression(compiled.map_err(|reason| Error::invalid(format!("the expression is wrong: {reason}")))?)
        }
        (from, None) => {
            let paths = match from {
                None => vec![rule.name.clone()],
                Some(Paths::One(path)) => vec![path.clone()],
                Some(Paths::FirstOf(paths)) => paths.clone(),
            };
            From::Paths(paths.iter().map(|path| Path::new(path)).collect())
        }
    })
}

struct One {
    column: Column,
    made: Made,
}

/// The key of the target: its own, or the source's where its columns are taken over.
fn key_of(columns: &[Column], rules: &[ColumnRule], source: &Schema, target: Option<&Schema>) -> Vec<Arc<str>> {
    if let Some(target) = target.filter(|target| !target.key.is_empty()) {
        return target.key.clone();
    }
    let taken_over = |key: &Arc<str>| {
        let is_from = |rule: &&ColumnRule| match &rule.from {
            None => rule.expression.is_none() && rule.name == **key,
            Some(Paths::One(path)) => **path == **key,
            Some(Paths::FirstOf(paths)) => paths.as_slice() == [key.to_string()],
        };
        let rule = rules.iter().find(is_from)?;
        columns.iter().find(|column| *column.name == *rule.name).map(|column| Arc::clone(&column.name))
    };
    source.key.iter().map(taken_over).collect::<Option<Vec<_>>>().unwrap_or_default()
}

fn from_toml(value: &toml::Value) -> Result<Value> {
    Ok(match value {
        toml::Value::String(text) => Value::text(text.as_str()),
        toml::Value::Integer(number) => Value::Int(*number),
        toml::Value::Float(number) => Value::Float(*number),
        toml::Value::Boolean(value) => Value::Bool(*value),
        toml::Value::Datetime(at) => Value::text(at.to_string()),
        toml::Value::Array(values) => Value::Array(values.iter().map(from_toml).collect::<Result<_>>()?),
        toml::Value::Table(fields) => {
            let fields = fields.iter().map(|(name, value)| Ok((name.clone(), from_toml(value)?)));
            Value::Object(fields.collect::<Result<_>>()?)
        }
    })
}
