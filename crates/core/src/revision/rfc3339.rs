//! Times as in RFC 3339, read and written.

use std::fmt;

use super::{Reason, Revision, civil::Civil, cursor::Cursor};

/// Reads `2006-01-02T15:04:05.999Z`; `t`, `z` and a space instead of `T` are allowed, and no zone means UTC.
///
/// A leap second counts as the last nanosecond of the second before it, so that it never comes after what follows.
pub(super) fn read(text: &str) -> Result<Revision, Reason> {
    let mut cursor = Cursor::new(text);
    let mut civil = date_and_time(&mut cursor).ok_or("it is not written so")?;
    if cursor.eat(b".").is_some() {
        civil.nanosecond = cursor.fraction(cursor.digits().max(1))?;
    }
    if civil.second == 60 {
        (civil.second, civil.nanosecond) = (59, 999_999_999);
    }
    civil.offset_seconds = offset_seconds(&mut cursor).ok_or("its zone is neither Z nor an offset such as +07:00")?;
    if !cursor.is_at_end() {
        return Err("there is more text after it".into());
    }
    civil.revision()
}

/// A revision as a time in UTC, with as many digits of a fraction as it needs.
pub(super) struct Utc(pub(super) Revision);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Civil { year, month, day, hour, minute, second, nanosecond, .. } = Civil::of(self.0);
        // No format reads a year that needs a sign; bytes from elsewhere must still be shown.
        if (0..=9999).contains(&year) {
            write!(f, "{year:04}")?;
        } else {
            write!(f, "{year:+05}")?;
        }
        write!(f, "-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if nanosecond != 0 {
            let digits = format!("{nanosecond:09}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

fn date_and_time(cursor: &mut Cursor<'_>) -> Option<Civil> {
    let year = cursor.number(4, 4)?;
    cursor.eat(b"-")?;
    let month = cursor.number(2, 2)?;
    cursor.eat(b"-")?;
    let day = cursor.number(2, 2)?;
    cursor.eat(b"Tt ")?;
    let hour = cursor.number(2, 2)?;
    cursor.eat(b":")?;
    let minute = cursor.number(2, 2)?;
    cursor.eat(b":")?;
    let second = cursor.number(2, 2)?;
    Some(Civil { year: year.into(), month, day, hour, minute, second, nanosecond: 0, offset_seconds: 0 })
}

fn offset_seconds(cursor: &mut Cursor<'_>) -> Option<i32> {
    if cursor.is_at_end() || cursor.eat(b"Zz").is_some() {
        return Some(0);
    }
    let sign = cursor.eat(b"+-")?;
    let hour = cursor.number(2, 2).filter(|hour| *hour < 24)?;
    cursor.eat(b":")?;
    let minute = cursor.number(2, 2).filter(|minute| *minute < 60)?;
    let seconds = i32::try_from(hour * 3600 + minute * 60).ok()?;
    Some(if sign == b'-' { -seconds } else { seconds })
}
