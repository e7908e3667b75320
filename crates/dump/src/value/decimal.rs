//! Exact numbers as text.

use std::fmt;

/// A decimal number with every digit that it was written with, or `NaN`, `Infinity`, `-Infinity`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Decimal(Box<str>);

impl Decimal {
    /// The number, or `None` if the text is none.
    pub fn parse(text: &str) -> Option<Self> {
        let is_special = matches!(text, "NaN" | "Infinity" | "-Infinity");
        (is_special || is_number(text.as_bytes())).then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the text is a number for JSON too.
    pub fn is_finite(&self) -> bool {
        !self.0.ends_with(['N', 'y'])
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether the text is a number as JSON writes them.
pub(crate) fn is_number(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut rest = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits(rest);
    if whole == 0 || (whole > 1 && rest[0] == b'0') {
        return false;
    }
    rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let count = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = &fraction[count..];
    }
    if let Some(exponent) = rest.strip_prefix(b"e").or_else(|| rest.strip_prefix(b"E")) {
        let exponent = exponent.strip_prefix(b"+").or_else(|| exponent.strip_prefix(b"-")).unwrap_or(exponent);
        let count = digits(exponent);
        return count > 0 && count == exponent.len();
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_are_decimals() {
        for text in ["0", "-0", "1.10", "12345678901234567890", "1E+3", "1e-7", "NaN", "-Infinity"] {
            assert_eq!(Decimal::parse(text).unwrap().as_str(), text);
        }
        for text in ["", "-", "01", "1.", ".5", "1e", "0x1", "1 ", "nan", "Inf", "1.5.2", "1e5x"] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }
}
