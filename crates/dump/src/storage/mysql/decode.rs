//! Values of the binary protocol.

use mysql_async::{Row as MySqlRow, Value as MySqlValue};

use crate::row::Row;
use crate::value::{Decimal, Kind, Value, from_hex, uuid_from_text};

/// What is known of a column that is read.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub kind: Kind,
    /// The name of the type without lengths.
    pub data_type: String,
}

/// The row with the columns in order.
pub(super) fn row(row: MySqlRow, fields: &[Field]) -> Row {
    let mut cells = Vec::with_capacity(fields.len());
    for (value, field) in row.unwrap().into_iter().zip(fields) {
        match cell(value, field) {
            Ok(value) => cells.push(value),
            Err(reason) => return Row::bad(format!("after {} columns that can be read", cells.len()), reason),
        }
    }
    Row::Cells(cells)
}

/// The value of a cell. What no type of ours holds (zero dates, times past a day) is the text that the server shows.
pub(super) fn cell(value: MySqlValue, field: &Field) -> Result<Value, String> {
    Ok(match value {
        MySqlValue::NULL => Value::Null,
        MySqlValue::Int(number @ 0..=1) if field.kind == Kind::Bool => Value::Bool(number == 1),
        MySqlValue::Int(number) => Value::Int(number),
        MySqlValue::UInt(number) => unsigned(number),
        // The float with the fewest digits that is this one.
        MySqlValue::Float(number) => Value::Float(number.to_string().parse().unwrap_or(f64::from(number))),
        MySqlValue::Double(number) => Value::Float(number),
        MySqlValue::Date(year, month, day, hour, minute, second, micros) => {
            let (date, time) = ([year as i16, month.into(), day.into()], [hour, minute, second].map(|part| part as i8));
            datetime(date, time, micros, field)
        }
        MySqlValue::Time(is_negative, days, hour, minute, second, micros) => {
            let hours = u64::from(days) * 24 + u64::from(hour);
            time(is_negative, hours, [minute, second], micros)
        }
        MySqlValue::Bytes(bytes) => of_bytes(bytes, field)?,
    })
}

fn unsigned(number: u64) -> Value {
    match i64::try_from(number) {
        Ok(number) => Value::Int(number),
        Err(_) => Value::Decimal(Decimal::parse(&number.to_string()).expect("digits are a number")),
    }
}

fn datetime([year, month, day]: [i16; 3], [hour, minute, second]: [i8; 3], micros: u32, field: &Field) -> Value {
    let date = jiff::civil::Date::new(year, month as i8, day as i8).ok().filter(|_| year > 0);
    let time = jiff::civil::Time::new(hour, minute, second, (micros * 1000) as i32).ok();
    let known = date.zip(time).map(|(date, time)| match field.kind {
        Kind::Date => Some(Value::Date(date)),
        Kind::Instant => jiff::tz::Offset::UTC.to_timestamp(date.to_datetime(time)).ok().map(Value::Instant),
        _ => Some(Value::DateTime(date.to_datetime(time))),
    });
    known.flatten().unwrap_or_else(|| {
        let date = format!("{year:04}-{month:02}-{day:02}");
        if field.data_type == "date" {
            return Value::Text(date);
        }
        let fraction = if micros == 0 { String::new() } else { format!(".{micros:06}") };
        Value::Text(format!("{date} {hour:02}:{minute:02}:{second:02}{fraction}"))
    })
}

fn time(is_negative: bool, hours: u64, [minute, second]: [u8; 2], micros: u32) -> Value {
    if !is_negative
        && hours < 24
        && let Ok(time) = jiff::civil::Time::new(hours as i8, minute as i8, second as i8, (micros * 1000) as i32)
    {
        return Value::Time(time);
    }
    let sign = if is_negative { "-" } else { "" };
    let fraction = if micros == 0 { String::new() } else { format!(".{micros:06}") };
    Value::Text(format!("{sign}{hours:02}:{minute:02}:{second:02}{fraction}"))
}

fn of_bytes(bytes: Vec<u8>, field: &Field) -> Result<Value, String> {
    if field.data_type == "bit" {
        return Ok(unsigned(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))));
    }
    if field.kind == Kind::Bytes {
        return Ok(Value::Bytes(bytes));
    }
    let text = String::from_utf8(bytes).map_err(|_| format!("a value of type {} is not UTF-8", field.data_type))?;
    let read = match field.kind {
        Kind::Decimal(_) => Decimal::parse(&text).map(Value::Decimal),
        Kind::Uuid => uuid_from_text(&text).map(Value::Uuid),
        Kind::ObjectId => from_hex(text.as_bytes()).and_then(|bytes| bytes.try_into().ok()).map(Value::ObjectId),
        Kind::Json | Kind::JsonBinary => return Ok(Value::Json(text.into())),
        _ => None,
    };
    Ok(read.unwrap_or(Value::Text(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn what_no_type_of_ours_holds_is_the_text_of_the_server() {
        let check = |value: MySqlValue, kind: Kind, data_type: &str, expected: &str| {
            let field = Field { kind, data_type: data_type.to_owned() };
            assert_eq!(json::to_string(&cell(value, &field).unwrap()), expected);
        };
        let date = |year, month, day| MySqlValue::Date(year, month, day, 0, 0, 0, 0);
        check(date(0, 0, 0), Kind::Date, "date", "\"0000-00-00\"");
        check(date(2024, 2, 0), Kind::Date, "date", "\"2024-02-00\"");
        check(date(0, 0, 0), Kind::Instant, "timestamp", "\"0000-00-00 00:00:00\"");
        check(date(2024, 2, 29), Kind::Date, "date", "{\"$day\":\"2024-02-29\"}");
        check(MySqlValue::Time(true, 34, 22, 59, 59, 0), Kind::Time, "time", "\"-838:59:59\"");
        check(MySqlValue::Time(false, 1, 0, 0, 0, 5), Kind::Time, "time", "\"24:00:00.000005\"");
        check(MySqlValue::Time(false, 0, 23, 59, 59, 5), Kind::Time, "time", "{\"$time\":\"23:59:59.000005\"}");
        check(MySqlValue::UInt(u64::MAX), Kind::Decimal(None), "bigint", "18446744073709551615");
        check(MySqlValue::Bytes(vec![1, 0]), Kind::Int64, "bit", "256");
        check(MySqlValue::Float(0.1), Kind::Float32, "float", "0.1");
        check(MySqlValue::Int(1), Kind::Bool, "tinyint", "true");
        check(MySqlValue::Int(7), Kind::Bool, "tinyint", "7");
    }
}
