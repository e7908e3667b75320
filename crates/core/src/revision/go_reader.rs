//! Reads a value in a Go layout, with the tolerance and the strictness of Go's `time.Parse`.
//!
//! It departs from Go where Go would lose the order of revisions. A fraction finer than nanoseconds is refused instead
//! of cut. An abbreviation of a zone counts with its offset, and is refused if that is not known; Go takes all of them
//! for UTC.

use super::{
    Reason, Revision,
    civil::{Civil, days_in_month},
    cursor::Cursor,
    go_layout::{GoLayout, Piece, Token, Zone},
    go_zone,
};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const MONTHS_SHORT: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const WEEKDAYS_SHORT: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

/// Two-digit years from here on are of the twentieth century.
const YEAR_OF_CENTURY_1900S: u32 = 69;

impl GoLayout {
    pub(super) fn read(&self, text: &str) -> Result<Revision, Reason> {
        let mut reader = Reader { cursor: Cursor::new(text), parts: Parts::default() };
        for (at, piece) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Literal(literal) => reader.literal(literal)?,
                Piece::Token(token) => reader.token(*token, &self.pieces[at + 1..])?,
            }
        }
        if !reader.cursor.is_at_end() {
            return Err("there is more text after it".into());
        }
        reader.parts.revision()
    }
}

struct Reader<'v> {
    cursor: Cursor<'v>,
    parts: Parts<'v>,
}

/// What has been read so far.
#[derive(Default)]
struct Parts<'v> {
    year: u32,
    month: Option<u32>,
    day: Option<u32>,
    year_day: Option<u32>,
    hour: u32,
    is_after_noon: Option<bool>,
    minute: u32,
    second: u32,
    nanosecond: u32,
    /// The zone was written `Z` or `UTC`.
    is_utc: bool,
    offset_seconds: Option<i32>,
    zone_name: Option<&'v [u8]>,
}

impl<'v> Reader<'v> {
    /// A space in the layout stands for one or more in the value, or for its end.
    fn literal(&mut self, literal: &str) -> Result<(), Reason> {
        let mut rest = literal.as_bytes();
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            if *first != b' ' {
                self.cursor.eat(&[*first]).ok_or_else(|| Reason::from(format!("{literal:?} is missing")))?;
                continue;
            }
            if self.cursor.peek(0).is_some_and(|byte| byte != b' ') {
                return Err("a space is missing".into());
            }
            self.cursor.skip_spaces();
            let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
            rest = &rest[spaces..];
        }
        Ok(())
    }

    fn token(&mut self, token: Token, rest: &[Piece]) -> Result<(), Reason> {
        match token {
            Token::Year | Token::YearOfCentury => self.year(token),
            Token::Month | Token::MonthPadded | Token::MonthName | Token::MonthShortName => self.month(token),
            Token::WeekdayName => self.word(&WEEKDAYS).map(drop),
            Token::WeekdayShortName => self.word(&WEEKDAYS_SHORT).map(drop),
            Token::Day | Token::DaySpaced | Token::DayPadded => self.day(token),
            Token::YearDaySpaced | Token::YearDayPadded => self.year_day(token),
            Token::Hour => self.number(false, "hour", 23).map(|hour| self.parts.hour = hour),
            Token::Hour12 => self.number(false, "hour", 12).map(|hour| self.parts.hour = hour),
            Token::Hour12Padded => self.number(true, "hour", 12).map(|hour| self.parts.hour = hour),
            Token::Minute => self.number(false, "minute", 59).map(|minute| self.parts.minute = minute),
            Token::MinutePadded => self.number(true, "minute", 59).map(|minute| self.parts.minute = minute),
            Token::Second | Token::SecondPadded => self.second(token == Token::SecondPadded, rest),
            Token::Fraction(digits) => self.fraction(digits),
            Token::FractionOptional if self.is_at_fraction() => self.whole_fraction(),
            Token::FractionOptional => Ok(()),
            Token::NoonUpper => self.noon("AM", "PM"),
            Token::NoonLower => self.noon("am", "pm"),
            Token::ZoneName => self.zone_name(),
            Token::Zone(zone) => self.zone(zone),
        }
    }

    fn year(&mut self, token: Token) -> Result<(), Reason> {
        let digits = if token == Token::Year { 4 } else { 2 };
        let year = self.cursor.number(digits, digits).ok_or("the year is missing")?;
        self.parts.year = match token {
            Token::Year => year,
            _ if year >= YEAR_OF_CENTURY_1900S => 1900 + year,
            _ => 2000 + year,
        };
        Ok(())
    }

    fn month(&mut self, token: Token) -> Result<(), Reason> {
        let month = match token {
            Token::MonthName => self.word(&MONTHS)? + 1,
            Token::MonthShortName => self.word(&MONTHS_SHORT)? + 1,
            _ => self.number(token == Token::MonthPadded, "month", 12)?,
        };
        if month == 0 {
            return Err("the month is out of range".into());
        }
        self.parts.month = Some(month);
        Ok(())
    }

    fn day(&mut self, token: Token) -> Result<(), Reason> {
        if token == Token::DaySpaced {
            self.cursor.eat(b" ");
        }
        self.parts.day = Some(self.number(token == Token::DayPadded, "day", 31)?);
        Ok(())
    }

    fn year_day(&mut self, token: Token) -> Result<(), Reason> {
        let digits_min = if token == Token::YearDayPadded { 3 } else { 1 };
        if token == Token::YearDaySpaced && self.cursor.eat(b" ").is_some() {
            self.cursor.eat(b" ");
        }
        self.parts.year_day = Some(self.cursor.number(digits_min, 3).ok_or("the day of the year is missing")?);
        Ok(())
    }

    /// Go reads a fraction after the seconds even if the layout has none.
    fn second(&mut self, is_padded: bool, rest: &[Piece]) -> Result<(), Reason> {
        self.parts.second = self.number(is_padded, "second", 59)?;
        let next = rest.iter().find_map(|piece| match piece {
            Piece::Token(token) => Some(*token),
            Piece::Literal(_) => None,
        });
        let has_own_fraction = matches!(next, Some(Token::Fraction(_) | Token::FractionOptional));
        if has_own_fraction || !self.is_at_fraction() { Ok(()) } else { self.whole_fraction() }
    }

    fn is_at_fraction(&self) -> bool {
        matches!(self.cursor.peek(0), Some(b'.' | b',')) && self.cursor.is_digit(1)
    }

    fn whole_fraction(&mut self) -> Result<(), Reason> {
        let mut digits = self.cursor;
        digits.take(1);
        self.fraction(digits.digits())
    }

    fn fraction(&mut self, digits: usize) -> Result<(), Reason> {
        self.cursor.eat(b".,").ok_or("the fraction of the second is missing")?;
        self.parts.nanosecond = self.cursor.fraction(digits)?;
        Ok(())
    }

    fn noon(&mut self, before: &str, after: &str) -> Result<(), Reason> {
        let is_after = self.cursor.starts_with(after);
        if !is_after && !self.cursor.starts_with(before) {
            return Err(format!("{before} or {after} is missing").into());
        }
        self.cursor.take(2);
        self.parts.is_after_noon = Some(is_after);
        Ok(())
    }

    fn zone(&mut self, zone: Zone) -> Result<(), Reason> {
        if zone.has_z && self.cursor.eat(b"Z").is_some() {
            self.parts.is_utc = true;
            return Ok(());
        }
        let offset =
            go_zone::offset_seconds(&mut self.cursor, zone).ok_or("the zone is not an offset as in the layout")?;
        self.parts.offset_seconds = Some(offset);
        Ok(())
    }

    fn zone_name(&mut self) -> Result<(), Reason> {
        if self.cursor.starts_with("UTC") {
            self.cursor.take(3);
            self.parts.is_utc = true;
            return Ok(());
        }
        let name = go_zone::name(&mut self.cursor).ok_or("the abbreviation of the zone is missing")?;
        self.parts.zone_name = Some(name);
        Ok(())
    }

    fn word(&mut self, words: &[&str]) -> Result<u32, Reason> {
        let which = self.cursor.eat_word(words).ok_or("a name of a month or a day is missing")?;
        Ok(u32::try_from(which).unwrap_or(0))
    }

    fn number(&mut self, is_padded: bool, name: &'static str, max: u32) -> Result<u32, Reason> {
        let digits_min = if is_padded { 2 } else { 1 };
        let number = self.cursor.number(digits_min, 2).ok_or_else(|| Reason::from(format!("the {name} is missing")))?;
        if number > max { Err(format!("the {name} is out of range").into()) } else { Ok(number) }
    }
}

impl Parts<'_> {
    fn revision(&self) -> Result<Revision, Reason> {
        let (month, day) = self.month_and_day()?;
        let hour = match self.is_after_noon {
            Some(true) if self.hour < 12 => self.hour + 12,
            Some(false) if self.hour == 12 => 0,
            _ => self.hour,
        };
        let civil = Civil {
            year: self.year.into(),
            month,
            day,
            hour,
            minute: self.minute,
            second: self.second,
            nanosecond: self.nanosecond,
            offset_seconds: self.offset()?,
        };
        civil.revision()
    }

    /// A day of the year must agree with the month and the day, where these are written too.
    fn month_and_day(&self) -> Result<(u32, u32), Reason> {
        let Some(mut day) = self.year_day else {
            return Ok((self.month.unwrap_or(1), self.day.unwrap_or(1)));
        };
        let mut month = 1;
        while month <= 12 && day > days_in_month(self.year.into(), month) {
            day -= days_in_month(self.year.into(), month);
            month += 1;
        }
        if month > 12 || day == 0 {
            return Err("the day of the year is out of range".into());
        }
        if self.month.is_some_and(|written| written != month) || self.day.is_some_and(|written| written != day) {
            return Err("the day of the year is not that of the month".into());
        }
        Ok((month, day))
    }

    fn offset(&self) -> Result<i32, Reason> {
        match (self.is_utc, self.offset_seconds, self.zone_name) {
            (true, _, _) | (_, None, None) => Ok(0),
            (_, Some(offset), _) => Ok(offset),
            (_, None, Some(name)) => go_zone::offset_of_name(name)
                .ok_or_else(|| "the zone's offset is not known: add -0700 to the layout".into()),
        }
    }
}
