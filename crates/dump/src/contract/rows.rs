//! Rows for the suites.

use std::sync::Arc;

use crate::row::{Names, Row, RowBatch};
use crate::value::{Column, Decimal, Kind, Schema, Value};

/// Rows `from..to` of a table with the columns `id` and `name`.
pub fn numbered(from: i64, to: i64) -> RowBatch {
    let mut batch = RowBatch::new(numbered_schema().names());
    for id in from..to {
        batch.push(Row::Cells(vec![Value::Int(id), Value::text(format!("row {id}"))]));
    }
    batch
}

pub(super) fn numbered_schema() -> Schema {
    let mut id = Column::new("id", Kind::Int64);
    id.nullable = false;
    Schema { columns: vec![id, Column::new("name", Kind::Text)], key: vec![Arc::from("id")], is_open: false }
}

/// A column of every type, with rows of usual values, of extremes, and of nulls.
pub fn all_kinds() -> (Schema, RowBatch) {
    let text = |text: &str| Value::text(text);
    let decimal = |text: &str| Value::Decimal(Decimal::parse(text).expect("the suite writes numbers"));
    let json = |text: &str| Value::Json(text.into());
    let columns: Vec<(&str, Kind, Value, Value)> = vec![
        ("id", Kind::Int64, Value::Int(1), Value::Int(i64::MIN)),
        ("bool", Kind::Bool, Value::Bool(true), Value::Bool(false)),
        ("small", Kind::Int16, Value::Int(-7), Value::Int(32767)),
        ("int", Kind::Int32, Value::Int(7), Value::Int(-2_147_483_648)),
        ("long", Kind::Int64, Value::Int(9_007_199_254_740_993), Value::Int(i64::MAX)),
        (
            "decimal",
            Kind::Decimal(Some((38, 10))),
            decimal("1.1000000000"),
            decimal("-1234567890123456789012345678.0123456789"),
        ),
        ("float", Kind::Float64, Value::Float(0.1), Value::Float(-1.7976931348623157e308)),
        ("text", Kind::Text, text("naïve ☃ 😀"), text("quote ' \" back \\ slash\ttab\nline\r\n, semi; %s \\N \\. ")),
        ("empty", Kind::Text, text(""), text("NULL")),
        ("bytes", Kind::Bytes, Value::Bytes(vec![0, 1, 254, 255]), Value::Bytes(Vec::new())),
        ("day", Kind::Date, Value::Date(jiff::civil::date(2024, 2, 29)), Value::Date(jiff::civil::date(1066, 10, 14))),
        (
            "time",
            Kind::Time,
            Value::Time(jiff::civil::time(23, 59, 59, 123_456_000)),
            Value::Time(jiff::civil::time(0, 0, 0, 0)),
        ),
        (
            "datetime",
            Kind::DateTime,
            Value::DateTime(jiff::civil::date(2024, 3, 31).at(2, 30, 0, 0)),
            Value::DateTime(jiff::civil::date(9999, 12, 31).at(23, 59, 59, 999_999_000)),
        ),
        ("instant", Kind::Instant, instant("2024-03-31T01:30:00.000001Z"), instant("1971-01-01T00:00:00Z")),
        ("uuid", Kind::Uuid, Value::Uuid([0x11; 16]), Value::Uuid([0xff; 16])),
        ("oid", Kind::ObjectId, Value::ObjectId([0x0a; 12]), Value::ObjectId([0xff; 12])),
        ("json", Kind::Json, json(r#"{"b":[1,2.50,"x"],"a":null}"#), json(r#"[12345678901234567890,"\u0001\"é"]"#)),
    ];
    let names: Names = columns.iter().map(|(name, ..)| Arc::from(*name)).collect();
    let mut batch = RowBatch::new(names);
    let nulls = columns.iter().enumerate().map(|(at, _)| if at == 0 { Value::Int(2) } else { Value::Null });
    batch.push(Row::Cells(nulls.collect()));
    batch.push(Row::Cells(columns.iter().map(|(_, _, usual, _)| usual.clone()).collect()));
    batch.push(Row::Cells(columns.iter().map(|(_, _, _, extreme)| extreme.clone()).collect()));
    let columns =
        columns.iter().map(|(name, kind, ..)| Column { nullable: *name != "id", ..Column::new(*name, *kind) });
    let schema = Schema { columns: columns.collect(), key: vec![Arc::from("id")], is_open: false };
    (schema, batch)
}

fn instant(text: &str) -> Value {
    Value::Instant(text.parse().expect("the suite writes timestamps"))
}
