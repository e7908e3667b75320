//! What the file knows of a table.

use std::sync::Arc;

use rusqlite::Connection;

use super::{DIALECT, Place, failure, identifier};
use crate::error::Result;
use crate::value::{Column, Kind, Schema};

/// A table as it is.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub schema: Schema,
    /// The columns that it is walked by: those of the key, or the rowid; none for a view.
    pub walk: Vec<String>,
}

/// The table, if it exists.
pub(super) fn table(place: &Place, connection: &Connection) -> Result<Option<Table>> {
    let read = || -> rusqlite::Result<Option<Table>> {
        let sql = "SELECT type FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view')";
        let mut found = connection.prepare(sql)?;
        let Some(kind) = found.query_map([&place.table], |row| row.get::<_, String>(0))?.next().transpose()? else {
            return Ok(None);
        };
        let mut columns =
            connection.prepare("SELECT name, type, \"notnull\", pk, hidden FROM pragma_table_xinfo(?1)")?;
        let mut rows = columns.query([&place.table])?;
        let mut schema = Schema::default();
        let mut key: Vec<(i64, Arc<str>)> = Vec::new();
        while let Some(row) = rows.next()? {
            if row.get::<_, i64>(4)? != 0 {
                continue;
            }
            let (name, native): (String, String) = (row.get(0)?, row.get(1)?);
            let name: Arc<str> = Arc::from(name);
            let place_in_key: i64 = row.get(3)?;
            if place_in_key > 0 {
                key.push((place_in_key, Arc::clone(&name)));
            }
            let nullable = !row.get::<_, bool>(2)? && place_in_key == 0;
            let native_name = (!native.is_empty()).then(|| format!("{DIALECT}:{native}"));
            schema.columns.push(Column { name, kind: kind_of(&native), nullable, native: native_name });
        }
        key.sort();
        schema.key = key.into_iter().map(|(_, name)| name).collect();
        let mut walk: Vec<String> = schema.key.iter().map(|name| name.to_string()).collect();
        if kind == "view" {
            walk.clear();
        } else if has_rowid(place, connection) {
            // Smaller than any other key, and never null.
            walk = vec!["rowid".to_owned()];
        }
        Ok(Some(Table { schema, walk }))
    };
    read().map_err(|error| failure("cannot look at the table", error))
}

fn has_rowid(place: &Place, connection: &Connection) -> bool {
    connection.prepare(&format!("SELECT rowid FROM {} LIMIT 0", identifier(&place.table))).is_ok()
}

/// The declared type. SQLite keeps whatever it is given; this is how it is read.
fn kind_of(native: &str) -> Kind {
    let native = native.to_ascii_uppercase();
    let base = native.split('(').next().unwrap_or_default().trim();
    match base {
        "BOOLEAN" | "BOOL" => Kind::Bool,
        "SMALLINT" => Kind::Int16,
        "INT32" => Kind::Int32,
        "DECIMAL_TEXT" => {
            let digits =
                native.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).and_then(|d| d.split_once(','));
            Kind::Decimal(
                digits.and_then(|(all, behind)| Some((all.trim().parse().ok()?, behind.trim().parse().ok()?))),
            )
        }
        "DATE_TEXT" | "DATE" => Kind::Date,
        "TIME_TEXT" | "TIME" => Kind::Time,
        "DATETIME_TEXT" | "DATETIME" => Kind::DateTime,
        "TIMESTAMP_TEXT" | "TIMESTAMP" => Kind::Instant,
        "UUID_TEXT" | "UUID" => Kind::Uuid,
        "OBJECTID_TEXT" => Kind::ObjectId,
        "JSON_TEXT" | "JSON" => Kind::Json,
        "JSONB_TEXT" => Kind::JsonBinary,
        "FLOAT32" => Kind::Float32,
        _ if base.contains("INT") => Kind::Int64,
        _ if base.contains("BLOB") => Kind::Bytes,
        _ if ["REAL", "FLOA", "DOUB"].iter().any(|part| base.contains(part)) => Kind::Float64,
        "DECIMAL" | "NUMERIC" => Kind::Decimal(None),
        _ => Kind::Text,
    }
}

/// The type of a new column. `TEXT` in a name keeps SQLite from making a number of the digits.
pub(super) fn type_of(column: &Column) -> String {
    if let Some(native) = column.native_of(DIALECT) {
        return native.to_owned();
    }
    match column.kind {
        Kind::Bool => "BOOLEAN",
        Kind::Int16 => "SMALLINT",
        Kind::Int32 => "INT32",
        Kind::Int64 => "INTEGER",
        Kind::Decimal(Some((precision, scale))) => return format!("DECIMAL_TEXT({precision},{scale})"),
        Kind::Decimal(None) => "DECIMAL_TEXT",
        Kind::Float32 => "FLOAT32",
        Kind::Float64 => "REAL",
        Kind::Text => "TEXT",
        Kind::Bytes => "BLOB",
        Kind::Date => "DATE_TEXT",
        Kind::Time => "TIME_TEXT",
        Kind::DateTime => "DATETIME_TEXT",
        Kind::Instant => "TIMESTAMP_TEXT",
        Kind::Uuid => "UUID_TEXT",
        Kind::ObjectId => "OBJECTID_TEXT",
        Kind::Json => "JSON_TEXT",
        Kind::JsonBinary => "JSONB_TEXT",
    }
    .to_owned()
}
