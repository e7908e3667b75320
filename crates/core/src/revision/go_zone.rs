//! The zone of a value in a Go layout: an offset, or an abbreviation with Go's idea of what one looks like.

use super::{cursor::Cursor, go_layout::Zone};

/// Abbreviations that RFC 2822 gives an offset, in hours. All others are ambiguous.
const HOURS_OF_NAMES: [(&[u8], i32); 9] = [
    (b"GMT", 0),
    (b"EST", -5),
    (b"EDT", -4),
    (b"CST", -6),
    (b"CDT", -5),
    (b"MST", -7),
    (b"MDT", -6),
    (b"PST", -8),
    (b"PDT", -7),
];

const HOURS_MAX: u32 = 23;

/// Takes an offset as the layout writes it. Like Go it allows 24 hours, 60 minutes and 60 seconds.
pub(super) fn offset_seconds(cursor: &mut Cursor<'_>, zone: Zone) -> Option<i32> {
    let sign = cursor.eat(b"+-")?;
    let hours = cursor.number(2, 2).filter(|hours| *hours <= 24)?;
    let minutes = if zone.has_minutes { sixtieths(cursor, zone.has_colons)? } else { 0 };
    let seconds = if zone.has_seconds { sixtieths(cursor, zone.has_colons)? } else { 0 };
    let offset = i32::try_from(hours * 3600 + minutes * 60 + seconds).ok()?;
    Some(if sign == b'-' { -offset } else { offset })
}

/// Takes what looks like an abbreviation: three letters, four or five that end in T, GMT and hours, or only hours.
pub(super) fn name<'v>(cursor: &mut Cursor<'v>) -> Option<&'v [u8]> {
    let uppercase = (0..6).take_while(|at| cursor.peek(*at).is_some_and(|byte| byte.is_ascii_uppercase())).count();
    let ends_in_t = |length: usize| cursor.peek(length - 1) == Some(b'T');
    let length = if cursor.starts_with("ChST") || cursor.starts_with("MeST") || cursor.starts_with("WITA") {
        4
    } else if cursor.starts_with("GMT") {
        3 + signed_hours(cursor, 3).map_or(0, |(_, length)| length)
    } else if let Some((_, length)) = signed_hours(cursor, 0) {
        length
    } else {
        match uppercase {
            3 => 3,
            4 | 5 if ends_in_t(uppercase) => uppercase,
            _ => return None,
        }
    };
    cursor.take(length)
}

/// The offset of an abbreviation, if it has one that everybody agrees on.
pub(super) fn offset_of_name(name: &[u8]) -> Option<i32> {
    let text = std::str::from_utf8(name).ok()?;
    let known = HOURS_OF_NAMES.iter().find(|(known, _)| *known == name).map(|(_, hours)| *hours);
    let hours = known.or_else(|| {
        let hours = text.strip_prefix("GMT").unwrap_or(text);
        signed_hours(&Cursor::new(hours), 0).map(|(hours, _)| hours)
    })?;
    Some(hours * 3600)
}

fn sixtieths(cursor: &mut Cursor<'_>, has_colons: bool) -> Option<u32> {
    if has_colons {
        cursor.eat(b":")?;
    }
    cursor.number(2, 2).filter(|number| *number <= 60)
}

/// Signed hours such as `+3` so many bytes ahead, and how long they are.
fn signed_hours(cursor: &Cursor<'_>, ahead: usize) -> Option<(i32, usize)> {
    let mut cursor = *cursor;
    cursor.take(ahead)?;
    let sign = cursor.eat(b"+-")?;
    let digits = cursor.digits();
    let hours = cursor.number(1, 9).filter(|hours| *hours <= HOURS_MAX && digits <= 9)?;
    let hours = i32::try_from(hours).ok()?;
    Some((if sign == b'-' { -hours } else { hours }, 1 + digits))
}
