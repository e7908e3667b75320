use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::document::Action;

const ID: &str = "http://api.test/users/42";

fn subject(current: &Json, previous: &Json) -> Subject {
    let bytes = |json: &Json| (!json.is_null()).then(|| json.to_string().into_bytes());
    let action = match (current.is_null(), previous.is_null()) {
        (true, _) => Action::Delete,
        (false, true) => Action::Create,
        (false, false) => Action::Update,
    };
    Subject::new(ID, action, bytes(current).as_deref(), bytes(previous).as_deref())
}

fn evaluate(text: &str, current: &Json, previous: &Json) -> Result<bool, EvaluationError> {
    Filter::parse(text)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .evaluate(&subject(current, previous), COST_MAX)
}

#[test]
fn an_expression_sees_the_document_before_and_after_the_change() {
    let current = json!({
        "name": "sample", "quantity": 3, "price": 2.5, "tags": ["a", "b"], "meta": { "at": "2026-11-16T08:00:00Z" },
        "items": [{ "sku": "x1", "count": 2 }, { "sku": "y2", "count": 0 }],
        "none": null, "big": 18446744073709551615u64,
    });
    let previous = json!({ "quantity": 2 });
    let check = |text: &str, expected: bool| assert_eq!(evaluate(text, &current, &previous), Ok(expected), "{text}");
    check("current.quantity != previous.quantity && current.name == 'sample'", true);
    check("current.quantity == state.quantity + 1", true);
    check("action == 'update' && id == 'http://api.test/users/42'", true);
    check("id.startsWith('http://api.test/users/') && id.endsWith('42')", true);
    check("current.name.contains('amp') && size(current.name) == 6 && current.tags.size() == 2", true);
    check("current.name.matches('^s[a-z]+e$') && !matches(current.name, '[0-9]')", true);
    check("'a' in current.tags && !('c' in current.tags) && 'name' in current", true);
    check("has(current.meta.at) && !has(current.meta.until)", true);
    check("current.items.exists(item, item.count > 1) && !current.items.all(item, item.count > 1)", true);
    check("current.items.exists_one(item, item.sku.startsWith('x'))", true);
    check("current.items.filter(item, item.count == 0).size() == 1", true);
    check("current.items.map(item, item.sku) == ['x1', 'y2']", true);
    check("current.items.map(item, item.count > 1, item.sku) == ['x1']", true);
    check("current.meta.exists(name, name == 'at')", true);
    check("timestamp(current.meta.at) > timestamp('2026-11-16T07:00:00Z')", true);
    check("timestamp(current.meta.at) - timestamp('2026-11-16T07:00:00Z') == duration('1h')", true);
    check("timestamp(current.meta.at).getFullYear() == 2026", true);
    check("current.none == null && current.quantity == 3.0 && current.price < 3", true);
    check("type(current.quantity) == int && type(current.price) == double && type(current.big) == double", true);
    check("current.missing == 1 || current.quantity == 3", true);
    check("(current.quantity > 5 ? 'many' : 'few') == 'few'", true);
    check("false", false);
    assert_eq!(evaluate("previous == null && action == 'create'", &current, &Json::Null), Ok(true));
    assert_eq!(evaluate("current == null && action == 'delete'", &Json::Null, &previous), Ok(true));
}

#[test]
fn what_does_not_fit_a_document_is_said() {
    let check = |text: &str, expected: &str| {
        let current = json!({ "name": "x", "list": [1], "number": 1 });
        let error = evaluate(text, &current, &Json::Null).expect_err(text);
        assert_eq!(error.to_string(), expected, "{text}");
    };
    check("current.missing == 1", "there is no member \"missing\"");
    check("current.name > 1", "found no matching overload for '_>_' applied to '(string, int)'");
    check("current.number + 1.5 > 1.0", "add fails for int and float");
    check("current.name.missing.deeper == 1", "found no matching overload for '_._' applied to '(string, string)'");
    check("previous.name == 'x'", "found no matching overload for '_._' applied to '(null_type, string)'");
    check("current.number.matches('x')", "found no matching overload for 'matches' applied to 'int.(string)'");
    check("current.name", "the expression gives string, it must give bool");
    check("current.list[3] == 1", "Index out of bounds: Int(3)");
    check("current.number / 0 == 1", "division by zero");
    check("timestamp(current.number + 9000000000000000000) > timestamp(0)", "timestamp: timestamp out of range");
}

#[test]
fn a_text_that_is_no_filter_is_refused_with_the_place() {
    let check = |text: &str, expected: &str| {
        let error = Filter::parse(text).expect_err(text);
        assert!(error.to_string().starts_with(expected), "{text}: {error}");
    };
    check("", "1:1: ");
    check("current.a ==", "1:13: the expression ends too early");
    check(
        "current.a == 1 &&\n  curent.b == 2",
        "2:3: there is no \"curent\"; there are current, previous, state, action, id",
    );
    check("'é' == current.a && x", "1:21: there is no \"x\"");
    check("current.a.upper() == 'A'", "1:16: no function \"upper\" can be called on a value");
    check("contains('a', 'b')", "1:9: no function \"contains\" can be called by itself");
    check("current.a.matches(current.b)", "1:26: the pattern of matches must be a text in quotes");
    check("current.a.matches('(')", "1:19: the pattern cannot be read: unclosed group");
    check("current.a.matches('\\\\w{1000}{100}')", "1:19: the pattern is too large");
    check("current.a.matches()", "1:18: matches takes a text and a pattern");
    check("current.a + 1", "1:11: a filter must be true or false");
    check("'text'", "1:1: a filter must be true or false");
    check("current.a.map(x, x)", "1:14: a filter must be true or false");
    check("current.all(a, a.all(b, b.all(c, c)))", "1:30: loops are nested too deep, at most 2");
    check("current.a == 1 and true", "1:");
    check(&format!("{}true{}", "(".repeat(40), ")".repeat(40)), "1:26: brackets are nested too deep");
    check(&format!("current{} == 1", "[0]".repeat(100)), "1:");
    check(&format!("1{} == 1", "+1".repeat(1500)), "1:2002: the expression has too many operators");
    check("Message{a: 1}", "1:8: this is not an expression of a filter");
    check("current.?a == 1", "1:");
    check("@loop0", "1:1: ");
    assert_eq!(Filter::parse(&" ".repeat(5000)), Err(FilterError::TooLong { bytes: 5000 }));
}

#[test]
fn equal_texts_share_one_program() {
    let (one, two) = (Filter::parse("current.shared == 1").unwrap(), Filter::parse("current.shared == 1").unwrap());
    assert_eq!(one, two);
    assert_ne!(one, Filter::parse("current.shared == 2").unwrap());
    assert_eq!(format!("{one:?}"), r#"Filter("current.shared == 1")"#);
}

#[test]
fn a_hostile_expression_is_cut_short() {
    let numbers: Vec<_> = (0..3000).collect();
    let texts: Vec<_> = (0..200).map(|n| format!("{n:01000}")).collect();
    let large = json!({ "numbers": numbers, "texts": texts, "text": "x".repeat(500_000) });
    let check = |text: &str| assert_eq!(evaluate(text, &large, &large), Err(EvaluationError::TooCostly), "{text}");
    check("current.numbers.all(a, current.numbers.all(b, a + b >= 0))");
    check("current.numbers.map(a, current.text).size() > 0");
    check("current.numbers.map(a, current.numbers.map(b, b)).size() > 0");
    check("current.numbers.all(a, current.text.contains('y') || true)");
    check("current.numbers.all(a, current == previous)");
    check("current.numbers.exists(a, current.text.matches('(x+x+)+y'))");
    let doubled = (0..20).fold("[current.text]".to_owned(), |list, _| format!("{list}.map(t, t + t)"));
    assert!(Filter::parse(&format!("{doubled}.size() == 1")).is_err(), "too many loops");
    let doubled = (0..14).fold("[current.text]".to_owned(), |list, _| format!("{list}.map(t, t + t)"));
    check(&format!("{doubled}.size() == 1"));
    check(&format!("({}).size() > 1", ["current.text"; 50].join("+")));
    // What people write passes, also on large documents.
    let passes = |text: &str| assert!(evaluate(text, &large, &large).is_ok(), "{text}");
    passes("current.numbers.all(n, n >= 0)");
    passes("current.texts.exists(t, t.contains('7')) && current.text.startsWith('xx')");
    passes("current.numbers.filter(n, n > 5).size() > 3 && 7 in current.numbers");
    passes("current != previous || current.text == previous.text");
}

#[test]
fn an_answer_does_not_hide_that_a_part_was_left_out() {
    let large = json!({ "numbers": (0..3000).collect::<Vec<_>>() });
    let text = "current.numbers.all(a, current.numbers.all(b, a + b >= 0)) || true";
    assert_eq!(evaluate(text, &large, &Json::Null), Err(EvaluationError::TooCostly));
}

/// Pieces from which texts are put together that are close to expressions.
fn piece() -> impl Strategy<Value = String> {
    let known = [
        "current",
        "previous",
        "state",
        "action",
        "id",
        ".a",
        ".list",
        "[0]",
        "['a']",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "?",
        " == ",
        " != ",
        " < ",
        " + ",
        " - ",
        " * ",
        " / ",
        " % ",
        " && ",
        " || ",
        " in ",
        "!",
        "-",
        "1",
        "2.5",
        "1u",
        "'text'",
        "b'x'",
        "true",
        "null",
        "has(",
        ".all(x, ",
        ".exists(x, ",
        ".map(x, ",
        ".filter(x, ",
        ".matches('a+')",
        ".size()",
        "size(",
        "timestamp(",
        "duration('1h')",
        "int(",
        "x",
        "\n",
        "9223372036854775807",
        "é",
        "\\",
        "'",
        "\"",
        "@",
        "`",
    ];
    prop_oneof![9 => prop::sample::select(known.to_vec()).prop_map(str::to_owned), 1 => ".{0,3}"]
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(pieces in prop::collection::vec(piece(), 0..24)) {
        let text = pieces.concat();
        match Filter::parse(&text) {
            Ok(filter) => {
                prop_assert_eq!(filter.as_str(), &*text);
                let current = json!({ "a": [1, "x", null, 2.5], "list": [[1], { "a": 9223372036854775807i64 }] });
                let once = filter.evaluate(&subject(&current, &Json::Null), COST_MAX);
                prop_assert_eq!(once, filter.evaluate(&subject(&current, &Json::Null), COST_MAX));
            }
            Err(FilterError::Wrong { line, column, reason }) => {
                prop_assert!(line >= 1 && column >= 1);
                prop_assert!(reason.len() < 500, "{}", reason);
            }
            Err(FilterError::TooLong { .. }) => prop_assert!(false, "{} bytes", text.len()),
        }
    }
}
