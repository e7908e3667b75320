//! Reading a table.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tokio_postgres::{CopyOutStream, SimpleQueryRow};

use super::catalog::{self, Table};
use super::connection::{Connection, failure};
use super::walk::{self, Ends};
use super::{Place, encode, identifier, identifiers, literal, text};
use crate::error::{Error, Result};
use crate::key::{Key, Range};
use crate::location::Location;
use crate::port::{Batches, Boundary, Description, Reader, Upper, Walk};
use crate::row::{BATCH_BYTES, Batch, Names, RawBatch, RawFormat, RowBatch};
use crate::storage::ReadOptions;
use crate::storage::sequence::{Cursor, Open, Sequence};
use crate::value::{Kind, Value};

/// How many rows a block is taken to have where the server has not counted them.
const BLOCK_ROWS: u64 = 50;

/// Reads a table.
pub struct PostgresReader {
    place: Place,
    options: ReadOptions,
    known: OnceLock<Arc<Known>>,
    ends: Mutex<Ends>,
}

/// What was found out about the table.
struct Known {
    table: Table,
    names: Names,
    kinds: Vec<Kind>,
    walk: Walk,
    sequence: Option<Sequence>,
}

impl PostgresReader {
    pub fn new(location: &Location, options: &ReadOptions) -> Result<Self> {
        Ok(Self {
            place: Place::read(location)?,
            options: options.clone(),
            known: OnceLock::new(),
            ends: Mutex::default(),
        })
    }

    async fn known(&self) -> Result<Arc<Known>> {
        if let Some(known) = self.known.get() {
            return Ok(Arc::clone(known));
        }
        let table = catalog::table(&self.place).await?;
        let table = table.ok_or_else(|| Error::invalid(format!("there is no table {}", self.place.name())))?;
        let walk = self.walk(&table)?;
        let names = table.schema.names();
        let kinds: Vec<Kind> = table.schema.columns.iter().map(|column| column.kind).collect();
        let sequence = (walk == Walk::Sequence).then(|| Sequence::new(self.cursor(&names, &kinds)));
        let known = Arc::new(Known { table, names, kinds, walk, sequence });
        Ok(Arc::clone(self.known.get_or_init(|| known)))
    }

    fn walk(&self, table: &Table) -> Result<Walk> {
        if self.options.by_offset {
            return Ok(Walk::Offset);
        }
        for name in &self.options.key {
            match table.schema.column(name) {
                None => return Err(Error::invalid(format!("{} has no column {name:?}", self.place.name()))),
                Some(column) if column.nullable => {
                    let name = &column.name;
                    return Err(Error::invalid(format!("the key {name:?} can be null: rows without it would be lost")));
                }
                Some(_) => (),
            }
        }
        if !self.options.key.is_empty() {
            return Ok(Walk::Key(self.options.key.clone()));
        }
        if !table.schema.key.is_empty() {
            return Ok(Walk::Key(table.schema.key.iter().map(|name| name.to_string()).collect()));
        }
        Ok(if table.has_blocks { Walk::Position("ctid".to_owned()) } else { Walk::Sequence })
    }

    /// All rows, for what can be read only from the beginning.
    fn cursor(&self, names: &Names, kinds: &[Kind]) -> Open {
        let (place, names, kinds) = (self.place.clone(), Arc::clone(names), kinds.to_vec());
        let sql = format!("COPY (SELECT {} FROM {}) TO STDOUT", identifiers(names.iter()), place.name());
        Arc::new(move || {
            let (place, names, kinds, sql) = (place.clone(), Arc::clone(&names), kinds.clone(), sql.clone());
            Box::pin(async move {
                let copying = Copying::start(&place, &sql).await?;
                Ok(Box::new(TableCursor { copying, names, kinds }) as Box<dyn Cursor>)
            })
        })
    }

    /// The keys that a query gives as texts.
    async fn keys(&self, known: &Known, columns: &[String], sql: &str) -> Result<VecDeque<Key>> {
        let kind = |name| known.table.schema.column(name).map_or(Kind::Text, |column| column.kind);
        let kinds: Vec<Kind> = columns.iter().map(|name| kind(name)).collect();
        let rows = self.place.pool.rows(sql).await?;
        let value = |row: &SimpleQueryRow, at| text::value(row.get(at).unwrap_or_default().to_owned(), kinds[at]);
        let key = |row: &SimpleQueryRow| Key((0..kinds.len()).map(|at| value(row, at)).collect());
        Ok(rows.iter().map(key).collect())
    }

    /// The last key there is.
    async fn last_key(&self, known: &Known, columns: &[String]) -> Result<Option<Key>> {
        let list: Vec<String> = columns.iter().map(|name| format!("{}::text", identifier(name))).collect();
        // Without the `t` it would be the order of the texts that are selected.
        let order: Vec<String> = columns.iter().map(|name| format!("t.{} DESC", identifier(name))).collect();
        let (list, order, table) = (list.join(", "), order.join(", "), self.place.name());
        let sql = format!("SELECT {list} FROM {table} AS t ORDER BY {order} LIMIT 1");
        Ok(self.keys(known, columns, &sql).await?.pop_front())
    }

    /// The key of the row that is `rows` further than `after`.
    async fn end(
        &self,
        known: &Known,
        columns: &[String],
        after: Option<&Key>,
        upper: Option<&Key>,
        rows: u64,
    ) -> Result<Option<Key>> {
        let steps = {
            let mut ends = self.ends.lock();
            if let Some(key) = ends.take(after, upper, rows) {
                return Ok(Some(key));
            }
            ends.steps(rows)
        };
        let first = known.condition(&Range { after: after.cloned(), upto: upper.cloned() });
        let later = upper.map(|upper| format!(" AND {}", known.compare(columns, "<=", upper))).unwrap_or_default();
        let sql = walk::statement(&self.place.name(), columns, rows, steps, &first, &later);
        let found = self.keys(known, columns, &sql).await?;
        let mut ends = self.ends.lock();
        ends.keep(found, after, upper, rows);
        Ok(ends.take(after, upper, rows))
    }

    async fn blocks(&self) -> Result<u64> {
        let name = literal(&self.place.name());
        let sql =
            format!("SELECT (pg_relation_size(to_regclass({name})) / current_setting('block_size')::bigint)::text");
        let rows = self.place.pool.rows(&sql).await?;
        Ok(rows.first().and_then(|row| row.get(0)).and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    async fn count(&self) -> Result<u64> {
        let rows = self.place.pool.rows(&format!("SELECT count(*)::text FROM {}", self.place.name())).await?;
        Ok(rows.first().and_then(|row| row.get(0)).and_then(|text| text.parse().ok()).unwrap_or(0))
    }
}

impl Known {
    /// `("a", "b") > ('1'::bigint, 'x'::text)`.
    fn compare(&self, columns: &[String], operator: &str, key: &Key) -> String {
        let typed = |(name, value): (&String, &Value)| {
            let at = self.names.iter().position(|other| **other == **name);
            let native = at.map_or("text", |at| self.table.types[at].as_str());
            format!("{}::{native}", literal(&encode::key_text(value)))
        };
        let values: Vec<String> = columns.iter().zip(&key.0).map(typed).collect();
        format!("({}) {operator} ({})", identifiers(columns), values.join(", "))
    }

    /// Which rows a range means.
    fn condition(&self, range: &Range) -> String {
        let mut conditions = Vec::new();
        match &self.walk {
            Walk::Key(columns) => {
                conditions.extend(range.after.as_ref().map(|key| self.compare(columns, ">", key)));
                conditions.extend(range.upto.as_ref().map(|key| self.compare(columns, "<=", key)));
            }
            Walk::Position(_) => {
                let next = |key: &Key| key.as_int().unwrap_or(-1) + 1;
                conditions.extend(range.after.as_ref().map(|key| format!("ctid >= '({},0)'::tid", next(key))));
                conditions.extend(range.upto.as_ref().map(|key| format!("ctid < '({},0)'::tid", next(key))));
            }
            Walk::Sequence | Walk::Offset => (),
        }
        if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) }
    }

    /// Counted rows need an order that is the same each time.
    fn offset(&self, range: &Range) -> String {
        if self.walk != Walk::Offset {
            return String::new();
        }
        let from = range.after.as_ref().and_then(Key::as_int).unwrap_or(0);
        let order = match self.table.schema.key.is_empty() {
            true if self.table.has_blocks => " ORDER BY ctid".to_owned(),
            true => String::new(),
            false => format!(" ORDER BY {}", identifiers(self.table.schema.key.iter())),
        };
        let limit = range.upto.as_ref().and_then(Key::as_int).map(|upto| format!(" LIMIT {}", (upto - from).max(0)));
        format!("{order} OFFSET {from}{}", limit.unwrap_or_default())
    }

    fn statement(&self, place: &Place, range: &Range) -> String {
        let (columns, name) = (identifiers(self.names.iter()), place.name());
        let (condition, offset) = (self.condition(range), self.offset(range));
        format!("COPY (SELECT {columns} FROM {name}{condition}{offset}) TO STDOUT")
    }
}

#[async_trait]
impl Reader for PostgresReader {
    async fn describe(&self) -> Result<Description> {
        let known = self.known().await?;
        let raw = known.sequence.is_none();
        Ok(Description {
            schema: known.table.schema.clone(),
            rows: known.table.rows,
            bytes: known.table.bytes.filter(|bytes| *bytes > 0),
            walk: known.walk.clone(),
            raw: raw.then(|| RawFormat { name: RawFormat::POSTGRES_COPY, names: Arc::clone(&known.names) }),
        })
    }

    async fn sample(&self, rows: usize) -> Result<RowBatch> {
        let known = self.known().await?;
        let columns = identifiers(known.names.iter());
        let sql = format!("COPY (SELECT {columns} FROM {} LIMIT {rows}) TO STDOUT", self.place.name());
        let mut copying = Copying::start(&self.place, &sql).await?;
        let mut sample = RowBatch::new(Arc::clone(&known.names));
        while let Some(batch) = copying.rows(&known.names, &known.kinds).await? {
            batch.rows.into_iter().for_each(|row| sample.push(row));
        }
        Ok(sample)
    }

    async fn upper(&self) -> Result<Upper> {
        let known = self.known().await?;
        let last = match &known.walk {
            Walk::Key(columns) => self.last_key(&known, columns).await?,
            Walk::Position(_) => {
                Some(self.blocks().await?).filter(|blocks| *blocks > 0).map(|n| Key::int(n as i64 - 1))
            }
            Walk::Offset => Some(self.count().await?).filter(|rows| *rows > 0).map(|rows| Key::int(rows as i64)),
            Walk::Sequence => return Ok(Upper::Unknown),
        };
        Ok(last.map_or(Upper::Empty, Upper::Key))
    }

    async fn boundary(&self, after: Option<&Key>, upper: Option<&Key>, rows: u64) -> Result<Boundary> {
        let known = self.known().await?;
        let start = after.and_then(Key::as_int);
        let position = match &known.walk {
            Walk::Sequence => return Ok(Sequence::boundary(after, rows)),
            Walk::Key(columns) => {
                let found = self.end(&known, columns, after, upper, rows).await?;
                return Ok(found.map_or(Boundary::Last, Boundary::At));
            }
            Walk::Position(_) => {
                let blocks = upper.and_then(Key::as_int).unwrap_or(0).max(0) as u64 + 1;
                let per_block =
                    known.table.rows.filter(|rows| *rows > 0).map_or(BLOCK_ROWS, |rows| rows.div_ceil(blocks));
                start.unwrap_or(-1) + (rows / per_block.max(1)).max(1) as i64
            }
            Walk::Offset => start.unwrap_or(0) + rows as i64,
        };
        let is_within = upper.and_then(Key::as_int).is_none_or(|upper| position < upper);
        Ok(if is_within { Boundary::At(Key::int(position)) } else { Boundary::Last })
    }

    fn read(&self, range: &Range, raw: bool) -> Batches {
        let Some(known) = self.known.get().cloned() else {
            return Box::pin(stream::once(async { Err(Error::failed("the table has not been described")) }));
        };
        if let Some(sequence) = &known.sequence {
            return sequence.read(range);
        }
        let (place, sql) = (self.place.clone(), known.statement(&self.place, range));
        Box::pin(stream::try_unfold(None, move |copying: Option<Copying>| {
            let (place, sql, known) = (place.clone(), sql.clone(), Arc::clone(&known));
            async move {
                let mut copying = match copying {
                    Some(copying) => copying,
                    None => Copying::start(&place, &sql).await?,
                };
                let batch = if raw {
                    copying.raw().await?.map(Batch::Raw)
                } else {
                    copying.rows(&known.names, &known.kinds).await?.map(Batch::Rows)
                };
                Ok(batch.map(|batch| (batch, Some(copying))))
            }
        }))
    }
}

/// A `COPY` to us under way.
struct Copying {
    place: Place,
    connection: Option<Connection>,
    lines: std::pin::Pin<Box<CopyOutStream>>,
}

impl Copying {
    async fn start(place: &Place, sql: &str) -> Result<Self> {
        let connection = place.pool.take().await?;
        let lines = connection.client.copy_out(sql).await.map_err(|error| failure("reading failed", error))?;
        Ok(Self { place: place.clone(), connection: Some(connection), lines: Box::pin(lines) })
    }

    async fn line(&mut self) -> Result<Option<Bytes>> {
        match self.lines.next().await {
            Some(line) => line.map(Some).map_err(|error| failure("reading failed", error)),
            None => {
                if let Some(connection) = self.connection.take() {
                    self.place.pool.give_back(connection);
                }
                Ok(None)
            }
        }
    }

    /// Lines as they came, many at once.
    async fn raw(&mut self) -> Result<Option<RawBatch>> {
        if self.connection.is_none() {
            return Ok(None);
        }
        let (mut data, mut rows) = (BytesMut::with_capacity(BATCH_BYTES + BATCH_BYTES / 8), 0);
        while data.len() < BATCH_BYTES {
            let Some(line) = self.line().await? else { break };
            data.extend_from_slice(&line);
            rows += 1;
        }
        Ok((rows > 0).then(|| RawBatch { data: data.freeze(), rows }))
    }

    async fn rows(&mut self, names: &Names, kinds: &[Kind]) -> Result<Option<RowBatch>> {
        let mut batch = RowBatch::new(Arc::clone(names));
        while self.connection.is_some() && !batch.is_full() {
            let Some(line) = self.line().await? else { break };
            batch.push(text::row(&line, kinds));
        }
        Ok((!batch.is_empty()).then_some(batch))
    }
}

/// The rows of a view.
struct TableCursor {
    copying: Copying,
    names: Names,
    kinds: Vec<Kind>,
}

#[async_trait]
impl Cursor for TableCursor {
    async fn next(&mut self) -> Result<Option<RowBatch>> {
        self.copying.rows(&self.names, &self.kinds).await
    }
}
