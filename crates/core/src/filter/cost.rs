//! What an evaluation costs at most, in units of about one operation or [`UNIT_BYTES`] looked at or copied.
//!
//! The part outside of loops is known before it starts. A loop is charged step by step: how often it runs is not known
//! before, but what one step costs at most is. Sizes of values are bounds: a member of a document is taken to be as
//! large as the document, an item of a list as large as the largest item that there is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators},
};

use super::{
    check::{self, MATCHES},
    subject::Measure,
};

/// The most that one evaluation may cost: some tens of milliseconds, and at most `UNIT_BYTES` of memory for each unit.
pub const COST_MAX: u64 = 1 << 18;

/// The bytes that can be looked at or copied for one unit.
const UNIT_BYTES: u64 = 512;
/// Bytes that a pattern can be matched against for one unit: its worst case is linear, but with a large factor.
const PATTERN_UNIT_BYTES: u64 = 2;
/// What a value takes besides what is in it.
const VALUE_BYTES: u64 = 16;

/// The cost of everything outside of loops, and of one step of each loop, by its number.
pub(super) struct Plan {
    pub cost: u64,
    pub steps: Vec<u64>,
}

pub(super) fn plan(expression: &IdedExpr, measure: Measure) -> Plan {
    let mut planner = Planner { measure, items: Vec::new(), steps: Vec::new() };
    let cost = planner.bound(expression).cost;
    Plan { cost, steps: planner.steps }
}

/// What is left to be spent.
pub(super) struct Fuel {
    left: AtomicU64,
    spent: AtomicBool,
    steps: Vec<u64>,
}

impl Fuel {
    pub fn new(max: u64, steps: Vec<u64>) -> Self {
        Self { left: AtomicU64::new(max), spent: AtomicBool::new(false), steps }
    }

    /// False, from then on for ever, if there is not enough.
    pub fn spend(&self, cost: u64) -> bool {
        let take = |left: u64| left.checked_sub(cost);
        let is_enough = !self.is_spent() && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if !is_enough {
            self.spent.store(true, Ordering::Relaxed);
        }
        is_enough
    }

    pub fn spend_step(&self, number: usize) -> bool {
        self.spend(self.steps.get(number).copied().unwrap_or(u64::MAX))
    }

    pub fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }
}

/// What is known of a value before it is there.
#[derive(Clone, Copy)]
struct Bound {
    /// Units to make it.
    cost: u64,
    /// Bytes that it takes.
    bytes: u64,
    /// Bytes of its largest item.
    element: u64,
    /// Bytes of the longest text in it.
    text: u64,
}

impl Bound {
    /// A number, a bool, a time.
    fn small(cost: u64) -> Self {
        Self { cost, bytes: VALUE_BYTES, element: VALUE_BYTES, text: 0 }
    }

    fn text(cost: u64, text: u64) -> Self {
        Self { cost, bytes: VALUE_BYTES + text, element: VALUE_BYTES, text }
    }

    /// One of the two.
    fn either(self, other: Self) -> Self {
        Self {
            cost: self.cost.saturating_add(other.cost),
            bytes: self.bytes.max(other.bytes),
            element: self.element.max(other.element),
            text: self.text.max(other.text),
        }
    }

    /// Both together, as `+` makes it and as parts of one list.
    fn joined(self, other: Self) -> Self {
        Self {
            cost: self.cost.saturating_add(other.cost),
            bytes: self.bytes.saturating_add(other.bytes),
            element: self.element.max(other.element),
            text: self.text.saturating_add(other.text),
        }
    }

    fn charge(self, units: u64) -> Self {
        Self { cost: self.cost.saturating_add(units), ..self }
    }
}

fn units(bytes: u64) -> u64 {
    bytes / UNIT_BYTES
}

struct Planner {
    measure: Measure,
    /// The items of the loops around, by name.
    items: Vec<(String, Bound)>,
    steps: Vec<u64>,
}

impl Planner {
    fn bound(&mut self, at: &IdedExpr) -> Bound {
        match &at.expr {
            Expr::Literal(LiteralValue::String(text)) => Bound::text(1, text.inner().len() as u64),
            Expr::Literal(LiteralValue::Bytes(bytes)) => Bound::text(1, bytes.inner().len() as u64),
            Expr::Literal(_) | Expr::Unspecified | Expr::Struct(_) => Bound::small(1),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.bound(&select.operand).charge(1),
            Expr::List(list) => self.collection(&list.elements),
            Expr::Map(map) => {
                let start = Bound::small(1);
                map.entries.iter().fold(start, |sum, entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => {
                        let (key, value) = (self.bound(&entry.key), self.bound(&entry.value));
                        add_item(add_item(sum, key), value)
                    }
                    EntryExpr::StructField(field) => add_item(sum, self.bound(&field.value)),
                })
            }
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn variable(&self, name: &str) -> Bound {
        if let Some((_, item)) = self.items.iter().rev().find(|(known, _)| known == name) {
            return *item;
        }
        let Measure { document, element, text } = self.measure;
        match name.strip_prefix('.').unwrap_or(name) {
            "current" | "previous" | "state" => Bound { cost: 1, bytes: document, element, text },
            "id" | "action" => Bound::text(1, text),
            _ => Bound::small(1),
        }
    }

    fn collection(&mut self, items: &[IdedExpr]) -> Bound {
        items.iter().fold(Bound::small(1), |sum, item| add_item(sum, self.bound(item)))
    }

    fn call(&mut self, call: &CallExpr) -> Bound {
        let operands: Vec<Bound> =
            call.target.as_deref().into_iter().chain(&call.args).map(|at| self.bound(at)).collect();
        let all = operands.iter().fold(Bound { bytes: 0, text: 0, ..Bound::small(1) }, |all, one| all.joined(*one));
        let [first, second] = match operands.as_slice() {
            [first, second, ..] => [*first, *second],
            [only] => [*only, *only],
            [] => [all, all],
        };
        match call.func_name.as_str() {
            operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE => {
                Bound::small(all.cost)
            }
            operators::CONDITIONAL => match operands.as_slice() {
                [_, yes, no] => Bound { cost: all.cost, ..yes.either(*no) },
                _ => all,
            },
            // Comparing ends with the smaller one.
            operators::EQUALS | operators::NOT_EQUALS => {
                Bound::small(all.cost).charge(2 * units(first.bytes.min(second.bytes)))
            }
            operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS => {
                Bound::small(all.cost).charge(units(all.text))
            }
            operators::IN => Bound::small(all.cost).charge(4 * units(second.bytes)),
            operators::INDEX => first.either(Bound::small(0)).charge(1 + second.cost + units(first.bytes)),
            // What does not fit is copied into the error.
            operators::ADD
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::NEGATE => all.charge(units(all.bytes)),
            "size" | "contains" | "startsWith" | "endsWith" => Bound::small(all.cost).charge(units(all.text)),
            MATCHES => Bound::small(all.cost).charge(units(first.bytes) + first.text / PATTERN_UNIT_BYTES),
            "string" | "bytes" => Bound::text(all.cost, first.text.max(64)).charge(units(all.text)),
            "dyn" => all,
            // The others read a short text, or make a small value.
            _ => Bound::small(all.cost).charge(units(all.text)),
        }
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Bound {
        let range = self.bound(&comprehension.iter_range);
        let start = self.bound(&comprehension.accu_init);
        let text = range.text.min(range.element);
        let item = Bound { cost: 1, bytes: range.element, element: range.element, text };
        self.items.push((comprehension.iter_var.clone(), item));
        let condition = self.bound(&comprehension.loop_cond);
        let step = self.bound(&comprehension.loop_step);
        self.items.pop();
        // The item is copied for each step.
        let cost_of_step = 2 + condition.cost.saturating_add(step.cost).saturating_add(units(item.bytes));
        if let Some(number) = number_of(comprehension) {
            if self.steps.len() <= number {
                self.steps.resize(number + 1, u64::MAX);
            }
            self.steps[number] = cost_of_step;
        }
        let cost = range.cost.saturating_add(start.cost).saturating_add(1);
        if !matches!(comprehension.accu_init.expr, Expr::List(_)) {
            return Bound::small(cost);
        }
        if keeps_items(comprehension) {
            return Bound { cost, ..range };
        }
        let items = range.bytes / VALUE_BYTES + 1;
        Bound { cost, bytes: items.saturating_mul(step.bytes), element: step.bytes, text: step.text }
    }
}

/// The list or map with one thing more, which is copied into it.
fn add_item(sum: Bound, item: Bound) -> Bound {
    let bytes = item.bytes.saturating_add(VALUE_BYTES);
    Bound {
        cost: sum.cost.saturating_add(item.cost),
        bytes: sum.bytes.saturating_add(bytes),
        element: sum.element.max(bytes),
        text: sum.text.max(item.text),
    }
    .charge(units(bytes))
}

/// The number of a loop stands in whichever of its parts is counted.
fn number_of(comprehension: &ComprehensionExpr) -> Option<usize> {
    let step = &comprehension.loop_step.expr;
    let first_of_step = || match step {
        Expr::Call(call) => match call.func_name.as_str() {
            operators::CONDITIONAL => check::loop_of(&call.args.first()?.expr),
            operators::ADD => match &call.args.get(1)?.expr {
                Expr::List(list) => check::loop_of(&list.elements.first()?.expr),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    check::loop_of(&comprehension.loop_cond.expr).or_else(first_of_step)
}

/// Whether it is a `filter`: then its list is no larger than the one that it goes through.
fn keeps_items(comprehension: &ComprehensionExpr) -> bool {
    let Expr::Call(choice) = &comprehension.loop_step.expr else { return false };
    let Some(Expr::Call(addition)) = choice.args.get(1).map(|kept| &kept.expr) else { return false };
    let Some(Expr::List(list)) = addition.args.get(1).map(|added| &added.expr) else { return false };
    let is_item = |at: &IdedExpr| matches!(&at.expr, Expr::Ident(name) if *name == comprehension.iter_var);
    choice.func_name == operators::CONDITIONAL && list.elements.len() == 1 && list.elements.iter().all(is_item)
}
