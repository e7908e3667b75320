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

    /// Whether a column of so many digits, of which some are behind the point, holds it with every digit that counts.
    pub fn fits(&self, precision: u16, scale: u16) -> bool {
        // Columns with more digits behind the point than there are in all, and numbers that are none, are left to the target.
        let Some(before_max) = precision.checked_sub(scale).filter(|_| self.is_finite()) else { return true };
        let text = self.0.strip_prefix('-').unwrap_or(&self.0);
        let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let Ok(exponent) = exponent.parse::<i64>() else { return false };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{fraction}");
        let significant = digits.trim_start_matches('0');
        let zeros = (digits.len() - significant.len()) as i64;
        let significant = significant.trim_end_matches('0').len() as i64;
        if significant == 0 {
            return true;
        }
        let before = (whole.len() as i64 - zeros).saturating_add(exponent);
        before <= i64::from(before_max) && significant.saturating_sub(before) <= i64::from(scale)
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
    fn a_number_fits_where_no_digit_is_cut_off() {
        let check = |text: &str, fits: bool| assert_eq!(Decimal::parse(text).unwrap().fits(4, 2), fits, "{text}");
        for text in ["0", "-0.000", "99.99", "1.250", "12E0", "1E+1", "0.01", "100E-2", "NaN"] {
            check(text, true);
        }
        for text in ["100", "1.255", "0.001", "1E+2", "1E-3", "-123.4", "1E99999999999999999999"] {
            check(text, false);
        }
        assert!(Decimal::parse("0.00012").unwrap().fits(3, 5));
    }

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
