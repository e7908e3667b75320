//! Columns that are computed: CEL over `row`.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::objects::Key;
use cel::{Context, Env, Program};

use crate::convert;
use crate::json;
use crate::row::{Names, Row};
use crate::value::Value;

/// A compiled expression.
pub(super) struct Expression {
    text: String,
    program: Program,
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Expression {
    pub fn compile(text: &str) -> Result<Self, String> {
        // A mistake in the parser must not take the copy down with it.
        let compiled = catch_unwind(AssertUnwindSafe(|| Program::compile(text)));
        match compiled {
            Ok(Ok(program)) => Ok(Self { text: text.to_owned(), program }),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it is not an expression".to_owned()),
        }
    }

    /// The value for a row.
    pub fn evaluate(&self, row: &Row, names: &Names) -> Result<Value, String> {
        static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));
        let fields = row.fields(names).map(|(name, value)| (name.to_owned(), to_cel(value)));
        let fields: HashMap<String, cel::Value> = fields.collect();
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        context.add_variable_from_value("row", fields);
        match catch_unwind(AssertUnwindSafe(|| self.program.execute(&context))) {
            Ok(Ok(value)) => from_cel(&value),
            Ok(Err(error)) => Err(format!("{} failed: {error}", self.text)),
            Err(_) => Err(format!("{} could not be evaluated", self.text)),
        }
    }
}

/// What CEL has no type for is text to it.
fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Missing | Value::Null => cel::Value::Null,
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::Int(number) => cel::Value::Int(*number),
        Value::Float(number) => cel::Value::Float(*number),
        Value::Bytes(bytes) => cel::Value::Bytes(Arc::new(bytes.clone())),
        Value::Array(values) => cel::Value::List(Arc::new(values.iter().map(to_cel).collect())),
        Value::Object(fields) => {
            let fields: HashMap<String, cel::Value> =
                fields.iter().map(|(name, value)| (name.clone(), to_cel(value))).collect();
            fields.into()
        }
        Value::Json(text) => match json::parse(text.as_bytes()) {
            Ok(value) => to_cel(&value),
            Err(_) => cel::Value::String(Arc::new(text.to_string())),
        },
        Value::Instant(at) => match jiff_to_cel(*at) {
            Some(value) => value,
            None => cel::Value::String(Arc::new(at.to_string())),
        },
        other => cel::Value::String(Arc::new(convert::text(other))),
    }
}

fn jiff_to_cel(at: jiff::Timestamp) -> Option<cel::Value> {
    let program = Program::compile(&format!("timestamp('{at}')")).ok()?;
    program.execute(&Context::default()).ok()
}

fn from_cel(value: &cel::Value) -> Result<Value, String> {
    Ok(match value {
        cel::Value::Null => Value::Null,
        cel::Value::Bool(value) => Value::Bool(*value),
        cel::Value::Int(number) => Value::Int(*number),
        cel::Value::UInt(number) => match i64::try_from(*number) {
            Ok(number) => Value::Int(number),
            Err(_) => convert::convert(Value::text(number.to_string()), crate::value::Kind::Decimal(None))?,
        },
        cel::Value::Float(number) => Value::Float(*number),
        cel::Value::String(text) => Value::Text(text.to_string()),
        cel::Value::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
        cel::Value::List(values) => Value::Array(values.iter().map(from_cel).collect::<Result<_, _>>()?),
        cel::Value::Map(map) => {
            let mut fields = Vec::new();
            for (key, value) in map.map.iter() {
                let Key::String(name) = key else { return Err("a map has a key that is no string".to_owned()) };
                fields.push((name.to_string(), from_cel(value)?));
            }
            // The library keeps no order: one that is the same each time makes equal rows equal.
            fields.sort_by(|a: &(String, Value), b| a.0.cmp(&b.0));
            Value::Object(fields)
        }
        cel::Value::Timestamp(at) => {
            Value::Instant(at.to_rfc3339().parse().map_err(|_| "a timestamp is out of range".to_owned())?)
        }
        other => return Err(format!("the expression gives a {}, which is no value of a column", other.type_of())),
    })
}
