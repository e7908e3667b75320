//! JSON that loses nothing.
//!
//! Numbers keep their digits, fields their order. What JSON has no type for is written in MongoDB's extended JSON
//! (version 2, relaxed), with four forms of our own for what that lacks: `{"$day": "2024-01-31"}`, `{"$time":
//! "12:30:00"}`, `{"$datetime": "2024-01-31T12:30:00"}` (no zone), and `{"$verbatim": {…}}` around a document that
//! only looks like such a form. [`Style::Plain`] writes strings instead, for readers that know nothing of this.

mod extended;
mod read;
mod write;

pub(crate) use self::extended::instant_of_millis;
pub use self::read::{parse, parse_plain};
pub use self::write::{Style, write, write_document, write_text};

use crate::value::Value;

/// How deep documents may be nested.
pub const DEPTH_MAX: usize = 200;

/// The value as extended JSON.
pub fn to_string(value: &Value) -> String {
    let mut out = Vec::new();
    write(value, Style::Extended, &mut out);
    String::from_utf8(out).expect("JSON is written as UTF-8")
}

#[cfg(test)]
mod tests;
