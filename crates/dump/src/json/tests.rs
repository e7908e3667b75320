use super::*;
use crate::value::{Decimal, Other};

#[allow(clippy::needless_pass_by_value, reason = "tables of cases read better without references")]
fn check(value: Value, text: &str) {
    assert_eq!(to_string(&value), text);
    assert_eq!(parse(text.as_bytes()).unwrap(), value, "{text}");
}

fn decimal(text: &str) -> Value {
    Value::Decimal(Decimal::parse(text).unwrap())
}

#[test]
fn every_value_comes_back_from_its_text() {
    check(Value::Null, "null");
    check(Value::Bool(true), "true");
    check(Value::Int(i64::MIN), "-9223372036854775808");
    check(Value::Int(9_007_199_254_740_993), "9007199254740993");
    check(decimal("9223372036854775808"), "9223372036854775808");
    check(Value::Float(0.1), "0.1");
    check(Value::Float(1.0), "1.0");
    check(Value::Float(-0.0), "-0.0");
    check(Value::Float(1e300), "1e300");
    check(decimal("1.10"), "1.10");
    check(decimal("1.5"), r#"{"$numberDecimal":"1.5"}"#);
    check(decimal("NaN"), r#"{"$numberDecimal":"NaN"}"#);
    check(Value::Float(f64::INFINITY), r#"{"$numberDouble":"Infinity"}"#);
    check(Value::text("é\"\\\n\u{1}😀"), "\"é\\\"\\\\\\n\\u0001😀\"");
    check(Value::Bytes(vec![0, 255]), r#"{"$binary":{"base64":"AP8=","subType":"00"}}"#);
    check(Value::Date("2024-01-31".parse().unwrap()), r#"{"$day":"2024-01-31"}"#);
    check(Value::Time("12:30:00.5".parse().unwrap()), r#"{"$time":"12:30:00.5"}"#);
    check(Value::DateTime("2024-01-31T12:30:00".parse().unwrap()), r#"{"$datetime":"2024-01-31T12:30:00"}"#);
    check(Value::Instant("2024-01-31T12:30:00.123Z".parse().unwrap()), r#"{"$date":"2024-01-31T12:30:00.123Z"}"#);
    check(Value::Uuid([17; 16]), r#"{"$uuid":"11111111-1111-1111-1111-111111111111"}"#);
    check(Value::ObjectId([10; 12]), r#"{"$oid":"0a0a0a0a0a0a0a0a0a0a0a0a"}"#);
    let regex = Other { kind: "regularExpression".into(), json: r#"{"pattern":"^a","options":"i"}"#.into() };
    check(Value::Other(Box::new(regex)), r#"{"$regularExpression":{"pattern":"^a","options":"i"}}"#);
    check(Value::Array(vec![Value::Int(1), Value::Null, Value::Array(vec![])]), "[1,null,[]]");
    check(Value::Object(vec![("b".into(), Value::Int(1)), ("a".into(), Value::Null)]), r#"{"b":1,"a":null}"#);
}

#[test]
fn a_document_that_looks_extended_stays_a_document() {
    let inner = vec![("$day".to_owned(), Value::text("2024-01-31"))];
    check(Value::Object(inner), r#"{"$verbatim":{"$day":"2024-01-31"}}"#);
    let nested = Value::Object(vec![("$verbatim".into(), Value::Object(vec![("$oid".into(), Value::Null)]))]);
    check(nested, r#"{"$verbatim":{"$verbatim":{"$oid":null}}}"#);
    check(Value::Object(vec![("$unknown".into(), Value::Int(1))]), r#"{"$unknown":1}"#);
    check(Value::Object(vec![("$oid".into(), Value::text("short"))]), r#"{"$oid":"short"}"#);
}

#[test]
fn text_is_read_as_strictly_as_json_is() {
    for text in [
        "",
        "{",
        "[1,]",
        "{\"a\"}",
        "{\"a\":1,}",
        "01",
        "1.",
        "tru",
        "\"\n\"",
        "\"\\x\"",
        "\"\\ud800\"",
        "1 2",
        "[1 2]",
        "{a:1}",
        "'a'",
        "\"\u{0}\"",
        "nul",
        "-",
        "+1",
        "\"\\u+123\"",
    ] {
        assert!(parse(text.as_bytes()).is_err(), "{text}");
    }
    assert!(parse(&[b"[".repeat(300), b"]".repeat(300)].concat()).is_err());
    assert!(parse(b"\"\xff\"").is_err());
    assert_eq!(parse(b" [ 1 , \"\\ud83d\\ude00\" ] ").unwrap(), Value::Array(vec![Value::Int(1), Value::text("😀")]));
}

#[test]
fn plain_json_has_strings_instead_of_forms() {
    let mut out = Vec::new();
    write(&Value::ObjectId([10; 12]), Style::Plain, &mut out);
    write(&decimal("1.5"), Style::Plain, &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), "\"0a0a0a0a0a0a0a0a0a0a0a0a\"1.5");
    let read = parse_plain(br#"{"$oid":"0a0a0a0a0a0a0a0a0a0a0a0a"}"#).unwrap();
    assert!(matches!(read, Value::Object(_)));
}

#[test]
fn a_date_past_all_calendars_is_carried_through() {
    let text = r#"{"$date":{"$numberLong":"9223372036854775807"}}"#;
    let value = extended::instant_of_millis(i64::MAX);
    assert_eq!(to_string(&value), text);
}
