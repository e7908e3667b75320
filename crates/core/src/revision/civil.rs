//! A date and time of day as written, and the instant it stands for.
//!
//! The proleptic Gregorian calendar, by the well-known arithmetic on eras of 400 years that start on the first of
//! March, so that a leap day is the last day of its year.

use super::{Reason, Revision};

const SECONDS_PER_DAY: i128 = 24 * 60 * 60;
const NANOSECONDS_PER_SECOND: i128 = 1_000_000_000;
const DAYS_PER_ERA: i128 = 146_097;
const YEARS_PER_ERA: i128 = 400;
/// From the first of March of the year 0 to the epoch.
const DAYS_BEFORE_EPOCH: i128 = 719_468;

/// The years that can be written with four digits, in UTC.
const YEAR_MIN: i128 = 0;
const YEAR_MAX: i128 = 9999;

/// A local time and its distance from UTC. The fields are checked when it becomes a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Civil {
    pub(super) year: i128,
    pub(super) month: u32,
    pub(super) day: u32,
    pub(super) hour: u32,
    pub(super) minute: u32,
    pub(super) second: u32,
    pub(super) nanosecond: u32,
    pub(super) offset_seconds: i32,
}

impl Civil {
    /// Nanoseconds since the epoch. The time must exist, and its year in UTC must have four digits.
    pub(super) fn revision(&self) -> Result<Revision, Reason> {
        let is_in_range = |value: u32, max: u32, name: &'static str| {
            if value <= max { Ok(()) } else { Err(Reason::from(format!("the {name} is out of range"))) }
        };
        if !(1..=12).contains(&self.month) {
            return Err("the month is out of range".into());
        }
        if !(1..=days_in_month(self.year, self.month)).contains(&self.day) {
            return Err("the day is out of range".into());
        }
        is_in_range(self.hour, 23, "hour")?;
        is_in_range(self.minute, 59, "minute")?;
        is_in_range(self.second, 59, "second")?;
        let time = i128::from(self.hour) * 3600 + i128::from(self.minute) * 60 + i128::from(self.second);
        let days = days_of(self.year, self.month, self.day);
        let seconds = days * SECONDS_PER_DAY + time - i128::from(self.offset_seconds);
        let first = days_of(YEAR_MIN, 1, 1) * SECONDS_PER_DAY;
        let end = days_of(YEAR_MAX + 1, 1, 1) * SECONDS_PER_DAY;
        if !(first..end).contains(&seconds) {
            return Err("in UTC it is outside the years 0000 to 9999".into());
        }
        Ok(Revision::new(seconds * NANOSECONDS_PER_SECOND + i128::from(self.nanosecond)))
    }

    /// The time in UTC of any revision.
    pub(super) fn of(revision: Revision) -> Self {
        let seconds = revision.value().div_euclid(NANOSECONDS_PER_SECOND);
        let (year, month, day) = date_of(seconds.div_euclid(SECONDS_PER_DAY));
        let time = below(seconds.rem_euclid(SECONDS_PER_DAY));
        Self {
            year,
            month,
            day,
            hour: time / 3600,
            minute: time / 60 % 60,
            second: time % 60,
            nanosecond: below(revision.value().rem_euclid(NANOSECONDS_PER_SECOND)),
            offset_seconds: 0,
        }
    }
}

pub(super) fn is_leap(year: i128) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// The days of a month between 1 and 12.
pub(super) fn days_in_month(year: i128, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the epoch to a date.
fn days_of(year: i128, month: u32, day: u32) -> i128 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = i128::from((month + 9) % 12);
    let (era, year_of_era) = (year.div_euclid(YEARS_PER_ERA), year.rem_euclid(YEARS_PER_ERA));
    let day_of_year = (153 * month + 2) / 5 + i128::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - DAYS_BEFORE_EPOCH
}

/// The date that is so many days after the epoch.
fn date_of(days: i128) -> (i128, u32, u32) {
    let days = days + DAYS_BEFORE_EPOCH;
    let (era, day_of_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = below(day_of_year - (153 * month + 2) / 5 + 1);
    let month = below((month + 2) % 12 + 1);
    let year = era * YEARS_PER_ERA + year_of_era;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

fn below(remainder: i128) -> u32 {
    u32::try_from(remainder).expect("a remainder of a small divisor is small and not negative")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_day_has_one_date(days in -5_000_000_i128..5_000_000) {
            let (year, month, day) = date_of(days);
            prop_assert!((1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day));
            prop_assert_eq!(days_of(year, month, day), days);
            prop_assert!(date_of(days + 1) > (year, month, day));
        }

        #[test]
        fn the_calendar_is_that_of_jiff(
            seconds in -62_167_219_200_i128..253_402_207_200,
            nanosecond in 0..1_000_000_000_i128,
        ) {
            let timestamp = jiff::Timestamp::from_nanosecond(seconds * NANOSECONDS_PER_SECOND + nanosecond).unwrap();
            let zoned = timestamp.to_zoned(jiff::tz::TimeZone::UTC);
            let revision = Revision::new(timestamp.as_nanosecond());
            let civil = Civil::of(revision);
            prop_assert_eq!(civil.year, i128::from(zoned.year()));
            prop_assert_eq!(civil.month, u32::try_from(zoned.month()).unwrap());
            prop_assert_eq!(civil.day, u32::try_from(zoned.day()).unwrap());
            prop_assert_eq!(civil.second, u32::try_from(zoned.second()).unwrap());
            prop_assert_eq!(civil.revision(), Ok(revision));
        }

        #[test]
        fn every_number_has_a_time(value in any::<i128>()) {
            let civil = Civil::of(Revision::new(value));
            if let Ok(revision) = civil.revision() {
                prop_assert_eq!(revision.value(), value);
            }
        }
    }
}
