//! What an expression may be: known names and functions, patterns that compile, a bounded shape.
//!
//! A check also prepares the expression for its evaluation: every step of a loop asks for the name of its loop, which
//! is how the steps are counted, and `matches` names a pattern that was compiled once.

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, SourceInfo, operators},
};
use regex::{Regex, RegexBuilder};

use super::FilterError;
use crate::url::excerpt;

/// The variables of a filter.
const VARIABLES: [&str; 5] = ["current", "previous", "state", "action", "id"];
/// Names of types, as in `type(current.name) == string`.
const TYPES: [&str; 11] =
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint", "google"];
const GLOBAL_FUNCTIONS: [&str; 11] =
    ["size", "string", "int", "uint", "double", "bool", "bytes", "type", "dyn", "timestamp", "duration"];
const MEMBER_FUNCTIONS: [&str; 14] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "getFullYear",
    "getMonth",
    "getDayOfYear",
    "getDayOfMonth",
    "getDate",
    "getDayOfWeek",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
];

/// What `matches` becomes. No expression can say it: a name has no `@`.
pub(super) const MATCHES: &str = "@matches";
/// What the name of a loop starts with; its number follows.
const LOOP: &str = "@loop";

/// How deep calls, members and operators may be nested: evaluation is recursive.
const DEPTH_MAX: usize = 64;
/// How deep loops (`all`, `exists`, `map`…) may stand in each other, and how many there may be.
const LOOPS_NESTED_MAX: usize = 2;
const LOOPS_MAX: usize = 16;
/// How many signs of operators and members an expression may have: the parser is recursive too.
const SIGNS_MAX: usize = 1000;
/// How large a compiled pattern may be.
const PATTERN_BYTES_MAX: usize = 128 << 10;
const PATTERNS_MAX: usize = 16;

/// An expression that can be evaluated.
pub(super) struct Checked {
    pub expression: IdedExpr,
    pub patterns: Vec<Regex>,
}

/// What must hold before the parser may see the text.
pub(super) fn lexical(text: &str) -> Result<(), FilterError> {
    let mut signs = text.bytes().enumerate().filter(|(_, byte)| b"<>=+-*/%.[!?".contains(byte));
    match signs.nth(SIGNS_MAX) {
        Some((offset, _)) => Err(FilterError::at(text, offset, "the expression has too many operators")),
        None => Ok(()),
    }
}

pub(super) fn expression(mut expression: IdedExpr, places: &SourceInfo) -> Result<Checked, FilterError> {
    let mut check = Check { places, names: Vec::new(), patterns: Vec::new(), loops: 0 };
    check.visit(&mut expression, 0)?;
    if is_never_bool(&expression.expr) {
        return Err(check.refuse(&expression, "a filter must be true or false, this is neither"));
    }
    Ok(Checked { expression, patterns: check.patterns })
}

/// The number of the loop that a name stands for.
pub(super) fn loop_number(name: &str) -> Option<usize> {
    name.strip_prefix(LOOP)?.parse().ok()
}

/// The condition that every step of a loop goes through.
pub(super) fn loop_of(expression: &Expr) -> Option<usize> {
    match expression {
        Expr::Call(call) if call.func_name == operators::CONDITIONAL => match &call.args.first()?.expr {
            Expr::Ident(name) => loop_number(name),
            _ => None,
        },
        _ => None,
    }
}

struct Check<'p> {
    places: &'p SourceInfo,
    /// The names that the loops around give to their items.
    names: Vec<String>,
    patterns: Vec<Regex>,
    loops: usize,
}

impl Check<'_> {
    fn refuse(&self, at: &IdedExpr, reason: impl Into<String>) -> FilterError {
        let offset = self.places.offset_for(at.id).map_or(0, |(start, _)| start as usize);
        FilterError::at(&self.places.source, offset, reason)
    }

    fn visit(&mut self, at: &mut IdedExpr, depth: usize) -> Result<(), FilterError> {
        if depth > DEPTH_MAX {
            return Err(self.refuse(at, format!("nested too deep, at most {DEPTH_MAX} levels are allowed")));
        }
        self.check_names(at)?;
        self.bind_pattern(at)?;
        match &mut at.expr {
            Expr::Unspecified | Expr::Struct(_) => Err(self.refuse(at, "this is not an expression of a filter")),
            Expr::Literal(_) | Expr::Ident(_) => Ok(()),
            Expr::Select(select) => self.visit(&mut select.operand, depth + 1),
            Expr::List(list) => list.elements.iter_mut().try_for_each(|item| self.visit(item, depth + 1)),
            Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| match &mut entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.visit(&mut entry.key, depth + 1)?;
                    self.visit(&mut entry.value, depth + 1)
                }
                EntryExpr::StructField(field) => self.visit(&mut field.value, depth + 1),
            }),
            Expr::Call(call) => {
                let operands = call.target.as_deref_mut().into_iter().chain(&mut call.args);
                operands.into_iter().try_for_each(|operand| self.visit(operand, depth + 1))
            }
            Expr::Comprehension(_) => self.visit_loop(at, depth),
        }
    }

    fn check_names(&self, at: &IdedExpr) -> Result<(), FilterError> {
        match &at.expr {
            Expr::Ident(name) => {
                let name = name.strip_prefix('.').unwrap_or(name);
                let is_known = VARIABLES.contains(&name) || TYPES.contains(&name) || name.starts_with('@');
                if is_known || self.names.iter().any(|known| known == name) {
                    return Ok(());
                }
                let known = VARIABLES.join(", ");
                Err(self.refuse(at, format!("there is no {:?}; there are {known}", excerpt(name))))
            }
            Expr::Call(CallExpr { func_name, target, .. }) if func_name.starts_with(|c: char| c.is_alphabetic()) => {
                let (known, how) = match target {
                    Some(_) => (&MEMBER_FUNCTIONS[..], "on a value"),
                    None => (&GLOBAL_FUNCTIONS[..], "by itself"),
                };
                if func_name == "matches" || known.contains(&&**func_name) {
                    return Ok(());
                }
                Err(self.refuse(at, format!("no function {:?} can be called {how}", excerpt(func_name))))
            }
            _ => Ok(()),
        }
    }

    /// Compiles the pattern of a `matches`.
    fn bind_pattern(&mut self, at: &mut IdedExpr) -> Result<(), FilterError> {
        let place = at.clone_place();
        let Expr::Call(call) = &mut at.expr else { return Ok(()) };
        if call.func_name != "matches" {
            return Ok(());
        }
        let mut operands: Vec<_> = call.target.take().map(|target| *target).into_iter().collect();
        operands.append(&mut call.args);
        let Ok([text, pattern]) = <[IdedExpr; 2]>::try_from(operands) else {
            return Err(self.refuse(&place, "matches takes a text and a pattern"));
        };
        let Expr::Literal(LiteralValue::String(source)) = &pattern.expr else {
            return Err(self.refuse(&pattern, "the pattern of matches must be a text in quotes"));
        };
        if self.patterns.len() == PATTERNS_MAX {
            return Err(self.refuse(&pattern, format!("too many patterns, at most {PATTERNS_MAX} are allowed")));
        }
        let compiled = RegexBuilder::new(source.inner()).size_limit(PATTERN_BYTES_MAX).build();
        let compiled = compiled.map_err(|error| self.refuse(&pattern, explain_pattern(&error)))?;
        let number = Expr::Literal(LiteralValue::Int((self.patterns.len() as i64).into()));
        self.patterns.push(compiled);
        let number = IdedExpr { id: pattern.id, expr: number };
        *call = CallExpr { func_name: MATCHES.to_owned(), target: None, args: vec![text, number] };
        Ok(())
    }

    fn visit_loop(&mut self, at: &mut IdedExpr, depth: usize) -> Result<(), FilterError> {
        if self.names.len() == LOOPS_NESTED_MAX {
            let reason = format!("loops are nested too deep, at most {LOOPS_NESTED_MAX} may stand in each other");
            return Err(self.refuse(at, reason));
        }
        if self.loops == LOOPS_MAX {
            return Err(self.refuse(at, format!("too many loops, at most {LOOPS_MAX} are allowed")));
        }
        let number = self.loops;
        self.loops += 1;
        let place = at.clone_place();
        let Expr::Comprehension(comprehension) = &mut at.expr else { return Ok(()) };
        self.visit(&mut comprehension.iter_range, depth + 1)?;
        self.names.push(comprehension.iter_var.clone());
        for part in [&mut comprehension.accu_init, &mut comprehension.loop_cond, &mut comprehension.loop_step] {
            self.visit(part, depth + 1)?;
        }
        self.names.pop();
        match counted_part(comprehension) {
            Some(part) => {
                count(part, number);
                Ok(())
            }
            None => Err(self.refuse(&place, "this loop is not known")),
        }
    }
}

/// A node that only says where it stands.
trait ClonePlace {
    fn clone_place(&self) -> IdedExpr;
}

impl ClonePlace for IdedExpr {
    fn clone_place(&self) -> IdedExpr {
        IdedExpr { id: self.id, expr: Expr::Unspecified }
    }
}

/// A part of the loop that every step evaluates, in a place that leaves the shape by which the library knows `map` and
/// `filter`: it builds their lists in place.
fn counted_part(comprehension: &mut ComprehensionExpr) -> Option<&mut IdedExpr> {
    if !matches!(comprehension.loop_cond.expr, Expr::Literal(_)) {
        return Some(&mut comprehension.loop_cond);
    }
    let Expr::Call(step) = &mut comprehension.loop_step.expr else { return None };
    match step.func_name.as_str() {
        operators::CONDITIONAL => step.args.first_mut(),
        operators::ADD => match &mut step.args.get_mut(1)?.expr {
            Expr::List(ListExpr { elements, .. }) => elements.first_mut(),
            _ => None,
        },
        _ => None,
    }
}

/// Makes `part` ask for the name of its loop first: `@loop0 ? part : false`.
fn count(part: &mut IdedExpr, number: usize) {
    let id = part.id;
    let node = |expr| IdedExpr { id, expr };
    let name = node(Expr::Ident(format!("{LOOP}{number}")));
    let otherwise = node(Expr::Literal(LiteralValue::Boolean(false.into())));
    let counted = std::mem::take(part);
    let args = vec![name, counted, otherwise];
    *part = node(Expr::Call(CallExpr { func_name: operators::CONDITIONAL.to_owned(), target: None, args }));
}

fn explain_pattern(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => "the pattern is too large when it is compiled".to_owned(),
        // The last line is the reason; those before it show the place within the pattern.
        error => {
            let message = error.to_string();
            let reason = message.lines().last().unwrap_or_default();
            format!("the pattern cannot be read: {}", reason.strip_prefix("error: ").unwrap_or(reason))
        }
    }
}

/// Whether the value can be seen to be no bool, whatever the document is.
fn is_never_bool(expression: &Expr) -> bool {
    match expression {
        Expr::Literal(literal) => !matches!(literal, LiteralValue::Boolean(_)),
        Expr::List(_) | Expr::Map(_) => true,
        Expr::Comprehension(comprehension) => matches!(comprehension.accu_init.expr, Expr::List(_)),
        Expr::Call(call) => {
            let arithmetic = ["_+_", "_-_", "_*_", "_/_", "_%_", "-_"];
            let conversions = ["size", "string", "int", "uint", "double", "bytes", "type", "timestamp", "duration"];
            let name = &*call.func_name;
            arithmetic.contains(&name) || conversions.contains(&name) || name.starts_with("get")
        }
        _ => false,
    }
}
