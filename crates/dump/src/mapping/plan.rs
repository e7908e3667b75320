//! Which mapping a job means: its rules, the columns of the target that exists, or what was seen of the source.

use std::sync::Arc;

use super::{Expression, From, Made, Mapping, Path};
use crate::error::{Error, Result};
use crate::job::{ColumnRule, Job, Nulls, OnError, Paths};
use crate::value::{Column, Kind, Schema, Value};

/// The column for what is left over, where a document becomes a row and nobody named one.
const REST: &str = "_rest";

/// The mapping of a job. `target` is what the target has, if it exists; `needs_columns` is whether it takes documents.
pub fn plan(job: &Job, source: &Schema, target: Option<&Schema>, needs_columns: bool) -> Result<Mapping> {
    let target = target.filter(|target| !target.columns.is_empty() && !target.is_open);
    if !job.columns.is_empty() {
        return of_rules(job, &job.columns, source, target);
    }
    if job.spread.is_some() || job.nulls == Nulls::Omit {
        if needs_columns {
            return Err(Error::invalid("spread and nulls = \"omit\" make documents: the target has columns"));
        }
        let schema = Schema { is_open: true, ..source.clone() };
        let (spread, nulls) = (job.spread.clone(), job.nulls);
        return Ok(Mapping { spread, nulls, is_identity: false, ..Mapping::identity(schema) });
    }
    if !needs_columns && job.rest.is_none() {
        return Ok(Mapping::identity(source.clone()));
    }
    if let Some(target) = target {
        return onto(job, source, target);
    }
    if !source.is_open && job.rest.is_none() && !has_text_to_read(source) {
        return Ok(Mapping::identity(source.clone()));
    }
    let (rules, rest) = inferred(source);
    let job = Job { rest: job.rest.clone().or(rest), ..job.clone() };
    of_rules(&job, &rules, source, None)
}

/// Whether columns of text were found to hold another type, as those of CSV files.
fn has_text_to_read(source: &Schema) -> bool {
    source.columns.iter().any(|column| column.native.as_deref() == Some(crate::infer::READ_FROM_TEXT))
}

/// The rules that a source suggests, and the column for what is left over.
pub fn inferred(source: &Schema) -> (Vec<ColumnRule>, Option<String>) {
    let rule = |column: &Column| ColumnRule {
        name: column.name.to_string(),
        from: None,
        expression: None,
        kind: Some(match column.kind {
            Kind::Decimal(Some((precision, scale))) => format!("decimal({precision},{scale})"),
            kind => kind.name().to_owned(),
        }),
        default: None,
        on_error: OnError::Reject,
    };
    let rest = source.is_open.then(|| REST.to_owned());
    (source.columns.iter().filter(|column| Some(&*column.name) != rest.as_deref()).map(rule).collect(), rest)
}

/// By name onto the columns of a table that exists.
fn onto(job: &Job, source: &Schema, target: &Schema) -> Result<Mapping> {
    let rest = job.rest.clone().or_else(|| (source.is_open && target.column(REST).is_some()).then(|| REST.to_owned()));
    let is_known = |column: &&Column| target.column(&column.name).is_some();
    if let (Some(lost), None) = (source.columns.iter().find(|column| !is_known(column)), &rest) {
        return Err(Error::invalid(format!(
            "the target has no column {:?}: map it with [[column]], or name a column of JSON for such fields with rest",
            lost.name
        )));
    }
    let is_same = !source.is_open && rest.is_none() && !has_text_to_read(source);
    if is_same {
        // A table that a copy has begun gets its key at the end.
        let key = if target.key.is_empty() { source.key.clone() } else { target.key.clone() };
        return Ok(Mapping::identity(Schema { key, ..source.clone() }));
    }
    let columns = source.columns.iter().filter(is_known).filter(|column| Some(&*column.name) != rest.as_deref());
    let rules: Vec<ColumnRule> = inferred(&Schema { columns: columns.cloned().collect(), ..source.clone() }).0;
    of_rules(&Job { rest, ..job.clone() }, &rules, source, Some(target))
}

fn of_rules(job: &Job, rules: &[ColumnRule], source: &Schema, target: Option<&Schema>) -> Result<Mapping> {
    let mut columns = Vec::new();
    let mut made = Vec::new();
    let mut used = Vec::new();
    for rule in rules {
        let known = target.and_then(|target| target.column(&rule.name));
        if let (Some(_), None) = (target, known) {
            return Err(Error::invalid(format!("the target has no column {:?}", rule.name)));
        }
        let one = make(rule, source, known).map_err(|error| error.within(format_args!("column {:?}", rule.name)))?;
        if let From::Paths(paths) = &one.made.from {
            let whole = paths.iter().map(Path::root).filter(|(_, is_whole)| *is_whole);
            used.extend(whole.map(|(root, _)| root.to_owned()));
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
        let (kind, default) = (None, None);
        made.push(Made { name: Arc::from(name.as_str()), from: From::Rest, kind, default, on_error: OnError::Reject });
    }
    let key = key_of(&columns, rules, source, target);
    for column in &mut columns {
        column.nullable &= !key.contains(&column.name);
    }
    let schema = Schema { columns, key, is_open: false };
    let identity = Mapping::identity(schema);
    Ok(Mapping { columns: made, rest, used, spread: None, nulls: job.nulls, is_identity: false, ..identity })
}

struct One {
    column: Column,
    made: Made,
}

fn make(rule: &ColumnRule, source: &Schema, known: Option<&Column>) -> Result<One> {
    let own = || vec![rule.name.clone()];
    let from = match (&rule.from, &rule.expression) {
        (Some(_), Some(_)) => return Err(Error::invalid("has both from and expression: write one of them")),
        (None, Some(text)) => {
            let compiled = Expression::compile(text);
            From::Expression(compiled.map_err(|reason| Error::invalid(format!("the expression is wrong: {reason}")))?)
        }
        (from, None) => {
            let paths = match from {
                None => own(),
                Some(Paths::One(path)) => vec![path.clone()],
                Some(Paths::FirstOf(paths)) => paths.clone(),
            };
            From::Paths(paths.iter().map(|path| Path::new(path)).collect())
        }
    };
    let said = match &rule.kind {
        None => None,
        Some(name) => Some(
            Kind::from_name(name).ok_or_else(|| Error::invalid(format!("{name:?} is no type: see docs/dump.md")))?,
        ),
    };
    let origin = match &from {
        From::Paths(paths) => paths.first().map(Path::root).filter(|(_, whole)| *whole),
        _ => None,
    };
    let origin = origin.and_then(|(root, _)| source.column(root));
    let kind = said.or(known.map(|column| column.kind)).or(origin.map(|column| column.kind)).unwrap_or(Kind::Json);
    let native = origin.filter(|_| said.is_none()).and_then(|column| column.native.clone());
    let default = rule.default.as_ref().map(from_toml).transpose()?;
    let nullable = default.is_none() && origin.is_none_or(|column| column.nullable);
    let name: Arc<str> = Arc::from(rule.name.as_str());
    let column = Column { name: Arc::clone(&name), kind, nullable, native };
    Ok(One { column, made: Made { name, from, kind: Some(kind), default, on_error: rule.on_error } })
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
