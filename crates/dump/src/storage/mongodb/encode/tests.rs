use super::super::decode;
use super::*;
use crate::value::Decimal;

fn round_trip(value: &Value) -> Value {
    let mut bytes = Vec::new();
    document([("a", value)].into_iter(), &mut bytes).unwrap();
    mongodb::bson::Document::try_from(mongodb::bson::RawDocumentBuf::from_bytes(bytes.clone()).unwrap())
        .expect("the driver reads it too");
    decode::document(&bytes).unwrap().remove(0).1
}

#[test]
fn a_value_comes_back_from_bson() {
    for text in [
        "null",
        "true",
        "5",
        "-2147483649",
        "9223372036854775807",
        "5.0",
        r#"{"$numberDouble":"NaN"}"#,
        r#""naïve ☃ 😀""#,
        "1.10",
        "-1.234567890123456789012345678901234E-6000",
        r#"{"$numberDecimal":"1"}"#,
        r#"{"$numberDecimal":"1.5"}"#,
        r#"{"$numberDecimal":"NaN"}"#,
        r#"{"$numberDecimal":"-Infinity"}"#,
        r#"{"$date":"2024-03-31T01:30:00.123Z"}"#,
        r#"{"$date":"1815-12-10T00:00:00.999Z"}"#,
        r#"{"$date":{"$numberLong":"9223372036854775807"}}"#,
        r#"{"$binary":{"base64":"AP8=","subType":"00"}}"#,
        r#"{"$binary":{"base64":"AP8=","subType":"80"}}"#,
        r#"{"$binary":{"base64":"AP8=","subType":"02"}}"#,
        r#"{"$uuid":"01234567-89ab-cdef-0123-456789abcdef"}"#,
        r#"{"$oid":"0123456789abcdef01234567"}"#,
        r#"{"$regularExpression":{"pattern":"^a\\b","options":"i"}}"#,
        r#"{"$timestamp":{"t":4294967295,"i":1}}"#,
        r#"{"$minKey":1}"#,
        r#"{"$maxKey":1}"#,
        r#"{"$undefined":true}"#,
        r#"{"$code":"function() { return \"x\" }"}"#,
        r#"{"$codeWithScope":{"code":"x","scope":{"x":[1]}}}"#,
        r#"{"$symbol":"s"}"#,
        r#"{"$dbPointer":{"ref":"db.c","id":{"$oid":"0123456789abcdef01234567"}}}"#,
        r#"[1,"a",null,[],{}]"#,
        r#"{"b":{"c":[{"d":null}]},"a":1}"#,
        r#"{"$verbatim":{"$oid":"0123456789abcdef01234567"}}"#,
    ] {
        let value = json::parse(text.as_bytes()).unwrap();
        assert_eq!(json::to_string(&round_trip(&value)), text);
    }
}

#[test]
fn zeros_at_the_end_of_a_decimal_give_way_to_its_digits() {
    let check = |text: &str, expected: &str| {
        let decimal = Value::Decimal(Decimal::parse(text).unwrap());
        let Value::Decimal(found) = round_trip(&decimal) else { panic!("{text} is no decimal any more") };
        assert_eq!(found.as_str(), expected);
    };
    check("10000.000000000000000000000000000000", "10000.00000000000000000000000000000");
    check(&format!("1{}.000", "0".repeat(33)), &format!("1{}", "0".repeat(33)));
    check("0.50", "0.50");
}

#[test]
fn what_mongodb_has_no_type_for_is_text() {
    let check = |value: Value, expected: &str| assert_eq!(json::to_string(&round_trip(&value)), expected);
    let digits = "1234567890123456789012345678901234567890.5";
    check(Value::Decimal(Decimal::parse(digits).unwrap()), &format!("{digits:?}"));
    check(Value::Date(jiff::civil::date(2024, 2, 29)), "\"2024-02-29\"");
    check(Value::Time(jiff::civil::time(1, 2, 3, 4_000)), "\"01:02:03.000004\"");
    check(Value::DateTime(jiff::civil::date(2024, 2, 29).at(1, 0, 0, 0)), "\"2024-02-29T01:00:00\"");
    check(Value::Json("[1,2.50".into()), "\"[1,2.50\"");
}

#[test]
fn dates_before_1970_lose_their_microseconds_towards_the_past() {
    let at = Value::Instant("1969-12-31T23:59:59.9999Z".parse().unwrap());
    assert_eq!(json::to_string(&round_trip(&at)), r#"{"$date":"1969-12-31T23:59:59.999Z"}"#);
}

#[test]
fn a_name_with_a_zero_byte_is_refused() {
    let error = document([("a\0b", &Value::Null)].into_iter(), &mut Vec::new()).unwrap_err();
    assert!(error.contains("zero byte"), "{error}");
}

#[test]
fn damaged_bytes_are_refused_with_a_reason() {
    let mut bytes = Vec::new();
    document([("name", &Value::text("text"))].into_iter(), &mut bytes).unwrap();
    for length in 0..bytes.len() {
        decode::document(&bytes[..length]).unwrap_err();
    }
    // The length of the text, and a byte of it.
    for (at, byte, reason) in [(10, 0xff, "length"), (14, 0xff, "UTF-8"), (4, 0x55, "type 0x55")] {
        let mut damaged = bytes.clone();
        let place = if at == 10 { 13 } else { at };
        damaged[place] = byte;
        let found = decode::document(&damaged).unwrap_err();
        assert!(found.contains(reason), "{found} has no {reason}");
    }
}
