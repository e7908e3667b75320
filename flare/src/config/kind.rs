//! What a key may be: read from its schema, checked against a value, said in words.

use std::fmt::Display;
use std::str::FromStr;

use serde_json::Value as Json;
use toml::Value;

use super::address::ListenAddr;
use super::duration::Duration;
use super::host::{HostName, WebOrigin};
use super::keys::text;
use super::secret::Token;
use super::size::ByteSize;
use super::target::DeliveryTarget;

/// The values that a key may have.
#[derive(Debug, PartialEq)]
pub enum Kind {
    /// A whole number within bounds.
    Integer {
        /// The least.
        min: i64,
        /// The most.
        max: i64,
    },
    /// Yes or no.
    Truth,
    /// A text.
    Text {
        /// Whether the empty text is allowed.
        empty: bool,
    },
    /// A text that is never repeated in a message.
    Secret,
    /// One of a few words.
    Choice(Vec<Choice>),
    /// A [`Duration`] within bounds.
    Duration(Bounds<Duration>),
    /// A [`ByteSize`] within bounds.
    Size(Bounds<ByteSize>),
    /// A [`ListenAddr`].
    Address,
    /// A [`Token`].
    Token,
    /// A [`HostName`].
    Host,
    /// A [`WebOrigin`].
    Origin,
    /// A [`DeliveryTarget`].
    Target,
    /// A list of such values.
    List(Box<Kind>),
}

/// One of the words of a [`Kind::Choice`].
#[derive(Debug, PartialEq)]
pub struct Choice {
    /// The word.
    pub word: String,
    /// What choosing it means.
    pub meaning: String,
}

/// The least and the most, where there are any.
#[derive(Debug, PartialEq)]
pub struct Bounds<T> {
    min: Option<T>,
    max: Option<T>,
}

impl Kind {
    /// The kind that a schema describes.
    pub fn of(schema: &Json) -> Self {
        if let Some(variants) = schema["oneOf"].as_array() {
            let choice =
                |variant: &Json| Choice { word: text(variant, "const"), meaning: text(variant, "description") };
            return Self::Choice(variants.iter().map(choice).collect());
        }
        match (schema["type"].as_str(), schema["format"].as_str()) {
            (Some("integer"), _) => Self::Integer {
                min: schema["minimum"].as_i64().unwrap_or(0),
                max: schema["maximum"].as_i64().unwrap_or(i64::MAX),
            },
            (Some("boolean"), _) => Self::Truth,
            (Some("array"), _) => Self::List(Box::new(Self::of(&schema["items"]))),
            (_, Some("duration")) => Self::Duration(Bounds::of(schema)),
            (_, Some("size")) => Self::Size(Bounds::of(schema)),
            (_, Some("address")) => Self::Address,
            (_, Some("token")) => Self::Token,
            (_, Some("host")) => Self::Host,
            (_, Some("origin")) => Self::Origin,
            (_, Some("target")) => Self::Target,
            (_, Some("secret")) => Self::Secret,
            _ => Self::Text { empty: schema["minLength"].as_u64().is_none_or(|length| length == 0) },
        }
    }

    /// Whether the value is allowed; otherwise what is wrong with it and what is allowed, as the end of a sentence that
    /// begins with the name of the key.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        match (self, value) {
            (Self::Integer { min, max }, Value::Integer(number)) if number < min || number > max => {
                Err(format!("is {number}, expected {}", self.allowed()))
            }
            (Self::Integer { .. }, Value::Integer(_)) | (Self::Truth, Value::Boolean(_)) => Ok(()),
            (Self::List(kind), Value::Array(values)) => {
                let checks = values.iter().enumerate().map(|(i, value)| (i, kind.check(value)));
                let mut wrong = checks.filter_map(|(i, check)| check.err().map(|reason| (i, reason)));
                wrong.next().map_or(Ok(()), |(i, reason)| Err(format!("(value {} of the list) {reason}", i + 1)))
            }
            (Self::Size(bounds), Value::Integer(number)) => self.check_size(bounds, *number),
            (Self::Integer { .. } | Self::Truth | Self::List(_), _) => Err(self.wrong_type(value)),
            (_, Value::String(text)) => self.check_text(text),
            _ => Err(self.wrong_type(value)),
        }
    }

    /// What is allowed, in words: "a whole number from 1 to 1000".
    pub fn allowed(&self) -> String {
        match self {
            Self::Integer { min, max: i64::MAX } => format!("a whole number, {min} or more"),
            Self::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Self::Truth => "true or false".to_owned(),
            Self::Text { empty: true } | Self::Secret => "a text".to_owned(),
            Self::Text { empty: false } => "a text that is not empty".to_owned(),
            Self::Choice(choices) => {
                let words: Vec<_> = choices.iter().map(|choice| format!("{:?}", choice.word)).collect();
                format!("one of {}", words.join(", "))
            }
            Self::Duration(bounds) => format!("a duration{}", bounds.phrase("\"500ms\", \"1s\" or \"72h\"")),
            Self::Size(bounds) => format!("a size{}", bounds.phrase("\"64KiB\" or \"1MiB\"")),
            Self::Address => "an address such as \"127.0.0.1:8080\", \"[::1]:8080\" or \":8080\"".to_owned(),
            Self::Token => "a token of 16 characters or more, or \"sha256:\" and 64 hexadecimal digits".to_owned(),
            Self::Host => "a host name such as \"flare.company.com\"".to_owned(),
            Self::Origin => "a web origin such as \"https://console.company.com\"".to_owned(),
            Self::Target => {
                "a network, an address or a host name such as \"10.0.0.0/8\", \"::1\", \"hooks.internal\" or \
                             \"*.company.internal\""
                    .to_owned()
            }
            Self::List(kind) => format!("a list, each value {}", kind.allowed()),
        }
    }

    /// A value from text, as an environment variable or a flag gives it: lists are separated by commas. A text that is
    /// not of this kind becomes a string, which [`Kind::check`] then refuses.
    pub fn read(&self, text: &str) -> Value {
        match self {
            Self::Integer { .. } => text.trim().parse().map_or_else(|_| Value::String(text.to_owned()), Value::Integer),
            Self::Truth => text.trim().parse().map_or_else(|_| Value::String(text.to_owned()), Value::Boolean),
            Self::List(kind) => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Value::Array(items.map(|item| kind.read(item)).collect())
            }
            _ => Value::String(text.to_owned()),
        }
    }

    fn check_text(&self, text: &str) -> Result<(), String> {
        match self {
            Self::Duration(bounds) => self.check_bounds(bounds, &text.parse().map_err(is_wrong)?),
            Self::Size(bounds) => self.check_bounds(bounds, &text.parse().map_err(is_wrong)?),
            Self::Address => text.parse::<ListenAddr>().map(drop).map_err(is_wrong),
            Self::Host => text.parse::<HostName>().map(drop).map_err(is_wrong),
            Self::Origin => text.parse::<WebOrigin>().map(drop).map_err(is_wrong),
            Self::Target => text.parse::<DeliveryTarget>().map(drop).map_err(is_wrong),
            Self::Token => text.parse::<Token>().map(drop),
            Self::Choice(choices) if choices.iter().all(|choice| choice.word != text) => {
                Err(format!("is {text:?}, expected {}", self.allowed()))
            }
            Self::Text { empty: false } if text.is_empty() => Err(format!("is empty, expected {}", self.allowed())),
            _ => Ok(()),
        }
    }

    fn check_size(&self, bounds: &Bounds<ByteSize>, number: i64) -> Result<(), String> {
        if number < 0 {
            return Err(format!("is {number}, expected {}", self.allowed()));
        }
        self.check_bounds(bounds, &number.to_string().parse().map_err(is_wrong)?)
    }

    fn check_bounds<T: Display + PartialOrd>(&self, bounds: &Bounds<T>, value: &T) -> Result<(), String> {
        if bounds.contain(value) { Ok(()) } else { Err(format!("is \"{value}\", expected {}", self.allowed())) }
    }

    fn wrong_type(&self, value: &Value) -> String {
        let found = match value {
            Value::String(_) if self.is_secret() => "a text".to_owned(),
            Value::Integer(_) | Value::Float(_) if self.is_secret() => "a number".to_owned(),
            Value::String(text) => format!("the text {text:?}"),
            Value::Integer(number) => format!("the number {number}"),
            Value::Float(number) => format!("the number {number}"),
            Value::Boolean(truth) => format!("the truth value {truth}"),
            Value::Datetime(time) => format!("the time {time}"),
            Value::Array(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
        };
        format!("is {found}, expected {}", self.allowed())
    }

    /// Whether a message may not repeat the value.
    fn is_secret(&self) -> bool {
        match self {
            Self::Secret | Self::Token => true,
            Self::List(kind) => kind.is_secret(),
            _ => false,
        }
    }
}

/// The parsers of values begin with the quoted value; in a sentence about a key it is an apposition.
fn is_wrong(reason: impl Display) -> String {
    format!("has a wrong value: {reason}")
}

impl<T: FromStr> Bounds<T> {
    fn of(schema: &Json) -> Self {
        let bound = |name: &str| schema[name].as_str().and_then(|text| text.parse().ok());
        Self { min: bound("x-minimum"), max: bound("x-maximum") }
    }
}

impl<T: Display + PartialOrd> Bounds<T> {
    fn contain(&self, value: &T) -> bool {
        self.min.as_ref().is_none_or(|min| value >= min) && self.max.as_ref().is_none_or(|max| value <= max)
    }

    /// The bounds in words, or examples where there are none.
    fn phrase(&self, examples: &str) -> String {
        match (&self.min, &self.max) {
            (None, None) => format!(" such as {examples}"),
            (Some(min), None) => format!(", at least \"{min}\""),
            (None, Some(max)) => format!(", at most \"{max}\""),
            (Some(min), Some(max)) => format!(" from \"{min}\" to \"{max}\""),
        }
    }
}
