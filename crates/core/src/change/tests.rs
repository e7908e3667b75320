use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const DEPTH_MAX: usize = 8;

fn rule(field: &str, format: Option<&str>) -> ChangeRule {
    let format = format.map_or(RevisionFormat::Integer, |text| RevisionFormat::parse(text).unwrap());
    ChangeRule { field: FieldPath::parse(field).unwrap(), format }
}

fn revision(field: &str, json: &str) -> Result<i128, ChangeError> {
    rule(field, None).revision_of(json.as_bytes(), DEPTH_MAX).map(Revision::value)
}

fn refuse(field: &str, json: &str, message: &str) {
    assert_eq!(revision(field, json).expect_err(json).to_string(), message, "{json}");
}

#[test]
fn the_field_is_found_wherever_it_stands() {
    assert_eq!(revision("version", r#"{"version": 7}"#), Ok(7));
    assert_eq!(revision("version", r#" { "a": [1, {"version": 1}], "version": -7, "b": {"version": 2} } "#), Ok(-7));
    assert_eq!(
        revision("meta.version", r#"{"version": 1, "meta": {"x": null, "version": 18446744073709551615}}"#),
        Ok(u64::MAX.into())
    );
    assert_eq!(revision("a.a.a", r#"{"a": {"a": {"a": 3, "b": 4}, "b": {"a": 5}}}"#), Ok(3));
    assert_eq!(revision("versão", "{\"vers\\u00e3o\": 9}"), Ok(9));
    assert_eq!(revision("a b", "{\"a\\u0020b\": 9}"), Ok(9));
}

#[test]
fn times_are_read_by_the_rules_format() {
    let json = br#"{"updatedAt": "2024-05-06T07:08:09\u005a"}"#;
    let revision = rule("updatedAt", Some("2006-01-02T15:04:05Z07:00")).revision_of(json, DEPTH_MAX).unwrap();
    assert_eq!(revision, rule("updatedAt", Some("rfc3339")).revision_of(json, DEPTH_MAX).unwrap());
    assert_eq!(revision.value(), 1_714_979_289_000_000_000);
}

#[test]
fn of_equal_keys_the_last_one_counts() {
    assert_eq!(revision("v", r#"{"v": 1, "v": 2}"#), Ok(2));
    assert_eq!(revision("v", r#"{"v": "wrong", "v": 2}"#), Ok(2));
    assert_eq!(revision("a.v", r#"{"a": {"v": 1}, "a": {"v": 2}}"#), Ok(2));
    refuse("a.v", r#"{"a": {"v": 1}, "a": {}}"#, "document has no field \"a.v\", which shows its revision");
    refuse("a.v", r#"{"a": {"v": 1}, "a": 1}"#, "document has no field \"a.v\", which shows its revision");
    assert!(matches!(revision("v", r#"{"v": 1, "v": null}"#), Err(ChangeError::Unreadable { .. })));
}

#[test]
fn a_document_without_the_field_says_so() {
    let missing = "document has no field \"a.b\", which shows its revision";
    for json in ["{}", r#"{"a": 1}"#, r#"{"a": {}}"#, r#"{"a": [{"b": 1}]}"#, r#"{"a.b": 1}"#, r#"{"b": 1}"#] {
        refuse("a.b", json, missing);
    }
}

#[test]
fn an_unreadable_field_says_what_was_seen_and_what_is_expected() {
    let expected = "is not an integer between -9223372036854775808 and 18446744073709551615";
    let check = |value: &str, seen: &str| {
        refuse("v", &format!("{{\"v\": {value}}}"), &format!("field \"v\" shows no revision: {seen}"));
    };
    check("\"7\"", &format!("\"7\" {expected}: it is a string"));
    check("7.0", &format!("7.0 {expected}: it is a number with a fraction or an exponent, or out of range"));
    check("{\"v\": 7}", &format!("an object {expected}: it is an object"));
    check("[7]", &format!("an array {expected}: it is an array"));
    check("null", &format!("null {expected}: it is null"));
    check("true", &format!("true {expected}: it is a boolean"));
    let long = format!("{{\"v\": \"{}\"}}", "x".repeat(100_000));
    assert!(revision("v", &long).unwrap_err().to_string().len() < 400);
}

#[test]
fn what_is_not_one_json_object_is_refused() {
    refuse("v", "[1]", "document must be a JSON object, it is an array");
    refuse("v", "7", "document must be a JSON object, it is a number");
    refuse("v", "\"v\"", "document must be a JSON object, it is a string");
    refuse("v", "null", "document must be a JSON object, it is null");
    refuse("v", "false", "document must be a JSON object, it is a boolean");
    let malformed = |line, column, reason: &str| {
        format!("document is not well-formed JSON at line {line}, column {column}: {reason}")
    };
    refuse("v", "", &malformed(1, 0, "EOF while parsing a value"));
    refuse("v", "{\"v\": 1} x", &malformed(1, 10, "trailing characters"));
    refuse("v", "{\"v\": 1,\n}", &malformed(2, 1, "trailing comma"));
    refuse("v", "{\"v\": 1, \"w\": [1 2]}", &malformed(1, 18, "expected `,` or `]`"));
    refuse("v", "{\"v\": 01}", &malformed(1, 8, "invalid number"));
    refuse(
        "v",
        "{\"v\": 1, \"w\": \"a\u{1}\"}",
        &malformed(1, 17, "control character (\\u0000-\\u001F) found while parsing a string"),
    );
    let error = rule("v", None).revision_of(b"{\"v\": 1,\n \"\xff\": 2}", DEPTH_MAX).unwrap_err();
    assert_eq!(error.to_string(), malformed(2, 3, "it is not UTF-8"));
}

#[test]
fn the_depth_is_bounded() {
    let nested = |depth: usize| format!("{{\"v\": 1, \"x\": {}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    let check = |depth, max| rule("v", None).revision_of(nested(depth).as_bytes(), max);
    assert!(check(8, 8).is_ok());
    assert_eq!(check(9, 8), Err(ChangeError::TooDeep { max: 8 }));
    assert!(check(JSON_DEPTH_MAX, usize::MAX).is_ok());
    assert_eq!(check(JSON_DEPTH_MAX + 1, usize::MAX), Err(ChangeError::TooDeep { max: JSON_DEPTH_MAX }));
    assert_eq!(check(100_000, usize::MAX), Err(ChangeError::TooDeep { max: JSON_DEPTH_MAX }));
    assert_eq!(rule("v", None).revision_of(b"{}", 0), Err(ChangeError::TooDeep { max: 0 }));
    let objects = format!("{}1{}", "{\"v\":".repeat(9), "}".repeat(9));
    assert_eq!(revision("v", &objects), Err(ChangeError::TooDeep { max: 8 }));
}

#[test]
fn a_path_is_names_with_dots_between() {
    let path = FieldPath::parse("meta.updated at.$v").unwrap();
    assert_eq!(path.parts().collect::<Vec<_>>(), ["meta", "updated at", "$v"]);
    assert_eq!(path.as_str(), "meta.updated at.$v");
    let refuse = |text: &str, part_of_message: &str| {
        let error = FieldPath::parse(text).unwrap_err().to_string();
        assert!(error.contains(part_of_message), "{text:?}: {error}");
    };
    for text in ["", ".", "a.", ".a", "a..b"] {
        refuse(text, "must be names with a dot between them");
    }
    refuse(&["a"; FIELD_PARTS_MAX + 1].join("."), "17 names, at most 16");
    refuse(&"a".repeat(FIELD_BYTES_MAX + 1), "1025 bytes, at most 1024");
    assert!(FieldPath::parse(&["a"; FIELD_PARTS_MAX].join(".")).is_ok());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9_f64).prop_map(Value::from),
        "\\PC{0,5}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..4).prop_map(Value::from_iter),
        ]
    })
}

proptest! {
    #[test]
    fn the_walk_finds_what_a_parsed_value_has(json in any_json(), path in prop::collection::vec("[abc]", 1..4)) {
        let rule = rule(&path.join("."), None);
        let text = serde_json::to_vec_pretty(&json).unwrap();
        let found = rule.revision_of(&text, DEPTH_MAX);
        let expected = path.iter().try_fold(&json, |value, name| value.as_object()?.get(name));
        match (expected, json.is_object()) {
            (_, false) => prop_assert!(matches!(found, Err(ChangeError::NotObject { .. })), "{:?}", found),
            (None, _) => prop_assert!(matches!(found, Err(ChangeError::Missing { .. })), "{:?}", found),
            (Some(value), _) if value.is_i64() || value.is_u64() => {
                let number = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from)).unwrap();
                prop_assert_eq!(found, Ok(Revision::new(number)));
            }
            (Some(_), _) => prop_assert!(matches!(found, Err(ChangeError::Unreadable { .. })), "{:?}", found),
        }
    }

    #[test]
    fn any_bytes_are_accepted_only_if_serde_json_accepts_them(
        prefix in "[{\\[\"a:1, ]{0,6}",
        json in any_json(),
        suffix in "[}\\]\"a:1, ]{0,3}",
    ) {
        let text = format!("{prefix}{}{suffix}", json!({ "a": json, "v": 1 }));
        let found = rule("v", None).revision_of(text.as_bytes(), JSON_DEPTH_MAX);
        let parsed: Result<Value, _> = serde_json::from_str(&text);
        let is_malformed = matches!(found, Err(ChangeError::Malformed { .. }));
        prop_assert!(!is_malformed || parsed.is_err(), "{:?}", text);
        prop_assert!(found.is_err() || parsed.is_ok(), "{:?}", text);
    }
}
