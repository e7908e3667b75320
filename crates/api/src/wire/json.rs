//! Reads a JSON body into a shape, and says where and why it does not fit.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::excerpt;
use crate::{
    error::{self, ApiError},
    nearest::nearest,
};

/// Reads the one JSON value of a body.
pub(crate) fn read<T: DeserializeOwned>(json: &[u8], depth_max: usize) -> Result<T, ApiError> {
    if json.trim_ascii().is_empty() {
        return Err(ApiError::new(error::INVALID_JSON, "the body is empty, it must be a JSON object"));
    }
    check_depth(json, depth_max)?;
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let Object(value) = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        explain("the body", &path, &error.into_inner())
    })?;
    deserializer.end().map_err(|error| explain("the body", ".", &error))?;
    Ok(value)
}

/// Reads one item of a batch, whose place is told by others.
pub(crate) fn read_item<'j, T: Deserialize<'j>>(json: &'j str) -> Result<T, ApiError> {
    serde_json::from_str::<Object<T>>(json).map(|Object(value)| value).map_err(|error| explain("the item", ".", &error))
}

/// For a field whose type is a structure: it must be an object. Serde itself would also take an array of the values.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Object::deserialize(deserializer).map(|Object(value)| value)
}

/// The same for a field that may be null; with `default` it may also be missing.
pub(crate) fn optional_object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<Object<T>>::deserialize(deserializer).map(|value| value.map(|Object(value)| value))
}

struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// Counts brackets outside of strings. The JSON may be broken, which is found out later.
fn check_depth(json: &[u8], depth_max: usize) -> Result<(), ApiError> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if in_string => drop(bytes.next()),
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > depth_max {
                    let detail = format!("the body is nested too deep, at most {depth_max} levels are allowed");
                    return Err(ApiError::new(error::TOO_DEEP, detail));
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Turns what serde says into an answer. The path is that of the value; "." is the whole itself.
fn explain(whole: &str, path: &str, error: &serde_json::Error) -> ApiError {
    if !error.is_data() {
        let detail = format!("{whole} is not well-formed JSON: {error}");
        return ApiError::new(error::INVALID_JSON, detail);
    }
    let message = error.to_string();
    // serde_json adds the place in the text, which the path says better.
    let message = message.rsplit_once(" at line ").map_or(&*message, |(message, _)| message);
    if let Some((field, expected)) = quoted_after(message, "unknown field ") {
        return unknown_field(path, field, expected);
    }
    if let Some((field, _)) = quoted_after(message, "missing field ") {
        let detail = format!("{} is missing, it is required", join(path, field));
        return ApiError::new(error::MISSING_FIELD, detail);
    }
    let detail = format!("{}: {}", if path == "." { whole } else { path }, plain(message));
    ApiError::new(error::INVALID_FIELD, detail)
}

fn unknown_field(path: &str, field: &str, expected: &str) -> ApiError {
    // serde_path_to_error counts the unknown field itself as part of the path.
    let parent = path.strip_suffix(field).map_or(path, |parent| parent.strip_suffix('.').unwrap_or(parent));
    let parent = if parent.is_empty() { "." } else { parent };
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let place = excerpt(&join(parent, field));
    let detail = match nearest(field, known.iter().copied()) {
        Some(meant) => format!("{place} is not a known field; did you mean {}?", join(parent, meant)),
        None => format!("{place} is not a known field; there are {}", known.join(", ")),
    };
    ApiError::new(error::UNKNOWN_FIELD, detail)
}

/// The text in backticks that follows `intro` at the start of the message, and the rest.
fn quoted_after<'m>(message: &'m str, intro: &str) -> Option<(&'m str, &'m str)> {
    let quoted = message.strip_prefix(intro)?.strip_prefix('`')?;
    // The name may have backticks itself; what follows it starts with one of these.
    let end = quoted.rfind("`, expected ").or_else(|| quoted.rfind("`, there are no fields")).or(quoted.rfind('`'))?;
    Some((&quoted[..end], &quoted[end + 1..]))
}

/// The message without the names of our types.
fn plain(message: &str) -> String {
    let Some((seen, expected)) = message.rsplit_once(", expected ") else { return excerpt(message) };
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
        "a sequence" => "an array",
        _ => expected,
    };
    format!("{}, expected {expected}", excerpt(seen))
}

fn join(path: &str, field: &str) -> String {
    if path == "." { field.to_owned() } else { format!("{path}.{field}") }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only reading matters here")]
    struct Outer {
        name: String,
        #[serde(default, deserialize_with = "optional_object")]
        inner: Option<Inner>,
        list: Option<Vec<u16>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only reading matters here")]
    struct Inner {
        timeout: String,
    }

    #[test]
    fn a_wrong_body_is_told_with_the_field_the_value_and_what_is_allowed() {
        let check = |json: &str, code: error::Code, detail: &str| {
            let error = read::<Outer>(json.as_bytes(), 4).unwrap_err();
            assert_eq!((error.code(), error.detail()), (code, detail), "{json}");
        };
        check("", error::INVALID_JSON, "the body is empty, it must be a JSON object");
        check(
            "{",
            error::INVALID_JSON,
            "the body is not well-formed JSON: EOF while parsing an object at line 1 column 1",
        );
        check(
            "{\"name\":\"x\"} 1",
            error::INVALID_JSON,
            "the body is not well-formed JSON: trailing characters at line 1 column 14",
        );
        check("[[[[[", error::TOO_DEEP, "the body is nested too deep, at most 4 levels are allowed");
        check("[]", error::INVALID_FIELD, "the body: invalid type: sequence, expected an object");
        check(
            "{\"name\":\"x\",\"inner\":[\"1s\"]}",
            error::INVALID_FIELD,
            "inner: invalid type: sequence, expected an object",
        );
        check("7", error::INVALID_FIELD, "the body: invalid type: integer `7`, expected an object");
        check("{}", error::MISSING_FIELD, "name is missing, it is required");
        check("{\"name\":\"x\",\"inner\":{}}", error::MISSING_FIELD, "inner.timeout is missing, it is required");
        check("{\"name\":7}", error::INVALID_FIELD, "name: invalid type: integer `7`, expected a string");
        check(
            "{\"name\":\"x\",\"list\":[1,-2]}",
            error::INVALID_FIELD,
            "list[1]: invalid value: integer `-2`, expected a whole number that is not negative",
        );
        check("{\"nam\":\"x\"}", error::UNKNOWN_FIELD, "nam is not a known field; did you mean name?");
        check(
            "{\"name\":\"x\",\"inner\":{\"timeuot\":\"1s\"}}",
            error::UNKNOWN_FIELD,
            "inner.timeuot is not a known field; did you mean inner.timeout?",
        );
        check(
            "{\"completely\":\"x\"}",
            error::UNKNOWN_FIELD,
            "completely is not a known field; there are name, inner, list",
        );
        check(
            "{\"`, expected\":1}",
            error::UNKNOWN_FIELD,
            "`, expected is not a known field; there are name, inner, list",
        );
    }

    #[test]
    fn brackets_in_strings_are_not_depth() {
        assert!(read::<Outer>(br#"{"name":"[[[[[{\"[\\"}"#, 1).is_ok());
    }
}
