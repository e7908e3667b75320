//! How values travel to the server and back, in its binary form.

use std::error::Error;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flare_core::{OutletId, Sequence, StreamId, TokenId, revision::Revision, url::DocumentUrl};
use jiff::Timestamp;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

type Failure = Box<dyn Error + Sync + Send>;

/// Any id, as a `uuid`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Id(pub [u8; 16]);

impl From<StreamId> for Id {
    fn from(id: StreamId) -> Self {
        Self(*id.as_bytes())
    }
}

impl From<OutletId> for Id {
    fn from(id: OutletId) -> Self {
        Self(*id.as_bytes())
    }
}

impl From<TokenId> for Id {
    fn from(id: TokenId) -> Self {
        Self(*id.as_bytes())
    }
}

impl ToSql for Id {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Failure> {
        out.put_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Id {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Failure> {
        Ok(Self(raw.try_into()?))
    }

    accepts!(UUID);
}

/// A time, as a `timestamptz`: microseconds since the year 2000.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time(pub Timestamp);

const MICROS_TO_2000: i64 = 946_684_800_000_000;

impl ToSql for Time {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Failure> {
        out.put_i64(self.0.as_microsecond() - MICROS_TO_2000);
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Time {
    fn from_sql(_: &Type, mut raw: &'a [u8]) -> Result<Self, Failure> {
        let micros = raw.try_get_i64()?.checked_add(MICROS_TO_2000).ok_or("a time out of range")?;
        Ok(Self(Timestamp::from_microsecond(micros)?))
    }

    accepts!(TIMESTAMPTZ);
}

/// A revision, as a `numeric`: digits of base 10 000, the highest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Number(pub Revision);

const BASE: u128 = 10_000;
const NEGATIVE: u16 = 0x4000;

impl ToSql for Number {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Failure> {
        let value = self.0.value();
        let (mut rest, mut digits) = (value.unsigned_abs(), [0u16; 10]);
        let mut count = 0;
        while rest > 0 {
            digits[count] = (rest % BASE) as u16;
            rest /= BASE;
            count += 1;
        }
        out.put_u16(count as u16);
        out.put_i16(count as i16 - 1);
        out.put_u16(if value < 0 { NEGATIVE } else { 0 });
        out.put_u16(0);
        for digit in digits[..count].iter().rev() {
            out.put_u16(*digit);
        }
        Ok(IsNull::No)
    }

    accepts!(NUMERIC);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Number {
    fn from_sql(_: &Type, mut raw: &'a [u8]) -> Result<Self, Failure> {
        let (count, weight) = (raw.try_get_u16()?, raw.try_get_i16()?);
        let (sign, _scale) = (raw.try_get_u16()?, raw.try_get_u16()?);
        let mut value: i128 = 0;
        // Zeros at the end are not sent.
        for place in 0..=i32::from(weight) {
            let digit = if place < i32::from(count) { raw.try_get_u16()? } else { 0 };
            let digit = i128::from(if sign == NEGATIVE { -i32::from(digit) } else { i32::from(digit) });
            value = value
                .checked_mul(BASE as i128)
                .and_then(|value| value.checked_add(digit))
                .ok_or("a revision out of range")?;
        }
        Ok(Self(Revision::new(value)))
    }

    accepts!(NUMERIC);
}

/// JSON as it is written, as a `json` or a `jsonb`.
#[derive(Clone, Debug)]
pub(crate) struct Json(pub Bytes);

/// What a `jsonb` starts with on its way.
const JSONB_LAYOUT: u8 = 1;

impl ToSql for Json {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Failure> {
        if *kind == Type::JSONB {
            out.put_u8(JSONB_LAYOUT);
        }
        out.put_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(JSON, JSONB);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Json {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Failure> {
        let text = match raw.split_first() {
            Some((&JSONB_LAYOUT, text)) if *kind == Type::JSONB => text,
            _ if *kind == Type::JSONB => return Err("an unknown layout of jsonb".into()),
            _ => raw,
        };
        Ok(Self(Bytes::copy_from_slice(text)))
    }

    accepts!(JSON, JSONB);
}

/// The name of a document, as a `text`.
#[derive(Clone, Debug)]
pub(crate) struct Url(pub DocumentUrl);

impl ToSql for Url {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Failure> {
        out.put_slice(self.0.as_str().as_bytes());
        Ok(IsNull::No)
    }

    accepts!(TEXT);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Url {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Failure> {
        Ok(Self(DocumentUrl::parse(std::str::from_utf8(raw)?)?))
    }

    accepts!(TEXT);
}

/// A sequence as the server counts. What is past its numbers is past all sequences that there are.
pub(crate) fn bigint(sequence: Sequence) -> i64 {
    i64::try_from(sequence.0).unwrap_or(i64::MAX)
}

pub(crate) fn sequence(value: i64) -> Sequence {
    Sequence(u64::try_from(value).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(value: i128) -> i128 {
        let mut raw = BytesMut::new();
        Number(Revision::new(value)).to_sql(&Type::NUMERIC, &mut raw).unwrap();
        Number::from_sql(&Type::NUMERIC, &raw).unwrap().0.value()
    }

    #[test]
    fn revisions_go_there_and_back() {
        for value in [0, 1, -1, 9_999, 10_000, -10_000, 123_456_789, i128::from(u64::MAX), i128::MAX, i128::MIN] {
            assert_eq!(there_and_back(value), value);
        }
    }

    #[test]
    fn zeros_at_the_end_that_the_server_leaves_out_are_read() {
        // 30 000 000 as the server sends it: one digit, of weight one.
        let raw = [0, 1, 0, 1, 0, 0, 0, 0, 0x0b, 0xb8];
        assert_eq!(Number::from_sql(&Type::NUMERIC, &raw).unwrap().0, Revision::new(30_000_000));
    }

    #[test]
    fn times_go_there_and_back() {
        for micros in [0, -1, 1_700_000_000_123_456] {
            let mut raw = BytesMut::new();
            Time(Timestamp::from_microsecond(micros).unwrap()).to_sql(&Type::TIMESTAMPTZ, &mut raw).unwrap();
            assert_eq!(Time::from_sql(&Type::TIMESTAMPTZ, &raw).unwrap().0.as_microsecond(), micros);
        }
    }
}
