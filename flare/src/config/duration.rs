//! Lengths of time as people write them: `500ms`, `1s`, `1h30m`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest duration that can be configured: beyond it a clock could overflow.
const DAYS_MAX: u64 = 3660;

/// Units from long to short, in milliseconds. A duration of several parts names them in this order.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A length of time: whole numbers with units (`ms`, `s`, `m`, `h`, `d`), such as `500ms`, `72h` or `1h30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("format" = "duration"))]
pub struct Duration(std::time::Duration);

impl Duration {
    /// A duration of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(std::time::Duration::from_millis(millis))
    }

    /// A duration of whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(std::time::Duration::from_secs(seconds))
    }

    /// The duration for clocks and timers.
    pub const fn get(self) -> std::time::Duration {
        self.0
    }
}

impl From<Duration> for std::time::Duration {
    fn from(duration: Duration) -> Self {
        duration.0
    }
}

impl From<Duration> for String {
    fn from(duration: Duration) -> Self {
        duration.to_string()
    }
}

impl TryFrom<String> for Duration {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Duration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match total_millis(text) {
            Ok(millis) if millis <= DAYS_MAX * UNITS[0].1 => Ok(Self::from_millis(millis)),
            Ok(_) => Err(format!("{text:?} is too long a time; the most is {DAYS_MAX}d")),
            Err(reason) => Err(format!(
                "{text:?} is not a duration ({reason}); write whole numbers with a unit (ms, s, m, h, d), such as \
                 \"500ms\", \"1s\" or \"72h\""
            )),
        }
    }
}

/// Sums the parts of `1h30m`; saturates, so that the caller sees an absurd duration as too long.
fn total_millis(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    let mut total = 0u64;
    let mut longer_units = UNITS.len() + 1;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.len() - tail.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (unit, tail) = tail.split_at(letters);
        if number.is_empty() {
            return Err(format!("a whole number is expected at {rest:?}"));
        }
        if unit.is_empty() {
            return Err(format!("the unit after {number} is missing"));
        }
        let Some(position) = UNITS.iter().position(|(name, _)| *name == unit) else {
            return Err(format!("{unit:?} is not a unit"));
        };
        let remaining = UNITS.len() - position;
        if remaining >= longer_units {
            return Err(format!("{unit:?} may not come after a shorter or equal unit"));
        }
        longer_units = remaining;
        let number: u64 = number.parse().unwrap_or(u64::MAX);
        total = total.saturating_add(number.saturating_mul(UNITS[position].1));
        rest = tail;
    }
    Ok(total)
}

impl fmt::Display for Duration {
    /// The longest unit that divides the duration, hours at most: `72h`, `90s`, `1500ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if millis == 0 {
            return f.write_str("0s");
        }
        let exact = UNITS[1..].iter().find(|(_, size)| millis.is_multiple_of(*size));
        let (unit, size) = exact.copied().unwrap_or(("ms", 1));
        write!(f, "{}{unit}", millis / size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        let check = |text: &str, millis: u64, written: &str| {
            let duration: Duration = text.parse().unwrap();
            assert_eq!(duration, Duration::from_millis(millis), "{text}");
            assert_eq!(duration.to_string(), written);
        };
        check("500ms", 500, "500ms");
        check("1s", 1_000, "1s");
        check("60s", 60_000, "1m");
        check("75s", 75_000, "75s");
        check("1h30m", 5_400_000, "90m");
        check("3d", 259_200_000, "72h");
        check("1s500ms", 1_500, "1500ms");
        check("0s", 0, "0s");
    }

    #[test]
    fn a_wrong_duration_says_why() {
        let check = |text: &str, reason: &str| {
            let error = text.parse::<Duration>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        };
        check("", "it is empty");
        check("5", "the unit after 5 is missing");
        check("s", "a whole number is expected at \"s\"");
        check("1.5s", "the unit after 1 is missing");
        check("5x", "\"x\" is not a unit");
        check("5 s", "the unit after 5 is missing");
        check("-1s", "a whole number is expected at \"-1s\"");
        check("1m1h", "may not come after");
        check("1s1s", "may not come after");
        check("9999999999999999999999h", "too long");
        check("3661d", "too long");
        check("1é", "the unit after 1 is missing");
    }
}
