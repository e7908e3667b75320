//! Times in a strftime pattern, as jiff reads them.

use jiff::{
    Timestamp,
    civil::{DateTime, date},
    fmt::strtime::{self, BrokenDownTime},
    tz::{Offset, TimeZone},
};

use super::{FORMAT_BYTES_MAX, Reason, Revision, civil::Civil};

/// A valid pattern under which times keep their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strftime(Box<str>);

impl Strftime {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// jiff tells what a pattern can do only by doing it. So a few times are written and read again: all parts must
    /// be readable, there must be a date, and later times must not come out earlier (as they do when the hour is
    /// written without am and pm).
    pub(super) fn parse(text: &str) -> Result<Self, Reason> {
        debug_assert!(text.len() <= FORMAT_BYTES_MAX);
        let pattern = Self(text.into());
        let mut last = None;
        for sample in samples() {
            let revision = pattern.read(&write(text, sample)?)?;
            if last.is_some_and(|last| revision < last) {
                return Err("it does not keep times in order".into());
            }
            last = Some(revision);
        }
        Ok(pattern)
    }

    pub(super) fn read(&self, text: &str) -> Result<Revision, Reason> {
        let parts = BrokenDownTime::parse(&*self.0, text).map_err(|error| reason(&error))?;
        if parts.iana_time_zone().is_some() {
            return Err("names of time zones are not supported: write the offset".into());
        }
        if let Some(timestamp) = parts.timestamp() {
            return revision_of_timestamp(timestamp, parts.subsec_nanosecond().unwrap_or(0));
        }
        let time = parts.to_datetime().map_err(|error| reason(&error))?;
        civil(time, parts.offset().unwrap_or(Offset::UTC)).revision()
    }
}

/// Times in ascending order, one and the next differing in the clock, the day, the month or the year.
fn samples() -> [DateTime; 6] {
    [
        date(2001, 2, 3).at(4, 5, 6, 789_000_000),
        date(2001, 2, 3).at(16, 4, 5, 600_000_000),
        date(2001, 2, 4).at(3, 2, 1, 100_000_000),
        date(2001, 3, 1).at(2, 1, 0, 0),
        date(2001, 11, 12).at(12, 0, 59, 0),
        date(2002, 1, 1).at(0, 59, 0, 0),
    ]
}

fn write(pattern: &str, time: DateTime) -> Result<String, Reason> {
    let zoned = time.to_zoned(TimeZone::UTC).map_err(|error| reason(&error))?;
    strtime::format(pattern, &zoned).map_err(|error| reason(&error))
}

/// `%s` has whole seconds; a fraction beside it continues them away from zero.
fn revision_of_timestamp(timestamp: Timestamp, fraction: i32) -> Result<Revision, Reason> {
    let whole = timestamp.as_nanosecond();
    let fraction = i128::from(if whole < 0 { -fraction } else { fraction });
    Civil::of(Revision::new(whole + fraction)).revision()
}

fn civil(time: DateTime, offset: Offset) -> Civil {
    let positive = |field: i8| u32::try_from(field).unwrap_or(0);
    Civil {
        year: time.year().into(),
        month: positive(time.month()),
        day: positive(time.day()),
        hour: positive(time.hour()),
        minute: positive(time.minute()),
        second: positive(time.second()),
        nanosecond: u32::try_from(time.subsec_nanosecond()).unwrap_or(0),
        offset_seconds: offset.seconds(),
    }
}

fn reason(error: &jiff::Error) -> Reason {
    error.to_string().into()
}
