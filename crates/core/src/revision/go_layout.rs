//! Layouts of Go's `time` package: the reference time, Mon Jan 2 15:04:05 MST 2006, written as the values are.
//!
//! A layout is split once into tokens and the literal text between them, by Go's own rules. Reading a value is in
//! [`super::go_reader`]. Go fills what a layout lacks with zeros; here a layout must have a full date and a clock
//! without gaps, because revisions that lack them would not be in the order of time.

use super::Reason;

/// A valid layout under which times keep their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoLayout {
    text: Box<str>,
    pub(super) pieces: Box<[Piece]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Literal(Box<str>),
    Token(Token),
}

/// What a part of a value means. `Padded` numbers have all their digits, others may leave out zeros in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Year,
    YearOfCentury,
    Month,
    MonthPadded,
    MonthName,
    MonthShortName,
    WeekdayName,
    WeekdayShortName,
    Day,
    DaySpaced,
    DayPadded,
    YearDaySpaced,
    YearDayPadded,
    Hour,
    Hour12,
    Hour12Padded,
    Minute,
    MinutePadded,
    Second,
    SecondPadded,
    /// Exactly so many digits after a point or a comma.
    Fraction(usize),
    /// Any number of digits after a point or a comma, or nothing at all.
    FractionOptional,
    NoonUpper,
    NoonLower,
    ZoneName,
    Zone(Zone),
}

/// An offset from UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Zone {
    /// Whether UTC is written `Z`.
    pub(super) has_z: bool,
    pub(super) has_minutes: bool,
    pub(super) has_seconds: bool,
    pub(super) has_colons: bool,
}

const fn zone(has_z: bool, has_minutes: bool, has_seconds: bool, has_colons: bool) -> Token {
    Token::Zone(Zone { has_z, has_minutes, has_seconds, has_colons })
}

/// All tokens but fractions. Where one is the start of another the longer stands first.
const TOKENS: [(&str, Token); 33] = [
    ("January", Token::MonthName),
    ("Jan", Token::MonthShortName),
    ("Monday", Token::WeekdayName),
    ("Mon", Token::WeekdayShortName),
    ("MST", Token::ZoneName),
    ("01", Token::MonthPadded),
    ("02", Token::DayPadded),
    ("03", Token::Hour12Padded),
    ("04", Token::MinutePadded),
    ("05", Token::SecondPadded),
    ("06", Token::YearOfCentury),
    ("002", Token::YearDayPadded),
    ("15", Token::Hour),
    ("1", Token::Month),
    ("2006", Token::Year),
    ("2", Token::Day),
    ("__2", Token::YearDaySpaced),
    ("_2", Token::DaySpaced),
    ("3", Token::Hour12),
    ("4", Token::Minute),
    ("5", Token::Second),
    ("PM", Token::NoonUpper),
    ("pm", Token::NoonLower),
    ("-07:00:00", zone(false, true, true, true)),
    ("-070000", zone(false, true, true, false)),
    ("-07:00", zone(false, true, false, true)),
    ("-0700", zone(false, true, false, false)),
    ("-07", zone(false, false, false, false)),
    ("Z07:00:00", zone(true, true, true, true)),
    ("Z070000", zone(true, true, true, false)),
    ("Z07:00", zone(true, true, false, true)),
    ("Z0700", zone(true, true, false, false)),
    ("Z07", zone(true, false, false, false)),
];

impl GoLayout {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn parse(text: &str) -> Result<Self, Reason> {
        let pieces = pieces_of(text);
        let tokens: Vec<_> = pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Token(token) => Some(*token),
                Piece::Literal(_) => None,
            })
            .collect();
        check_order(&tokens)?;
        Ok(Self { text: text.into(), pieces: pieces.into() })
    }
}

fn pieces_of(layout: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = layout;
    while let Some(first) = rest.chars().next() {
        let Some((token, bytes)) = token_at(rest) else {
            literal.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        if !literal.is_empty() {
            pieces.push(Piece::Literal(std::mem::take(&mut literal).into()));
        }
        pieces.push(Piece::Token(token));
        rest = &rest[bytes..];
    }
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal.into()));
    }
    pieces
}

/// The token that the text starts with, and its length.
fn token_at(text: &str) -> Option<(Token, usize)> {
    if text.starts_with("_2006") {
        // An underscore before a year is only that.
        return None;
    }
    let is_token = |(name, token): &(&str, Token)| {
        // `Month` and `Janitor` are words, not names of a day or a month.
        let is_short_name = matches!(token, Token::MonthShortName | Token::WeekdayShortName);
        let rest = text.strip_prefix(name);
        rest.is_some_and(|rest| !is_short_name || !rest.starts_with(|next: char| next.is_ascii_lowercase()))
    };
    let known = TOKENS.into_iter().find(is_token).map(|(name, token)| (token, name.len()));
    known.or_else(|| fraction_at(text))
}

/// A fraction is a point or a comma and one or more of `0` or of `9`, with no other digit after them.
fn fraction_at(text: &str) -> Option<(Token, usize)> {
    let digits = text.strip_prefix(['.', ','])?;
    let first = digits.chars().next().filter(|first| matches!(first, '0' | '9'))?;
    let rest = digits.trim_start_matches(first);
    if rest.starts_with(|next: char| next.is_ascii_digit()) {
        return None;
    }
    let count = digits.len() - rest.len();
    let token = if first == '0' { Token::Fraction(count) } else { Token::FractionOptional };
    Some((token, 1 + count))
}

/// Refuses a layout whose values would not be in the order of time.
fn check_order(tokens: &[Token]) -> Result<(), Reason> {
    use Token::*;
    let has = |any: &[Token]| tokens.iter().any(|token| any.contains(token));
    let has_month = has(&[Month, MonthPadded, MonthName, MonthShortName]);
    let has_day = has(&[Day, DaySpaced, DayPadded]);
    let has_hour12 = has(&[Hour12, Hour12Padded]);
    let has_minute = has(&[Minute, MinutePadded]);
    let has_second = has(&[Second, SecondPadded]);
    let has_fraction = tokens.iter().any(|token| matches!(token, Fraction(_) | FractionOptional));
    let checks = [
        (has(&[Year, YearOfCentury]), "it has no year, 2006 or 06"),
        (
            has_month && has_day || has(&[YearDaySpaced, YearDayPadded]),
            "it has no day: 01 and 02 for month and day, or 002 for the day of the year",
        ),
        (!has_hour12 || has(&[NoonUpper, NoonLower]), "the hour 03 needs PM, or write 15 for 24 hours"),
        (!has_minute || has_hour12 || has(&[Hour]), "it has minutes but no hour, 15"),
        (!has_second || has_minute, "it has seconds but no minute, 04"),
        (!has_fraction || has_second, "it has a fraction but no second, 05"),
    ];
    match checks.into_iter().find(|(holds, _)| !holds) {
        Some((_, reason)) => Err(reason.into()),
        None => Ok(()),
    }
}
