//! The revision of a document, and how it is read from the field that shows a change.
//!
//! A revision is a number that grows: an integer as it stands in the document, or a time as nanoseconds since the
//! epoch. A format says which, and how a time is written; it is compiled once, when a resource is created, and one
//! under which times could not be put in order is refused there. Finding the field is left to [`crate::change`].

use std::{borrow::Cow, fmt};

use crate::url::excerpt;

pub use self::{go_layout::GoLayout, strftime::Strftime};

mod civil;
mod cursor;
mod go_layout;
mod go_reader;
mod go_zone;
mod rfc3339;
mod strftime;

/// The longest format.
pub const FORMAT_BYTES_MAX: usize = 256;

/// The smallest integer that can be a revision.
pub const INTEGER_MIN: i128 = i64::MIN as i128;

/// The largest integer that can be a revision.
pub const INTEGER_MAX: i128 = u64::MAX as i128;

/// Why a value does not fit, for the end of a message.
type Reason = Cow<'static, str>;

/// A revision: a larger one is newer. What the number means is known to the format that read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(i128);

impl Revision {
    pub const fn new(value: i128) -> Self {
        Self(value)
    }

    pub const fn value(self) -> i128 {
        self.0
    }

    /// Sixteen bytes that sort as the revisions do.
    pub const fn to_bytes(self) -> [u8; 16] {
        (self.0 ^ i128::MIN).to_be_bytes()
    }

    /// The revision that [`Revision::to_bytes`] wrote.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(i128::from_be_bytes(bytes) ^ i128::MIN)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A JSON value without parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JsonScalar<'j> {
    Null,
    Bool(bool),
    /// A number written without fraction and exponent that fits 64 bits.
    Integer(i128),
    /// Any other number.
    Float(f64),
    Text(&'j str),
}

/// How revisions are written in the documents of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RevisionFormat {
    /// A JSON integer from the least signed to the greatest unsigned one of 64 bits.
    #[default]
    Integer,
    /// A string as in RFC 3339.
    Rfc3339,
    /// A string in a pattern such as `%Y-%m-%d %H:%M:%S`.
    Strftime(Strftime),
    /// A string in a layout of Go's `time` package, such as `2006-01-02T15:04:05Z07:00`.
    GoLayout(GoLayout),
}

impl RevisionFormat {
    /// Reads a format: `rfc3339`, a strftime pattern (it has a percent sign) or a Go reference layout.
    ///
    /// Times without a zone are UTC. A format without a full date, or whose parts do not order times, is refused.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        if text.len() > FORMAT_BYTES_MAX {
            return Err(FormatError::TooLong { format: excerpt(text), bytes: text.len() });
        }
        let refused = |reason| FormatError::Unusable { format: text.to_owned(), reason };
        if text.eq_ignore_ascii_case("rfc3339") {
            Ok(Self::Rfc3339)
        } else if text.contains('%') {
            Strftime::parse(text).map(Self::Strftime).map_err(refused)
        } else {
            GoLayout::parse(text).map(Self::GoLayout).map_err(refused)
        }
    }

    /// The text that [`RevisionFormat::parse`] reads; `None` for integers, which have none.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Integer => None,
            Self::Rfc3339 => Some("rfc3339"),
            Self::Strftime(pattern) => Some(pattern.as_str()),
            Self::GoLayout(layout) => Some(layout.as_str()),
        }
    }

    /// The revision that a value of a document shows.
    ///
    /// Nothing is converted: an integer in quotes, or a number with a fraction that is zero, is an error.
    pub fn read(&self, value: &JsonScalar<'_>) -> Result<Revision, ReadError> {
        let read = match (self, value) {
            (Self::Integer, JsonScalar::Integer(number)) => read_integer(*number),
            (Self::Rfc3339, JsonScalar::Text(text)) => rfc3339::read(text),
            (Self::Strftime(pattern), JsonScalar::Text(text)) => pattern.read(text),
            (Self::GoLayout(layout), JsonScalar::Text(text)) => layout.read(text),
            (_, other) => Err(reason_of_kind(other).into()),
        };
        read.map_err(|reason| self.refuse(seen(value), reason))
    }

    /// The revision as a JSON token: a number, or a string with the time in UTC as in RFC 3339.
    pub fn render(&self, revision: Revision) -> String {
        match self {
            Self::Integer => revision.value().to_string(),
            Self::Rfc3339 | Self::Strftime(_) | Self::GoLayout(_) => format!("\"{}\"", rfc3339::Utc(revision)),
        }
    }

    pub(crate) fn refuse(&self, seen: String, reason: impl Into<Reason>) -> ReadError {
        ReadError { seen, expected: self.expected(), reason: reason.into() }
    }

    fn expected(&self) -> String {
        match self {
            Self::Integer => format!("an integer between {INTEGER_MIN} and {INTEGER_MAX}"),
            Self::Rfc3339 => "a time as in RFC 3339, such as \"2006-01-02T15:04:05Z\"".to_owned(),
            Self::Strftime(pattern) => format!("a time in the pattern {:?}", pattern.as_str()),
            Self::GoLayout(layout) => format!("a time in the layout {:?}", layout.as_str()),
        }
    }
}

/// Why a text is not a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("format {format:?} has {bytes} bytes, at most {FORMAT_BYTES_MAX} are allowed")]
    TooLong { format: String, bytes: usize },
    #[error(
        "format {format:?} cannot be used: {reason}; a format is rfc3339, a strftime pattern such as \"%Y-%m-%d\", \
         a Go layout such as \"2006-01-02\", or left out for an integer"
    )]
    Unusable { format: String, reason: Reason },
}

/// Why a value is not a revision. The value is shortened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{seen} is not {expected}: {reason}")]
pub struct ReadError {
    pub seen: String,
    pub expected: String,
    pub reason: Reason,
}

fn read_integer(number: i128) -> Result<Revision, Reason> {
    if (INTEGER_MIN..=INTEGER_MAX).contains(&number) { Ok(Revision(number)) } else { Err("it is out of range".into()) }
}

fn seen(value: &JsonScalar<'_>) -> String {
    match value {
        JsonScalar::Null => "null".to_owned(),
        JsonScalar::Bool(value) => value.to_string(),
        JsonScalar::Integer(number) => number.to_string(),
        // As JSON writes it, so that a fraction that is zero is seen, and a huge number stays short.
        JsonScalar::Float(number) => format!("{number:?}"),
        JsonScalar::Text(text) => format!("{:?}", excerpt(text)),
    }
}

fn reason_of_kind(value: &JsonScalar<'_>) -> &'static str {
    match value {
        JsonScalar::Null => "it is null",
        JsonScalar::Bool(_) => "it is a boolean",
        JsonScalar::Integer(_) => "it is a number",
        JsonScalar::Float(_) => "it is a number with a fraction or an exponent, or out of range",
        JsonScalar::Text(_) => "it is a string",
    }
}

#[cfg(test)]
mod tests;
