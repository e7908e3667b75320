//! Reading a table.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures_util::stream;
use rusqlite::{Connection, params_from_iter};
use tokio::sync::mpsc;

use super::catalog::{self, Table};
use super::{Place, blocking, failure, identifier, identifiers, values};
use crate::error::{Error, Result};
use crate::key::{Key, Range};
use crate::location::Location;
use crate::port::{Batches, Boundary, Description, Reader, Upper, Walk};
use crate::row::{Batch, Names, Row, RowBatch};
use crate::storage::ReadOptions;
use crate::value::{Kind, Value};

/// How many batches wait for the one who writes them.
const BATCHES_AHEAD: usize = 1;

/// A wider span of rowids says nothing of the number of rows.
const ROWS_LIKELY_MAX: u64 = 1_000_000_000;

/// Reads a table.
pub struct SqliteReader {
    place: Place,
    options: ReadOptions,
    known: Arc<OnceLock<Arc<Known>>>,
}

struct Known {
    place: Place,
    table: Table,
    names: Names,
    kinds: Vec<Kind>,
    walk: Walk,
}

impl SqliteReader {
    pub fn new(location: &Location, options: &ReadOptions) -> Result<Self> {
        Ok(Self { place: Place::read(location)?, options: options.clone(), known: Arc::default() })
    }

    async fn known(&self) -> Result<Arc<Known>> {
        if let Some(known) = self.known.get() {
            return Ok(Arc::clone(known));
        }
        let (place, options) = (self.place.clone(), self.options.clone());
        let known = blocking(move || Known::look(place, &options)).await?;
        Ok(Arc::clone(self.known.get_or_init(|| Arc::new(known))))
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Known, &Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let known = self.known().await?;
        blocking(move || {
            let connection = known.place.open_to_read()?;
            work(&known, &connection).map_err(|error| failure("reading failed", error))
        })
        .await
    }
}

impl Known {
    fn look(place: Place, options: &ReadOptions) -> Result<Self> {
        let connection = place.open_to_read()?;
        let table = catalog::table(&place, &connection)?;
        let table = table.ok_or_else(|| Error::invalid(format!("there is no table {:?}", place.table)))?;
        for name in &options.key {
            match table.schema.column(name) {
                None => return Err(Error::invalid(format!("there is no column {name:?}"))),
                Some(column) if column.nullable => {
                    return Err(Error::invalid(format!("the key {name:?} can be null: rows without it would be lost")));
                }
                Some(_) => (),
            }
        }
        let walk = match (options.by_offset || table.walk.is_empty(), options.key.is_empty()) {
            (true, _) => Walk::Offset,
            (false, true) => Walk::Key(table.walk.clone()),
            (false, false) => Walk::Key(options.key.clone()),
        };
        let names = table.schema.names();
        let kinds = table.schema.columns.iter().map(|column| column.kind).collect();
        Ok(Self { place, table, names, kinds, walk })
    }

    /// Which rows a range means, and the values of its parameters.
    fn condition(&self, range: &Range) -> (String, Vec<Value>) {
        let (Walk::Key(columns), mut values) = (&self.walk, Vec::new()) else { return (String::new(), Vec::new()) };
        let mut conditions = Vec::new();
        for (key, operator) in [(&range.after, ">"), (&range.upto, "<=")] {
            let Some(key) = key else { continue };
            let marks = vec!["?"; key.0.len()].join(", ");
            conditions.push(format!("({}) {operator} ({marks})", identifiers(columns)));
            values.extend(key.0.iter().cloned());
        }
        let condition =
            if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
        (condition, values)
    }

    /// Counted rows need an order that is the same each time.
    fn offset(&self, range: &Range) -> String {
        if self.walk != Walk::Offset {
            return String::new();
        }
        let from = range.after.as_ref().and_then(Key::as_int).unwrap_or(0);
        let limit = range.upto.as_ref().and_then(Key::as_int).map_or(-1, |upto| (upto - from).max(0));
        let order = if self.table.walk.is_empty() {
            String::new()
        } else {
            format!(" ORDER BY {}", identifiers(&self.table.walk))
        };
        format!("{order} LIMIT {limit} OFFSET {from}")
    }

    fn from(&self) -> String {
        identifier(&self.place.table)
    }

    /// The keys of at most one row.
    fn one_key(&self, connection: &Connection, tail: &str, values: &[Value]) -> rusqlite::Result<Option<Key>> {
        let Walk::Key(columns) = &self.walk else { return Ok(None) };
        let sql = format!("SELECT {} FROM {}{tail}", identifiers(columns), self.from());
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query(params_from_iter(values.iter().map(values::to_sql)))?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let mut key = Vec::new();
        for at in 0..columns.len() {
            // As it lies there, whatever the column is declared as: that is how it is compared.
            key.push(values::from_sql(row.get_ref(at)?, Kind::Text).unwrap_or(Value::Null));
        }
        Ok(Some(Key(key)))
    }

    /// Reads the range batch by batch, as long as somebody takes them.
    fn send(&self, range: &Range, limit: Option<usize>, mut take: impl FnMut(RowBatch) -> bool) -> Result<()> {
        let connection = self.place.open_to_read()?;
        let (condition, values) = self.condition(range);
        let limit = limit.map_or_else(String::new, |rows| format!(" LIMIT {rows}"));
        let tail = if limit.is_empty() { self.offset(range) } else { limit };
        let sql = format!("SELECT {} FROM {}{condition}{tail}", identifiers(self.names.iter()), self.from());
        let mut read = || -> rusqlite::Result<()> {
            let mut statement = connection.prepare(&sql)?;
            let mut rows = statement.query(params_from_iter(values.iter().map(values::to_sql)))?;
            let mut batch = RowBatch::new(Arc::clone(&self.names));
            while let Some(row) = rows.next()? {
                batch.push(self.row(row)?);
                if batch.is_full() && !take(batch.take()) {
                    return Ok(());
                }
            }
            if !batch.is_empty() {
                take(batch);
            }
            Ok(())
        };
        read().map_err(|error| failure("reading failed", error))
    }

    fn row(&self, row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
        let mut cells = Vec::with_capacity(self.kinds.len());
        for (at, kind) in self.kinds.iter().enumerate() {
            match values::from_sql(row.get_ref(at)?, *kind) {
                Ok(value) => cells.push(value),
                Err(reason) => return Ok(Row::bad(format!("column {}", self.names[at]), reason)),
            }
        }
        Ok(Row::Cells(cells))
    }
}

#[async_trait]
impl Reader for SqliteReader {
    async fn describe(&self) -> Result<Description> {
        let known = self.known().await?;
        // The ends of the rowids are known at once; counting would read everything.
        let mut rows = None;
        if known.table.walk == ["rowid"] {
            let sql = format!("SELECT min(rowid), max(rowid) FROM {}", identifier(&self.place.table));
            let ends = |row: &rusqlite::Row<'_>| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?));
            rows = match self.with(move |_, connection| connection.query_row(&sql, [], ends)).await? {
                (Some(first), Some(last)) => {
                    last.abs_diff(first).checked_add(1).filter(|rows| *rows <= ROWS_LIKELY_MAX)
                }
                _ => Some(0),
            };
        }
        let schema = known.table.schema.clone();
        Ok(Description { schema, rows, bytes: None, walk: known.walk.clone(), raw: None })
    }

    async fn sample(&self, rows: usize) -> Result<RowBatch> {
        let known = self.known().await?;
        blocking(move || {
            let mut sample = RowBatch::new(Arc::clone(&known.names));
            known.send(&Range::default(), Some(rows), |batch| {
                batch.rows.into_iter().for_each(|row| sample.push(row));
                true
            })?;
            Ok(sample)
        })
        .await
    }

    async fn upper(&self) -> Result<Upper> {
        let last = self
            .with(|known, connection| match &known.walk {
                Walk::Key(columns) => {
                    let order: Vec<String> = columns.iter().map(|name| format!("{} DESC", identifier(name))).collect();
                    known.one_key(connection, &format!(" ORDER BY {} LIMIT 1", order.join(", ")), &[])
                }
                _ => {
                    let sql = format!("SELECT count(*) FROM {}", known.from());
                    let rows: i64 = connection.query_row(&sql, [], |row| row.get(0))?;
                    Ok((rows > 0).then(|| Key::int(rows)))
                }
            })
            .await?;
        Ok(last.map_or(Upper::Empty, Upper::Key))
    }

    async fn boundary(&self, after: Option<&Key>, upper: Option<&Key>, rows: u64) -> Result<Boundary> {
        let range = Range { after: after.cloned(), upto: upper.cloned() };
        self.with(move |known, connection| {
            let Walk::Key(columns) = &known.walk else {
                let position = range.after.as_ref().and_then(Key::as_int).unwrap_or(0) + rows as i64;
                let is_within = range.upto.as_ref().and_then(Key::as_int).is_none_or(|upper| position < upper);
                return Ok(if is_within { Boundary::At(Key::int(position)) } else { Boundary::Last });
            };
            let (condition, values) = known.condition(&range);
            let tail =
                format!("{condition} ORDER BY {} LIMIT 1 OFFSET {}", identifiers(columns), rows.saturating_sub(1));
            let found = known.one_key(connection, &tail, &values)?;
            Ok(found.map_or(Boundary::Last, Boundary::At))
        })
        .await
    }

    fn read(&self, range: &Range, _raw: bool) -> Batches {
        let (known, range) = (self.known.get().cloned(), range.clone());
        Box::pin(stream::unfold(None, move |receiver: Option<mpsc::Receiver<Result<Batch>>>| {
            let mut receiver = receiver.unwrap_or_else(|| start(known.clone(), range.clone()));
            async move { receiver.recv().await.map(|batch| (batch, Some(receiver))) }
        }))
    }
}

/// Reads on a thread of its own.
fn start(known: Option<Arc<Known>>, range: Range) -> mpsc::Receiver<Result<Batch>> {
    let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
    tokio::task::spawn_blocking(move || {
        let read = match known {
            None => Err(Error::failed("the table has not been described")),
            Some(known) => known.send(&range, None, |batch| sender.blocking_send(Ok(Batch::Rows(batch))).is_ok()),
        };
        if let Err(error) = read {
            // Nobody listens any more if this fails, which is no error.
            let _ = sender.blocking_send(Err(error));
        }
    });
    receiver
}
