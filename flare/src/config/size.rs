//! Sizes in bytes as people write them: `64KiB`, `1MiB`, or a plain number.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Units with their bytes; the binary ones come first, large to small, because sizes are written with them.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
];

/// The largest size that can be configured; more than any machine has, and far from overflow.
const BYTES_MAX: u64 = 1 << 50;

/// A number of bytes: `1MiB`, `64KiB`, `10MB` or a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Written", into = "String")]
#[schemars(try_from = "String", extend("format" = "size"))]
pub struct ByteSize(u64);

/// A size as it stands in a file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Text(String),
}

impl ByteSize {
    /// So many units of 1024 bytes.
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// So many units of 1024 × 1024 bytes.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The size in bytes for buffers and slices.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    fn bounded(bytes: u64, written: &str) -> Result<Self, String> {
        if bytes <= BYTES_MAX {
            Ok(Self(bytes))
        } else {
            Err(format!("{written} is too large a size; the most is {}", Self(BYTES_MAX)))
        }
    }
}

impl From<ByteSize> for String {
    fn from(size: ByteSize) -> Self {
        size.to_string()
    }
}

impl TryFrom<Written> for ByteSize {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Number(bytes) => Self::bounded(bytes, &bytes.to_string()),
            Written::Text(text) => text.parse(),
        }
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim_start_matches(' ');
        let multiple = match unit {
            "" => Some(1),
            _ => UNITS.iter().find(|(name, _)| *name == unit).map(|(_, size)| *size),
        };
        match (number.is_empty(), multiple) {
            (false, Some(multiple)) => {
                let number: u64 = number.parse().unwrap_or(u64::MAX);
                Self::bounded(number.saturating_mul(multiple), &format!("{text:?}"))
            }
            (true, _) => Err(wrong(text, "it does not begin with a whole number")),
            (false, None) => Err(wrong(text, &format!("{unit:?} is not a unit"))),
        }
    }
}

fn wrong(text: &str, reason: &str) -> String {
    format!(
        "{text:?} is not a size ({reason}); write a whole number of bytes, or one with a unit (B, KiB, MiB, GiB, TiB, \
         KB, MB, GB, TB), such as \"64KiB\" or \"1MiB\""
    )
}

impl fmt::Display for ByteSize {
    /// The largest binary unit that divides the size: `1MiB`, `1500B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS.iter().find(|(_, size)| self.0 >= *size && self.0.is_multiple_of(*size));
        let (unit, size) = exact.copied().unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        let check = |text: &str, bytes: u64, written: &str| {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!(size.bytes(), bytes, "{text}");
            assert_eq!(size.to_string(), written);
        };
        check("1MiB", 1 << 20, "1MiB");
        check("64 KiB", 65_536, "64KiB");
        check("1048576", 1 << 20, "1MiB");
        check("1500", 1500, "1500B");
        check("10MB", 10_000_000, "10000000B");
        check("0", 0, "0B");
    }

    #[test]
    fn a_wrong_size_says_why() {
        let check = |text: &str, reason: &str| {
            let error = text.parse::<ByteSize>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        };
        check("", "does not begin with a whole number");
        check("MiB", "does not begin with a whole number");
        check("1M", "\"M\" is not a unit");
        check("1.5MiB", "\".5MiB\" is not a unit");
        check("-1", "does not begin with a whole number");
        check("99999999999TiB", "too large");
        check("99999999999999999999999", "too large");
    }
}
