//! A value as another type, if nothing is lost by it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::json::{self, Style};
use crate::value::{Decimal, Kind, Value, from_hex, to_hex, uuid_from_text, uuid_to_text};

/// How much of a value an error shows.
const SHOWN_CHARS_MAX: usize = 60;

/// The value as the kind; null and missing stay what they are. The error says why it cannot be.
pub fn convert(value: Value, kind: Kind) -> Result<Value, String> {
    match (value, kind) {
        (Value::Text(text), Kind::Text) => Ok(Value::Text(text)),
        (Value::Json(text), Kind::Json | Kind::JsonBinary) => Ok(Value::Json(text)),
        (value, kind) => converted(&value, kind),
    }
}

/// As [`convert`], of a value that is still needed.
pub fn converted(value: &Value, kind: Kind) -> Result<Value, String> {
    if value.is_empty() {
        return Ok(value.clone());
    }
    let converted = match kind {
        Kind::Bool => bool(value),
        Kind::Int16 => integer(value).filter(|number| i16::try_from(*number).is_ok()).map(Value::Int),
        Kind::Int32 => integer(value).filter(|number| i32::try_from(*number).is_ok()).map(Value::Int),
        Kind::Int64 => integer(value).map(Value::Int),
        Kind::Decimal(None) => decimal(value),
        Kind::Decimal(Some((precision, scale))) => {
            decimal(value).filter(|value| matches!(value, Value::Decimal(number) if number.fits(precision, scale)))
        }
        Kind::Float32 | Kind::Float64 => float(value),
        Kind::Text => return Ok(Value::Text(text(value))),
        Kind::Bytes => bytes(value),
        Kind::Date => date(value),
        Kind::Time => time(value),
        Kind::DateTime => datetime(value),
        Kind::Instant => instant(value),
        Kind::Uuid => uuid(value),
        Kind::ObjectId => object_id(value),
        Kind::Json | Kind::JsonBinary => return Ok(as_json(value)),
    };
    converted.ok_or_else(|| format!("cannot make {kind} of {}", shown(value)))
}

/// Whether a value of the kind would be written as exactly this text.
pub fn is_written_so(written: &str, kind: Kind) -> bool {
    match kind {
        Kind::Int16 | Kind::Int32 | Kind::Int64 => {
            let digits = written.strip_prefix('-').unwrap_or(written);
            let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_plain && (written == "0" || !digits.starts_with('0')) && convert(Value::text(written), kind).is_ok()
        }
        Kind::Text => true,
        _ => convert(Value::text(written), kind).is_ok_and(|value| text(&value) == written),
    }
}

/// The value for a message, shortened.
pub fn shown(value: &Value) -> String {
    let text = json::to_string(value);
    let short: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    let dots = if short.len() < text.len() { "…" } else { "" };
    format!("{} {short}{dots}", value.kind_name())
}

/// The value as text, as a person would write it.
pub fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Missing | Value::Null => String::new(),
        Value::Json(text) => text.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}"),
        Value::Decimal(number) => number.to_string(),
        Value::Bytes(bytes) => format!("\\x{}", to_hex(bytes)),
        Value::Date(date) => date.to_string(),
        Value::Time(time) => time.to_string(),
        Value::DateTime(at) => at.to_string(),
        Value::Instant(at) => at.to_string(),
        Value::Uuid(uuid) => uuid_to_text(uuid),
        Value::ObjectId(id) => to_hex(id),
        other @ (Value::Array(_) | Value::Object(_) | Value::Other(_)) => json::to_string(other),
    }
}

/// JSON that is text stays as it is; anything else is written as extended JSON.
fn as_json(value: &Value) -> Value {
    match value {
        Value::Json(_) => value.clone(),
        other => Value::Json(json::to_string(other).into()),
    }
}

/// Without extended forms, for those who write JSON for others.
pub fn as_plain_json(value: &Value) -> String {
    let mut out = Vec::new();
    json::write(value, Style::Plain, &mut out);
    String::from_utf8(out).expect("JSON is written as UTF-8")
}

fn bool(value: &Value) -> Option<Value> {
    match value {
        Value::Bool(_) => Some(value.clone()),
        Value::Int(0) => Some(Value::Bool(false)),
        Value::Int(1) => Some(Value::Bool(true)),
        Value::Text(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "t" | "yes" | "1" => Some(Value::Bool(true)),
            "false" | "f" | "no" | "0" => Some(Value::Bool(false)),
            _ => None,
        },
        _ => None,
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::Bool(value) => Some(i64::from(*value)),
        // 2^63 itself is past the end.
        Value::Float(number) if number.fract() == 0.0 && (-(2f64.powi(63))..2f64.powi(63)).contains(number) => {
            Some(*number as i64)
        }
        Value::Text(text) => text.trim().parse().ok(),
        Value::Decimal(number) => whole(number.as_str()),
        _ => None,
    }
}

/// The integer that a decimal is, such as `12.00`.
fn whole(text: &str) -> Option<i64> {
    match text.split_once('.') {
        None => text.parse().ok(),
        Some((whole, fraction)) if fraction.bytes().all(|byte| byte == b'0') => whole.parse().ok(),
        Some(_) => None,
    }
}

fn decimal(value: &Value) -> Option<Value> {
    let text = match value {
        Value::Decimal(_) => return Some(value.clone()),
        Value::Int(number) => number.to_string(),
        Value::Float(number) if number.is_nan() => "NaN".to_owned(),
        Value::Float(number) if number.is_infinite() => if *number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        Value::Float(number) => format!("{number:?}"),
        Value::Text(text) => text.trim().to_owned(),
        _ => return None,
    };
    Decimal::parse(&text).map(Value::Decimal)
}

fn float(value: &Value) -> Option<Value> {
    match value {
        Value::Float(_) => Some(value.clone()),
        // Past 2^53 not every integer has a float.
        Value::Int(number) if (*number as f64) as i128 == i128::from(*number) => Some(Value::Float(*number as f64)),
        // Who asks for floats takes the nearest one.
        Value::Decimal(number) => number.as_str().parse().ok().map(Value::Float),
        Value::Text(text) => {
            let text = text.trim();
            let number: f64 = text.parse().ok()?;
            // A number that is too large becomes infinite by being read.
            (number.is_finite() || !text.contains(|c: char| c.is_ascii_digit())).then_some(Value::Float(number))
        }
        _ => None,
    }
}

fn bytes(value: &Value) -> Option<Value> {
    match value {
        Value::Bytes(_) => Some(value.clone()),
        Value::Uuid(uuid) => Some(Value::Bytes(uuid.to_vec())),
        Value::ObjectId(id) => Some(Value::Bytes(id.to_vec())),
        Value::Text(text) => match text.strip_prefix("\\x") {
            Some(hex) => from_hex(hex.as_bytes()).map(Value::Bytes),
            None => STANDARD.decode(text).ok().map(Value::Bytes),
        },
        _ => None,
    }
}

fn date(value: &Value) -> Option<Value> {
    match value {
        Value::Date(_) => Some(value.clone()),
        Value::Text(text) => date(&Value::DateTime(civil(text)?)),
        Value::DateTime(at) if at.time() == jiff::civil::Time::midnight() => Some(Value::Date(at.date())),
        _ => None,
    }
}

fn time(value: &Value) -> Option<Value> {
    match value {
        Value::Time(_) => Some(value.clone()),
        // What has a day is not only a time.
        Value::Text(text) if civil(text).is_none() => text.trim().parse().ok().map(Value::Time),
        _ => None,
    }
}

fn datetime(value: &Value) -> Option<Value> {
    match value {
        Value::DateTime(_) => Some(value.clone()),
        Value::Date(date) => Some(Value::DateTime(date.to_datetime(jiff::civil::Time::midnight()))),
        Value::Instant(at) => Some(Value::DateTime(jiff::tz::Offset::UTC.to_datetime(*at))),
        Value::Text(text) => civil(text).map(Value::DateTime),
        _ => None,
    }
}

/// What a text says without a zone. One that has a zone would lose it.
fn civil(text: &str) -> Option<jiff::civil::DateTime> {
    let text = text.trim();
    text.parse().ok().filter(|_| text.parse::<jiff::Timestamp>().is_err())
}

/// What has no zone is taken as UTC.
fn instant(value: &Value) -> Option<Value> {
    let of = |at: jiff::civil::DateTime| jiff::tz::Offset::UTC.to_timestamp(at).ok().map(Value::Instant);
    match value {
        Value::Instant(_) => Some(value.clone()),
        Value::DateTime(at) => of(*at),
        Value::Date(date) => of(date.to_datetime(jiff::civil::Time::midnight())),
        Value::Text(text) => {
            let text = text.trim();
            text.parse().ok().map(Value::Instant).or_else(|| of(text.parse().ok()?))
        }
        _ => None,
    }
}

fn uuid(value: &Value) -> Option<Value> {
    match value {
        Value::Uuid(_) => Some(value.clone()),
        Value::Text(text) => uuid_from_text(text.trim()).map(Value::Uuid),
        Value::Bytes(bytes) => bytes.as_slice().try_into().ok().map(Value::Uuid),
        _ => None,
    }
}

fn object_id(value: &Value) -> Option<Value> {
    match value {
        Value::ObjectId(_) => Some(value.clone()),
        Value::Text(text) => from_hex(text.trim().as_bytes())?.try_into().ok().map(Value::ObjectId),
        Value::Bytes(bytes) => bytes.as_slice().try_into().ok().map(Value::ObjectId),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_becomes_another_type_only_if_nothing_is_lost() {
        let check = |value: Value, kind: &str, expected: Option<&str>| {
            let kind = Kind::from_name(kind).unwrap();
            let found = convert(value.clone(), kind).ok().map(|value| json::to_string(&value));
            assert_eq!(found.as_deref(), expected, "{value:?} as {}", kind.name());
        };
        let decimal = |text: &str| Value::Decimal(Decimal::parse(text).unwrap());
        check(Value::text("42"), "int64", Some("42"));
        check(Value::text("4.2"), "int64", None);
        check(Value::Float(4.0), "int32", Some("4"));
        check(Value::Float(4.5), "int32", None);
        check(Value::Float(9.3e18), "int64", None);
        check(Value::Int(40_000), "int16", None);
        check(decimal("12.00"), "int64", Some("12"));
        check(Value::text("1.250"), "decimal(4,2)", Some("1.250"));
        check(Value::text("1.259"), "decimal(4,2)", None);
        check(Value::Int(100), "decimal(4,2)", None);
        check(Value::text("1e400"), "float64", None);
        check(Value::text("inf"), "float64", Some("{\"$numberDouble\":\"Infinity\"}"));
        check(Value::Int(9_007_199_254_740_993), "float64", None);
        check(Value::Int(i64::MAX), "float64", None);
        check(Value::Float(0.1), "decimal", Some("{\"$numberDecimal\":\"0.1\"}"));
        check(Value::text("2024-01-31T12:00:00+02:00"), "timestamp", Some("{\"$date\":\"2024-01-31T10:00:00Z\"}"));
        check(Value::text("2024-01-31 12:00:00"), "timestamp", Some("{\"$date\":\"2024-01-31T12:00:00Z\"}"));
        check(Value::text("soon"), "timestamp", None);
        check(Value::text("2024-01-31"), "date", Some("{\"$day\":\"2024-01-31\"}"));
        check(Value::text("2024-01-31 00:00:00"), "date", Some("{\"$day\":\"2024-01-31\"}"));
        check(Value::text("2024-01-31 10:00:00"), "date", None);
        check(Value::text("10:00:00"), "time", Some("{\"$time\":\"10:00:00\"}"));
        check(Value::text("2024-01-31 10:00:00"), "time", None);
        check(Value::text("2024-01-31 10:00:00"), "datetime", Some("{\"$datetime\":\"2024-01-31T10:00:00\"}"));
        check(Value::text("2024-01-31T10:00:00+02:00"), "datetime", None);
        check(Value::ObjectId([10; 12]), "text", Some("\"0a0a0a0a0a0a0a0a0a0a0a0a\""));
        check(Value::Null, "int64", Some("null"));
        check(Value::text("yes"), "bool", Some("true"));
        check(Value::text("x"), "json", Some("\"x\""));
        check(Value::text("\\x00ff"), "bytes", Some("{\"$binary\":{\"base64\":\"AP8=\",\"subType\":\"00\"}}"));
    }

    #[test]
    fn a_type_writes_a_text_in_one_way() {
        let check = |kind: &str, so: &[&str], otherwise: &[&str]| {
            let kind = Kind::from_name(kind).unwrap();
            so.iter().for_each(|text| assert!(is_written_so(text, kind), "{text} as {kind}"));
            otherwise.iter().for_each(|text| assert!(!is_written_so(text, kind), "{text} as {kind}"));
        };
        check(
            "int64",
            &["0", "-1", "9223372036854775807"],
            &["007", "+1", "-0", " 1", "1.0", "", "-", "9223372036854775808"],
        );
        check("int16", &["32767"], &["32768"]);
        check("decimal", &["1.10", "-0", "12345678901234567890123", "1E+3"], &["1.", ".5", "01", "+1", " 1"]);
        check("bool", &["true", "false"], &["t", "1", "yes", "True"]);
        check("timestamp", &["2024-01-31T10:00:00Z"], &["2024-01-31 10:00:00", "2024-01-31T10:00:00+02:00"]);
        check("text", &["", "anything"], &[]);
    }

    #[test]
    fn the_reason_shows_the_value_and_not_all_of_it() {
        let error = convert(Value::text("x".repeat(1000)), Kind::Int64).unwrap_err();
        assert!(error.starts_with("cannot make int64 of text \"xxx") && error.len() < 120, "{error}");
    }
}
