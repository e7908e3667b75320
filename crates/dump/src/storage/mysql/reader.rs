//! Reading tables.

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};
use mysql_async::prelude::{Query, WithParams};
use mysql_async::{BinaryProtocol, ResultSetStream, Row as MySqlRow};
use tokio::sync::OnceCell;

use super::catalog::{self, Table};
use super::connection::failure;
use super::decode::{self, Field};
use super::{Place, encode, identifier, identifiers};
use crate::error::{Error, Result};
use crate::key::{Key, Range};
use crate::location::Location;
use crate::port::{Batches, Boundary, Description, Reader, Upper, Walk};
use crate::row::{Batch, Names, RowBatch};
use crate::storage::ReadOptions;
use crate::storage::sequence::{Cursor, Sequence};
use crate::value::{Kind, Value};

/// Reads a table.
pub struct MySqlReader {
    place: Place,
    options: ReadOptions,
    source: OnceCell<Arc<Source>>,
}

/// The table, once it was looked at.
struct Source {
    place: Place,
    table: Table,
    walk: Walk,
    names: Names,
    fields: Vec<Field>,
    key: Vec<KeyColumn>,
    sequence: Option<Sequence>,
}

/// A column of the key that is walked.
struct KeyColumn {
    /// The name in quotes.
    name: String,
    /// How its value is asked for.
    selected: String,
    field: Field,
}

impl MySqlReader {
    pub fn new(location: &Location, options: &ReadOptions) -> Result<Self> {
        Ok(Self { place: Place::read(location)?, options: options.clone(), source: OnceCell::new() })
    }

    async fn source(&self) -> Result<&Arc<Source>> {
        self.source.get_or_try_init(|| Source::look(&self.place, &self.options)).await
    }
}

impl Source {
    async fn look(place: &Place, options: &ReadOptions) -> Result<Arc<Self>> {
        let table = catalog::table(place).await?;
        let table = table.ok_or_else(|| Error::invalid(format!("there is no table {}", place.name())))?;
        let names: Vec<String> = match options.key.as_slice() {
            [] => table.schema.key.iter().map(|name| name.to_string()).collect(),
            named => named.to_vec(),
        };
        let key: Vec<KeyColumn> = names.iter().map(|name| KeyColumn::of(&table, name)).collect::<Result<_>>()?;
        let walk = match names.as_slice() {
            _ if options.by_offset => Walk::Offset,
            [] => Walk::Sequence,
            _ => Walk::Key(names),
        };
        let fields = table.schema.columns.iter().zip(&table.types);
        let fields: Vec<Field> =
            fields.map(|(column, data_type)| Field { kind: column.kind, data_type: data_type.clone() }).collect();
        let names = table.schema.names();
        let mut source = Self { place: place.clone(), table, walk, names, fields, key, sequence: None };
        if source.walk == Walk::Sequence {
            source.sequence = Some(source.cursor());
        }
        Ok(Arc::new(source))
    }

    /// One cursor over the whole table.
    fn cursor(&self) -> Sequence {
        let (place, names, fields) = (self.place.clone(), Arc::clone(&self.names), self.fields.clone());
        let sql = self.select("");
        Sequence::new(Arc::new(move || {
            let (place, names, fields) = (place.clone(), Arc::clone(&names), fields.clone());
            let sql = sql.clone();
            Box::pin(async move {
                let rows = stream_rows(&place, sql).await?;
                Ok(Box::new(Rows { rows, names, fields }) as Box<dyn Cursor>)
            })
        }))
    }

    fn select(&self, rest: &str) -> String {
        let columns = identifiers(self.names.iter());
        format!("SELECT {columns} FROM {}{} {rest}", self.place.name(), self.index())
    }

    /// The index of the key, where it is the table's own.
    fn index(&self) -> String {
        let Walk::Key(names) = &self.walk else { return String::new() };
        let is_own = self.table.schema.key.iter().map(|name| &**name).eq(names.iter().map(String::as_str));
        match &self.table.index {
            Some(index) if is_own => format!(" FORCE INDEX ({})", identifier(index)),
            _ => String::new(),
        }
    }

    /// The condition for keys past this one, or up to it. It is written out, since the server uses no index for
    /// `(a, b) > (1, 2)`.
    fn compared(&self, key: &Key, sign: &str, last_sign: &str) -> Result<String> {
        if key.0.len() != self.key.len() {
            return Err(Error::invalid(format!("{key} is no key of {}", self.place.name())));
        }
        let literals: Vec<String> =
            self.key.iter().zip(&key.0).map(|(column, value)| encode::key(value, column.field.kind)).collect();
        let alternatives = (0..literals.len()).map(|at| {
            let sign = if at + 1 == literals.len() { last_sign } else { sign };
            let same = (0..at).map(|before| format!("{} = {}", self.key[before].name, literals[before]));
            let other = format!("{} {sign} {}", self.key[at].name, literals[at]);
            same.chain([other]).collect::<Vec<_>>().join(" AND ")
        });
        Ok(format!("({})", alternatives.map(|all| format!("({all})")).collect::<Vec<_>>().join(" OR ")))
    }

    fn condition(&self, after: Option<&Key>, upto: Option<&Key>, last_sign: &str) -> Result<String> {
        let after = after.map(|key| self.compared(key, ">", ">")).transpose()?;
        let upto = upto.map(|key| self.compared(key, "<", last_sign)).transpose()?;
        let parts: Vec<String> = after.into_iter().chain(upto).collect();
        Ok(if parts.is_empty() { String::new() } else { format!("WHERE {}", parts.join(" AND ")) })
    }

    /// One key, in an order and so many rows further.
    async fn key_at(&self, condition: &str, direction: &str, skip: u64) -> Result<Option<Key>> {
        let columns: Vec<&str> = self.key.iter().map(|column| column.selected.as_str()).collect();
        let order: Vec<String> = self.key.iter().map(|column| format!("{} {direction}", column.name)).collect();
        let sql = format!(
            "SELECT {} FROM {}{} {condition} ORDER BY {} LIMIT 1 OFFSET {skip}",
            columns.join(", "),
            self.place.name(),
            self.index(),
            order.join(", ")
        );
        let rows = self.place.server.rows(&sql).await?;
        let Some(row) = rows.into_iter().next() else { return Ok(None) };
        let values = row.unwrap().into_iter().zip(&self.key).map(|(value, column)| decode::cell(value, &column.field));
        let values: Result<Vec<Value>, String> = values.collect();
        Ok(Some(Key(values.map_err(|reason| Error::failed(format!("a key cannot be read: {reason}")))?)))
    }

    /// The statement for the rows of a range.
    fn range(&self, range: &Range) -> Result<String> {
        if self.walk != Walk::Offset {
            return Ok(self.select(&self.condition(range.after.as_ref(), range.upto.as_ref(), "<=")?));
        }
        let from = position(range.after.as_ref());
        let rows = range.upto.as_ref().map_or(u64::MAX, |upto| position(Some(upto)).saturating_sub(from));
        let order: Vec<&str> = self.key.iter().map(|column| column.name.as_str()).collect();
        let order = if order.is_empty() { String::new() } else { format!("ORDER BY {} ", order.join(", ")) };
        Ok(self.select(&format!("{order}LIMIT {rows} OFFSET {from}")))
    }
}

impl KeyColumn {
    fn of(table: &Table, name: &str) -> Result<Self> {
        let column = table.schema.column(name);
        let column = column.ok_or_else(|| Error::invalid(format!("there is no column {name:?} to walk by")))?;
        if column.nullable && !table.is_view {
            return Err(Error::invalid(format!("the column {name:?} can be null: rows cannot be walked by it")));
        }
        let (data_type, quoted) = (table.type_of(name).to_owned(), identifier(name));
        let (selected, kind) = match data_type.as_str() {
            // They are ordered by their numbers.
            "enum" | "set" | "bit" => (format!("CAST({quoted} AS UNSIGNED)"), Kind::Decimal(None)),
            // As the float that it is, and not the nearest decimal.
            "float" => (format!("{quoted} + 0e0"), Kind::Float64),
            _ => (quoted.clone(), column.kind),
        };
        let field = Field { kind, data_type: if data_type == "bit" { "bigint".to_owned() } else { data_type } };
        Ok(Self { name: quoted, selected, field })
    }
}

fn position(key: Option<&Key>) -> u64 {
    key.and_then(Key::as_int).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

type RowStream = Pin<Box<dyn stream::Stream<Item = Result<MySqlRow>> + Send>>;

/// Rows as the server sends them, no faster than they are taken.
async fn stream_rows(place: &Place, sql: String) -> Result<RowStream> {
    let failed = |error| failure("the rows cannot be read", error);
    let connection = place.server.connect().await?;
    let result = sql.with(()).run(connection).await.map_err(failed)?;
    let rows: Option<ResultSetStream<'static, 'static, 'static, MySqlRow, BinaryProtocol>> =
        result.stream_and_drop().await.map_err(failed)?;
    let rows = rows.ok_or_else(|| Error::failed("the server sent no rows where it should"))?;
    Ok(rows.map_err(failed).boxed())
}

/// Rows on their way into batches.
struct Rows {
    rows: RowStream,
    names: Names,
    fields: Vec<Field>,
}

#[async_trait]
impl Cursor for Rows {
    async fn next(&mut self) -> Result<Option<RowBatch>> {
        let mut batch = RowBatch::new(Arc::clone(&self.names));
        while !batch.is_full() {
            let Some(row) = self.rows.try_next().await? else { break };
            batch.push(decode::row(row, &self.fields));
        }
        Ok((!batch.is_empty()).then_some(batch))
    }
}

#[async_trait]
impl Reader for MySqlReader {
    async fn describe(&self) -> Result<Description> {
        let source = self.source().await?;
        let (table, walk) = (&source.table, source.walk.clone());
        Ok(Description { schema: table.schema.clone(), rows: table.rows, bytes: table.bytes, walk, raw: None })
    }

    async fn sample(&self, rows: usize) -> Result<RowBatch> {
        let source = self.source().await?;
        let mut sample = RowBatch::new(Arc::clone(&source.names));
        for row in source.place.server.rows(&source.select(&format!("LIMIT {rows}"))).await? {
            sample.push(decode::row(row, &source.fields));
        }
        Ok(sample)
    }

    async fn upper(&self) -> Result<Upper> {
        let source = self.source().await?;
        match source.walk {
            Walk::Sequence => Ok(Upper::Unknown),
            Walk::Offset => {
                let count = source.place.server.texts(&format!("SELECT COUNT(*) FROM {}", source.place.name())).await?;
                let count: i64 = count.first().and_then(|row| row.first()?.parse().ok()).unwrap_or_default();
                Ok(if count == 0 { Upper::Empty } else { Upper::Key(Key::int(count)) })
            }
            _ => Ok(source.key_at("", "DESC", 0).await?.map_or(Upper::Empty, Upper::Key)),
        }
    }

    async fn boundary(&self, after: Option<&Key>, upper: Option<&Key>, rows: u64) -> Result<Boundary> {
        let source = self.source().await?;
        match source.walk {
            Walk::Sequence => return Ok(Sequence::boundary(after, rows)),
            Walk::Offset => {
                let at = position(after).saturating_add(rows);
                let is_last = upper.is_some_and(|upper| at >= position(Some(upper)));
                return Ok(if is_last { Boundary::Last } else { Boundary::At(Key::int(at as i64)) });
            }
            _ => (),
        }
        let condition = source.condition(after, upper, "<")?;
        let found = source.key_at(&condition, "ASC", rows.saturating_sub(1)).await?;
        Ok(found.map_or(Boundary::Last, Boundary::At))
    }

    fn read(&self, range: &Range, _raw: bool) -> Batches {
        let Some(source) = self.source.get() else {
            return Box::pin(stream::iter([Err(Error::failed("the source has not been described"))]));
        };
        if let Some(sequence) = &source.sequence {
            return sequence.read(range);
        }
        let (source, sql) = (Arc::clone(source), source.range(range));
        Box::pin(stream::try_unfold(None, move |rows: Option<Rows>| {
            let (source, sql) = (Arc::clone(&source), sql.clone());
            async move {
                let mut rows = match rows {
                    Some(rows) => rows,
                    None => Rows {
                        rows: stream_rows(&source.place, sql?).await?,
                        names: Arc::clone(&source.names),
                        fields: source.fields.clone(),
                    },
                };
                let batch = rows.next().await?;
                Ok(batch.map(|batch| (Batch::Rows(batch), Some(rows))))
            }
        }))
    }
}

impl std::fmt::Debug for MySqlReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.place.name())
    }
}
