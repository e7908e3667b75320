//! What the server knows of a table.

use std::sync::Arc;

use super::{DIALECT, Place, literal};
use crate::error::{Error, Result};
use crate::value::{Column, Kind, Schema};

/// Marks a column of text that holds ObjectIds.
pub(super) const OBJECT_ID_COMMENT: &str = "flare:objectid";

/// A table as it is.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub schema: Schema,
    /// The types of the columns for casts.
    pub types: Vec<String>,
    pub rows: Option<u64>,
    pub bytes: Option<u64>,
    /// Whether it lies in blocks of its own, which can be read by their numbers.
    pub has_blocks: bool,
    /// Columns that the server fills itself and nobody may write.
    pub generated: Vec<Arc<str>>,
}

/// The table, if it exists.
pub(super) async fn table(place: &Place) -> Result<Option<Table>> {
    let name = literal(&place.name());
    let found = place
        .pool
        .rows(&format!(
            "SELECT c.oid::text, c.relkind::text, c.reltuples::bigint::text, pg_total_relation_size(c.oid)::text \
             FROM pg_class c WHERE c.oid = to_regclass({name})"
        ))
        .await?;
    let Some(found) = found.first() else { return Ok(None) };
    let text = |at: usize| found.get(at).unwrap_or_default();
    let (oid, kind) = (text(0), text(1));
    if !matches!(kind, "r" | "p" | "v" | "m" | "f") {
        return Err(Error::invalid(format!("{} is no table", place.name())));
    }
    let columns = place
        .pool
        .rows(&format!(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull::text, \
             coalesce(col_description(a.attrelid, a.attnum), ''), a.attgenerated::text, t.typtype::text, \
             CASE WHEN a.atttypmod > 4 AND a.atttypid = 1700 THEN \
             ((a.atttypmod - 4) >> 16)::text || ',' || ((a.atttypmod - 4) & 2047)::text END \
             FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid \
             WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
        ))
        .await?;
    let mut table = Table {
        schema: Schema::default(),
        types: Vec::new(),
        rows: text(2).parse::<i64>().ok().and_then(|rows| u64::try_from(rows).ok()),
        bytes: text(3).parse().ok(),
        has_blocks: matches!(kind, "r" | "m"),
        generated: Vec::new(),
    };
    for column in &columns {
        let text = |at: usize| column.get(at).unwrap_or_default();
        let (name, native) = (Arc::<str>::from(text(0)), text(1).to_owned());
        if !text(4).is_empty() {
            table.generated.push(Arc::clone(&name));
        }
        let kind = kind_of(&native, text(3), column.get(6));
        let nullable = text(2) != "true" && text(2) != "t";
        let native_name = (kind != Kind::ObjectId).then(|| format!("{DIALECT}:{native}"));
        table.schema.columns.push(Column { name, kind, nullable, native: native_name });
        table.types.push(native);
    }
    table.schema.key = key(place, oid).await?;
    Ok(Some(table))
}

/// The columns of the primary key, else of the first unique index without null.
async fn key(place: &Place, oid: &str) -> Result<Vec<Arc<str>>> {
    let rows = place
        .pool
        .rows(&format!(
            "SELECT i.indexrelid::text, a.attname FROM pg_index i \
             CROSS JOIN LATERAL unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY AS k(attnum, at) \
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum \
             WHERE i.indrelid = {oid} AND i.indisunique AND i.indisvalid AND i.indimmediate \
             AND i.indpred IS NULL AND i.indexprs IS NULL \
             AND NOT EXISTS (SELECT 1 FROM unnest(i.indkey[0:i.indnkeyatts - 1]) AS c(attnum) \
                JOIN pg_attribute n ON n.attrelid = i.indrelid AND n.attnum = c.attnum WHERE NOT n.attnotnull) \
             ORDER BY i.indisprimary DESC, i.indnkeyatts, i.indexrelid, k.at"
        ))
        .await?;
    let first = rows.first().and_then(|row| row.get(0)).unwrap_or_default();
    let of_first = rows.iter().filter(|row| row.get(0) == Some(first));
    Ok(of_first.filter_map(|row| row.get(1)).map(Arc::from).collect())
}

fn kind_of(native: &str, comment: &str, digits: Option<&str>) -> Kind {
    let base = native.split('(').next().unwrap_or(native).trim();
    match base {
        "boolean" => Kind::Bool,
        "smallint" => Kind::Int16,
        "integer" => Kind::Int32,
        "bigint" => Kind::Int64,
        "real" => Kind::Float32,
        "double precision" => Kind::Float64,
        "bytea" => Kind::Bytes,
        "date" => Kind::Date,
        "uuid" => Kind::Uuid,
        "json" => Kind::Json,
        "jsonb" => Kind::JsonBinary,
        "text" if comment == OBJECT_ID_COMMENT => Kind::ObjectId,
        "numeric" => {
            let digits = digits.and_then(|digits| digits.split_once(','));
            Kind::Decimal(digits.and_then(|(all, behind)| Some((all.parse().ok()?, behind.parse().ok()?))))
        }
        _ if native.ends_with("[]") => Kind::Text,
        "time" | "time without time zone" if native.ends_with("without time zone") => Kind::Time,
        "timestamp" | "timestamp without time zone" if native.ends_with("without time zone") => Kind::DateTime,
        "timestamp" | "timestamp with time zone" if native.ends_with("with time zone") => Kind::Instant,
        _ => Kind::Text,
    }
}

/// The type of a new column.
pub(super) fn type_of(column: &Column) -> String {
    if let Some(native) = column.native_of(DIALECT) {
        return native.to_owned();
    }
    match column.kind {
        Kind::Bool => "boolean",
        Kind::Int16 => "smallint",
        Kind::Int32 => "integer",
        Kind::Int64 => "bigint",
        Kind::Decimal(Some((precision, scale))) => return format!("numeric({precision},{scale})"),
        Kind::Decimal(None) => "numeric",
        Kind::Float32 => "real",
        Kind::Float64 => "double precision",
        Kind::Text | Kind::ObjectId => "text",
        Kind::Bytes => "bytea",
        Kind::Date => "date",
        Kind::Time => "time",
        Kind::DateTime => "timestamp",
        Kind::Instant => "timestamptz",
        Kind::Uuid => "uuid",
        Kind::Json => "json",
        Kind::JsonBinary => "jsonb",
    }
    .to_owned()
}
