//! What the server knows of a table, and types for new ones.

use std::sync::Arc;

use super::encode::literal;
use super::{DIALECT, Place, identifier, identifiers};
use crate::error::{Error, ErrorKind, Result};
use crate::value::{Column, Kind, Schema};

/// Comments on columns say what is in them, where the server has no type for it.
const MARKED: &[(&str, Kind)] = &[
    ("flare:uuid", Kind::Uuid),
    ("flare:objectid", Kind::ObjectId),
    ("flare:json", Kind::Json),
    ("flare:timestamp", Kind::Instant),
];

/// An index of InnoDB has at most so many bytes, and a character four.
const KEY_BYTES_MAX: usize = 3072;
/// The most digits of a decimal, and of those behind the point.
const DECIMAL_MAX: (u16, u16) = (65, 30);

/// A table as it is.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub schema: Schema,
    /// For each column, the name of its type without lengths.
    pub types: Vec<String>,
    /// Columns that the server fills itself and nobody may write.
    pub generated: Vec<Arc<str>>,
    /// The index of the key.
    pub index: Option<String>,
    pub is_view: bool,
    pub engine: String,
    pub rows: Option<u64>,
    pub bytes: Option<u64>,
}

impl Table {
    /// The name of a column's type.
    pub fn type_of(&self, name: &str) -> &str {
        let at = self.schema.columns.iter().position(|column| &*column.name == name);
        at.and_then(|at| self.types.get(at)).map_or("", String::as_str)
    }
}

/// The table, if it exists.
pub(super) async fn table(place: &Place) -> Result<Option<Table>> {
    let wanted = format!("TABLE_SCHEMA = {} AND TABLE_NAME = {}", place.schema_expression(), literal(&place.table));
    let sql = format!(
        "SELECT TABLE_TYPE, COALESCE(ENGINE, ''), COALESCE(TABLE_ROWS, ''), COALESCE(DATA_LENGTH, '') \
         FROM information_schema.TABLES WHERE {wanted}"
    );
    let found = place.server.texts(&sql).await?;
    let Some([kind, engine, rows, bytes]) = found.first().map(Vec::as_slice) else { return Ok(None) };
    let sql = format!(
        "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLUMN_COMMENT, EXTRA, \
         COALESCE(CHARACTER_SET_NAME, ''), COALESCE(COLLATION_NAME, ''), \
         COALESCE(NUMERIC_PRECISION, ''), COALESCE(NUMERIC_SCALE, '') \
         FROM information_schema.COLUMNS WHERE {wanted} ORDER BY ORDINAL_POSITION"
    );
    let mut table = Table {
        schema: Schema::default(),
        types: Vec::new(),
        generated: Vec::new(),
        index: None,
        is_view: kind.contains("VIEW"),
        engine: engine.clone(),
        rows: rows.parse().ok(),
        bytes: bytes.parse().ok(),
    };
    let json = json_columns(place).await?;
    for column in place.server.texts(&sql).await? {
        let [name, data_type, column_type, nullable, comment, extra, charset, collation, precision, scale] =
            column.as_slice()
        else {
            return Err(Error::failed("the server describes its columns in a way that is not known"));
        };
        let name: Arc<str> = Arc::from(name.as_str());
        if extra.to_ascii_uppercase().contains("GENERATED") && !extra.to_ascii_uppercase().contains("DEFAULT_GENERATED")
        {
            table.generated.push(Arc::clone(&name));
        }
        let digits = precision.parse().ok().zip(scale.parse().ok());
        let is_json = json.iter().any(|json| json == &*name);
        let kind = kind_of(data_type, column_type, comment, digits, is_json);
        let is_marked = MARKED.iter().any(|(mark, _)| mark == comment);
        let mut native = format!("{DIALECT}:{}", if is_json { "json" } else { column_type });
        if !is_json && !charset.is_empty() && !data_type.eq_ignore_ascii_case("json") {
            native = format!("{native} CHARACTER SET {charset} COLLATE {collation}");
        }
        let native = (!is_marked).then_some(native);
        table.schema.columns.push(Column { name, kind, nullable: nullable == "YES", native });
        table.types.push(data_type.to_ascii_lowercase());
    }
    (table.index, table.schema.key) = key(place, &table.schema, &wanted).await?;
    Ok(Some(table))
}

/// The primary key, else the unique index with the fewest columns that takes no null.
async fn key(place: &Place, schema: &Schema, wanted: &str) -> Result<(Option<String>, Vec<Arc<str>>)> {
    let sql = format!(
        "SELECT INDEX_NAME, COALESCE(COLUMN_NAME, ''), COALESCE(SUB_PART, '') FROM information_schema.STATISTICS \
         WHERE {wanted} AND NON_UNIQUE = 0 ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX"
    );
    let rows = place.server.texts(&sql).await?;
    let mut best: Option<(String, Vec<Arc<str>>)> = None;
    for parts in rows.chunk_by(|one, other| one[0] == other[0]) {
        let is_whole =
            |part: &Vec<String>| part[2].is_empty() && schema.column(&part[1]).is_some_and(|column| !column.nullable);
        let is_better = best.as_ref().is_none_or(|(name, columns)| name != "PRIMARY" && parts.len() < columns.len());
        if is_better && parts.iter().all(is_whole) {
            best = Some((parts[0][0].clone(), parts.iter().map(|part| Arc::from(part[1].as_str())).collect()));
        }
    }
    Ok(best.map_or((None, Vec::new()), |(name, columns)| (Some(name), columns)))
}

/// MariaDB has JSON as text with a rule.
async fn json_columns(place: &Place) -> Result<Vec<String>> {
    let sql = format!(
        "SELECT CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS \
         WHERE CONSTRAINT_SCHEMA = {} AND TABLE_NAME = {}",
        place.schema_expression(),
        literal(&place.table)
    );
    let rules = match place.server.texts(&sql).await {
        Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
        // Servers without such rules have no such table, or another one.
        rules => rules.unwrap_or_default(),
    };
    let column = |rule: &Vec<String>| {
        let name = rule.first()?.strip_prefix("json_valid(`")?.strip_suffix("`)")?;
        Some(name.replace("``", "`"))
    };
    Ok(rules.iter().filter_map(column).collect())
}

fn kind_of(data_type: &str, column_type: &str, comment: &str, digits: Option<(u16, u16)>, is_json: bool) -> Kind {
    if let Some((_, kind)) = MARKED.iter().find(|(mark, _)| *mark == comment) {
        return *kind;
    }
    let column_type = column_type.to_ascii_lowercase();
    let is_unsigned = column_type.contains("unsigned");
    match data_type.to_ascii_lowercase().as_str() {
        "tinyint" if column_type.starts_with("tinyint(1)") && !is_unsigned => Kind::Bool,
        "tinyint" | "year" => Kind::Int16,
        "smallint" if is_unsigned => Kind::Int32,
        "smallint" => Kind::Int16,
        "mediumint" => Kind::Int32,
        "int" if is_unsigned => Kind::Int64,
        "int" => Kind::Int32,
        "bigint" if is_unsigned => Kind::Decimal(Some((20, 0))),
        "bit" if column_type == "bit(64)" => Kind::Decimal(Some((20, 0))),
        "bigint" | "bit" => Kind::Int64,
        "decimal" => Kind::Decimal(digits),
        "float" => Kind::Float32,
        "double" => Kind::Float64,
        "date" => Kind::Date,
        "time" => Kind::Time,
        "datetime" => Kind::DateTime,
        "timestamp" => Kind::Instant,
        "uuid" => Kind::Uuid,
        "json" => Kind::JsonBinary,
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Kind::Bytes,
        "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring" | "multipolygon"
        | "geometrycollection" | "geomcollection" => Kind::Bytes,
        _ if is_json => Kind::Json,
        _ => Kind::Text,
    }
}

/// The statement for a new table.
pub(super) async fn create_table(place: &Place, name: &str, schema: &Schema) -> Result<String> {
    // Keys of other stores tell apart what these do not: letters by case, and spaces at the end.
    let collations = place.server.texts("SHOW COLLATION WHERE Charset = 'utf8mb4'").await?;
    let exact = ["utf8mb4_nopad_bin", "utf8mb4_0900_bin"];
    let exact = exact.iter().find(|exact| collations.iter().any(|row| row[0] == **exact)).unwrap_or(&"utf8mb4_bin");
    let mut parts: Vec<String> = schema
        .columns
        .iter()
        .map(|column| {
            let is_key = schema.key.contains(&column.name);
            let null = if column.nullable && !is_key { "NULL" } else { "NOT NULL" };
            let sql_type = new_type(column, is_key.then_some(schema.key.len()), exact);
            let mark = MARKED.iter().find(|(_, kind)| *kind == column.kind && column.native_of(DIALECT).is_none());
            let comment = mark.map(|(mark, _)| format!(" COMMENT {}", literal(mark))).unwrap_or_default();
            format!("{} {sql_type} {null}{comment}", identifier(&column.name))
        })
        .collect();
    if !schema.key.is_empty() {
        parts.push(format!("PRIMARY KEY ({})", identifiers(&schema.key)));
    }
    Ok(format!("CREATE TABLE IF NOT EXISTS {name} ({}) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4", parts.join(", ")))
}

/// The type of a new column; `key` is how many columns share the key that it is part of.
fn new_type(column: &Column, key: Option<usize>, exact: &str) -> String {
    if let Some(native) = column.native_of(DIALECT) {
        return native.to_owned();
    }
    match (column.kind, key) {
        (Kind::Bool, _) => "BOOLEAN".to_owned(),
        (Kind::Int16, _) => "SMALLINT".to_owned(),
        (Kind::Int32, _) => "INT".to_owned(),
        (Kind::Int64, _) => "BIGINT".to_owned(),
        (Kind::Decimal(digits), _) => {
            let (precision, scale) = digits.unwrap_or(DECIMAL_MAX);
            format!("DECIMAL({},{})", precision.clamp(1, DECIMAL_MAX.0), scale.min(DECIMAL_MAX.1))
        }
        (Kind::Float32, _) => "FLOAT".to_owned(),
        (Kind::Float64, _) => "DOUBLE".to_owned(),
        (Kind::Bytes, None) => "LONGBLOB".to_owned(),
        (Kind::Bytes, Some(columns)) => format!("VARBINARY({})", KEY_BYTES_MAX / columns),
        (Kind::Date, _) => "DATE".to_owned(),
        (Kind::Time, _) => "TIME(6)".to_owned(),
        // A TIMESTAMP of the server ends in 2038.
        (Kind::DateTime | Kind::Instant, _) => "DATETIME(6)".to_owned(),
        (Kind::Uuid, _) => "CHAR(36) CHARACTER SET ascii COLLATE ascii_bin".to_owned(),
        (Kind::ObjectId, _) => "CHAR(24) CHARACTER SET ascii COLLATE ascii_bin".to_owned(),
        (Kind::JsonBinary, None) => "JSON".to_owned(),
        (Kind::Text | Kind::Json, None) => "LONGTEXT".to_owned(),
        (Kind::Text | Kind::Json | Kind::JsonBinary, Some(columns)) => {
            format!("VARCHAR({}) CHARACTER SET utf8mb4 COLLATE {exact}", KEY_BYTES_MAX / 4 / columns)
        }
    }
}
