//! A field path on the first line and a document behind it: the walk agrees with a parsed value.
#![no_main]

use flare_core::{
    change::{ChangeError, ChangeRule, FieldPath, JSON_DEPTH_MAX},
    revision::{Revision, RevisionFormat},
};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return };
    let Some(field) = std::str::from_utf8(&bytes[..end]).ok().and_then(|text| FieldPath::parse(text).ok()) else {
        return;
    };
    let json = &bytes[end + 1..];
    let rule = ChangeRule { field, format: RevisionFormat::Integer };
    let found = rule.revision_of(json, JSON_DEPTH_MAX);
    let value: Result<Value, _> = serde_json::from_slice(json);
    match &found {
        Ok(revision) => assert_eq!(value.ok().and_then(|value| integer(&value, &rule.field)), Some(*revision)),
        Err(ChangeError::Malformed { .. }) => assert!(value.is_err()),
        Err(ChangeError::TooDeep { max }) => assert_eq!(*max, JSON_DEPTH_MAX),
        Err(ChangeError::NotObject { .. }) => assert!(!value.is_ok_and(|value| value.is_object())),
        Err(ChangeError::Missing { .. }) => assert_eq!(at(&value.expect("it is well-formed"), &rule.field), None),
        Err(ChangeError::Unreadable { .. }) => {
            let value = value.expect("it is well-formed");
            assert!(at(&value, &rule.field).is_some() && integer(&value, &rule.field).is_none());
        }
    }
    if let Err(error) = &found {
        assert!(error.to_string().len() < 4096, "a message is short: {error}");
    }
    // A document that passes with a small limit gives the same revision as with the greatest.
    if let Ok(revision) = rule.revision_of(json, 3) {
        assert_eq!(found, Ok(revision));
    }
});

fn at<'v>(value: &'v Value, field: &FieldPath) -> Option<&'v Value> {
    field.parts().try_fold(value, |value, name| value.as_object()?.get(name))
}

fn integer(value: &Value, field: &FieldPath) -> Option<Revision> {
    let number = at(value, field)?.as_number()?;
    number.as_i64().map(i128::from).or(number.as_u64().map(i128::from)).map(Revision::new)
}
