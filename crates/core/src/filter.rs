//! Filters of outlets: an expression in CEL that says of a change whether the outlet is told.
//!
//! An expression sees `current` (the document, null after a delete), `previous` or `state` (the document before this
//! change, null if there was none or it is not kept any more), `action` and `id`. It is compiled once; equal texts
//! share one program.
//!
//! What a stranger writes must not hold up a node. The library has no limit of its own, so [`check`] bounds the shape
//! of an expression, and [`cost`] counts what one evaluation does, in time and memory, before it does it. The count
//! depends on the expression and the documents only: whether a change matches never depends on how busy the machine is.

mod check;
mod cost;
mod interned;
mod subject;

use std::{
    fmt,
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, LazyLock},
};

use cel::{
    Context, Env, ExecutionError, IdedExpr, ParseErrors, Value,
    common::types::CelBool,
    common::value::{CowVal, Val},
    context::VariableResolver,
    parser::Parser,
};
use regex::Regex;

use self::{
    check::{Checked, MATCHES},
    cost::{Fuel, Plan},
    subject::Measure,
};
pub use self::{cost::COST_MAX, subject::Subject};
use crate::url::excerpt;

/// The longest expression.
pub const FILTER_BYTES_MAX: usize = 4096;

/// An expression that costs at most this for usual documents is not weighed again for each of them.
const USUAL_COST_MAX: u64 = 1024;

/// How deep brackets may be nested.
const BRACKETS_DEPTH_MAX: u16 = 24;

/// Whether an outlet is told of a change. Clones and equal texts share one program.
#[derive(Clone)]
pub struct Filter(Arc<Program>);

struct Program {
    text: Box<str>,
    expression: IdedExpr,
    patterns: Arc<[Regex]>,
    /// What it costs at most for documents up to [`Measure::USUAL`], if it has no loops.
    usual_cost: Option<u64>,
}

impl Filter {
    /// Compiles an expression, or says where and why it cannot be one.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.len() > FILTER_BYTES_MAX {
            return Err(FilterError::TooLong { bytes: text.len() });
        }
        interned::get_or_compile(text, || compile(text)).map(Self)
    }

    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Whether others have the same filter.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Whether the change matches. It costs `cost_max` units at most (at most [`COST_MAX`] make sense).
    pub fn evaluate(&self, subject: &Subject, cost_max: u64) -> Result<bool, EvaluationError> {
        let Plan { cost, steps } = self.0.plan(subject.measure());
        let fuel = Fuel::new(cost_max, steps);
        if !fuel.spend(cost) {
            return Err(EvaluationError::TooCostly);
        }
        let variables = Variables { subject, fuel: &fuel };
        // A mistake in the library must not take the node down with it.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.0.run(&variables)));
        if fuel.is_spent() {
            // Whatever came of it: a part was left out.
            return Err(EvaluationError::TooCostly);
        }
        outcome.unwrap_or_else(|_| Err(EvaluationError::Failed("the expression could not be evaluated".to_owned())))
    }
}

impl Program {
    fn plan(&self, measure: Measure) -> Plan {
        match self.usual_cost {
            Some(cost) if measure.is_usual() => Plan { cost, steps: Vec::new() },
            _ => cost::plan(&self.expression, measure),
        }
    }

    fn run(&self, variables: &Variables<'_>) -> Result<bool, EvaluationError> {
        static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));
        let mut context = Context::with_env(ENVIRONMENT.clone());
        context.set_variable_resolver(variables);
        if !self.patterns.is_empty() {
            let patterns = self.patterns.clone();
            let matches = move |text: Value, pattern: i64| is_match(&patterns, &text, pattern);
            context.add_function(MATCHES, matches).map_err(|error| EvaluationError::Failed(error.to_string()))?;
        }
        let value = Value::resolve_val(&self.expression, &context).map_err(|error| explain(&error))?;
        match value.downcast_ref::<CelBool>() {
            Some(matches) => Ok(*matches.inner()),
            None => Err(EvaluationError::NotBool(value.get_type().name().to_owned())),
        }
    }
}

/// `matches`: the patterns were compiled with the expression, which names them by number.
fn is_match(patterns: &[Regex], text: &Value, pattern: i64) -> Result<bool, ExecutionError> {
    let pattern = usize::try_from(pattern).ok().and_then(|pattern| patterns.get(pattern));
    match (text, pattern) {
        (Value::String(text), Some(pattern)) => Ok(pattern.is_match(text)),
        _ => Err(ExecutionError::no_such_member_overload(
            "matches",
            vec![text.type_of().to_string(), "string".to_owned()],
        )),
    }
}

fn compile(text: &str) -> Result<Program, FilterError> {
    check::lexical(text)?;
    let parser = Parser::new().max_recursion_depth(BRACKETS_DEPTH_MAX).error_recovery_limit(1);
    // A mistake in the parser must not take the caller down with it.
    let parsed = catch_unwind(AssertUnwindSafe(|| parser.parse_with_source_info(text)))
        .map_err(|_| FilterError::at(text, 0, "this is not an expression"))?;
    let (expression, places) = parsed.map_err(|errors| first_error(&errors))?;
    let Checked { expression, patterns } = check::expression(expression, &places)?;
    let usual = cost::plan(&expression, Measure::USUAL);
    let usual_cost = (usual.steps.is_empty() && usual.cost <= USUAL_COST_MAX).then_some(usual.cost);
    Ok(Program { text: text.into(), expression, patterns: patterns.into(), usual_cost })
}

/// The first mistake: those behind it often follow from it.
fn first_error(errors: &ParseErrors) -> FilterError {
    let first = errors.errors.first();
    let (line, column) = first.map_or((1, 1), |error| error.pos);
    let reason = match first.map_or("this is not an expression", |error| error.msg.as_str()) {
        message if message.contains("Recursion limit") => {
            format!("brackets are nested too deep, at most {BRACKETS_DEPTH_MAX} levels are allowed")
        }
        message if message.contains("input '<EOF>'") => "the expression ends too early".to_owned(),
        message => {
            // The list of everything that could stand there helps nobody.
            let message = message.split_once(" expecting ").map_or(message, |(found, _)| found);
            excerpt(message.strip_prefix("Syntax error: ").unwrap_or(message))
        }
    };
    FilterError::Wrong { line: line.max(1) as usize, column: column.max(1) as usize, reason }
}

fn explain(error: &ExecutionError) -> EvaluationError {
    // The messages of the library print whole values.
    let reason = match error {
        ExecutionError::NoSuchKey(name) => format!("there is no member {:?}", excerpt(name)),
        ExecutionError::UnsupportedBinaryOperator(operator, left, right)
        | ExecutionError::Overflow(operator, left, right) => {
            format!("{operator} fails for {} and {}", left.type_of(), right.type_of())
        }
        ExecutionError::ValuesNotComparable(left, right) => {
            format!("{} cannot be compared with {}", left.type_of(), right.type_of())
        }
        ExecutionError::UnsupportedIndex(index, value) => {
            format!("{} is no index of {}", index.type_of(), value.type_of())
        }
        ExecutionError::NoSuchOverload(_)
        | ExecutionError::UndeclaredReference(_)
        | ExecutionError::IndexOutOfBounds(_)
        | ExecutionError::InvalidArgumentCount { .. } => excerpt(&error.to_string()),
        ExecutionError::FunctionError { function, message } => excerpt(&format!("{function}: {message}")),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "division by zero".to_owned(),
        ExecutionError::UnexpectedType { want, .. } => format!("a value is not {want}"),
        _ => "a value has the wrong type".to_owned(),
    };
    EvaluationError::Failed(reason)
}

/// Lends the documents to the evaluation, and counts the steps of its loops.
struct Variables<'s> {
    subject: &'s Subject,
    fuel: &'s Fuel,
}

impl VariableResolver for Variables<'_> {
    fn resolve<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'b>> {
        if let Some(number) = check::loop_number(name) {
            // Without fuel the name is unknown, which ends the loop with an error.
            return self.fuel.spend_step(number).then(|| CowVal::Borrowed(&CelBool::TRUE as &dyn Val));
        }
        self.subject.variable(name).map(CowVal::Borrowed)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Filter").field(&self.as_str()).finish()
    }
}

/// Equal texts share a program while it is in use, so that comparing programs is enough.
impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Filter {}

impl Hash for Filter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// Why a text is not a filter.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FilterError {
    #[error("the expression has {bytes} bytes, at most {FILTER_BYTES_MAX} are allowed")]
    TooLong { bytes: usize },
    #[error("{line}:{column}: {reason}")]
    Wrong { line: usize, column: usize, reason: String },
}

impl FilterError {
    /// Counts lines and columns, both from 1, up to a byte of the text.
    fn at(text: &str, offset: usize, reason: impl Into<String>) -> Self {
        let before = &text.as_bytes()[..offset.min(text.len())];
        let before = String::from_utf8_lossy(before);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        Self::Wrong { line, column, reason: reason.into() }
    }
}

/// Why an expression has no answer for a change. It counts as no match.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EvaluationError {
    #[error("{0}")]
    Failed(String),
    #[error("the expression gives {0}, it must give bool")]
    NotBool(String),
    #[error("the expression is too costly for a document of this size")]
    TooCostly,
}

#[cfg(test)]
mod tests;
