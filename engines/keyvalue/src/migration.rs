//! The format of the store: refused when newer than this build, migrated when older.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Buf, Bytes};
use flare_core::{Error, Result, port};
use jiff::Timestamp;

use crate::{KeyValue, Row, Table, blocking, keys, rows, transaction::read_count};

/// A step from one format to the next.
#[derive(Clone, Copy)]
pub struct Migration {
    pub name: &'static str,
    /// The rows to write.
    pub rows: fn(&dyn KeyValue) -> Result<Vec<Row>>,
}

/// `MIGRATIONS[n]` leads from format n + 1 to format n + 2. The first format needed none.
pub const MIGRATIONS: &[Migration] = &[];

/// The format that this build writes.
pub const FORMAT: u64 = 1 + MIGRATIONS.len() as u64;

const FIRST: &str = "tables";

/// Brings the map to the newest format, and says to which formats it came. Each step is one atomic batch with its own
/// mark, so an interrupted migration goes on where it stopped.
pub fn run(map: &dyn KeyValue, migrations: &[Migration]) -> Result<Vec<u64>> {
    let newest = 1 + migrations.len() as u64;
    let found = format(map, newest)?;
    if found == 0 {
        let marks = (1..=newest).flat_map(mark).collect();
        map.write(marks)?;
        map.sync()?;
        return Ok((1..=newest).collect());
    }
    let mut reached = Vec::new();
    for (from, migration) in (1..).zip(migrations).skip(found as usize - 1) {
        tracing::info!(from, to = from + 1, name = migration.name, "migrating the store");
        let mut rows = (migration.rows)(map)?;
        rows.extend(mark(from + 1));
        map.write(rows)?;
        map.sync()?;
        reached.push(from + 1);
    }
    Ok(reached)
}

/// The format of the map, zero for none; a newer one than ours is refused.
fn format(map: &dyn KeyValue, newest: u64) -> Result<u64> {
    let found = read_count(map.get(Table::Meta, keys::FORMAT)?.as_ref())?;
    if found > newest {
        return Err(Error::invalid(format!(
            "the data has format {found}, written by a newer version of Flare; this version reads formats up to \
             {newest}: run the newer version, or choose another data folder"
        )));
    }
    Ok(found)
}

/// The rows that say that the map has this format, and since when.
fn mark(format: u64) -> [Row; 2] {
    let row = |key, value: &[u8]| Row { table: Table::Meta, key, value: Some(Bytes::copy_from_slice(value)) };
    [
        row(Bytes::from_static(keys::FORMAT), &format.to_be_bytes()),
        row(keys::migrated(format), &rows::micros(Timestamp::now()).to_be_bytes()),
    ]
}

/// The steps of a map that is not open otherwise.
pub struct Schema {
    map: Arc<dyn KeyValue>,
}

impl Schema {
    pub fn new(map: Arc<dyn KeyValue>) -> Self {
        Self { map }
    }

    fn step(map: &dyn KeyValue, number: u64, found: u64) -> Result<port::Migration> {
        let name = number.checked_sub(2).map_or(FIRST, |index| MIGRATIONS[index as usize].name);
        let at = match map.get(Table::Meta, &keys::migrated(number))? {
            Some(mut row) => rows::timestamp(row.try_get_i64().map_err(|_| rows::damaged("migration"))?)?,
            // Older data does not say when.
            None => Timestamp::UNIX_EPOCH,
        };
        Ok(port::Migration {
            number: number as u32,
            name: name.to_owned(),
            applied_at: (number <= found).then_some(at),
        })
    }
}

#[async_trait]
impl port::Schema for Schema {
    async fn status(&self) -> Result<Vec<port::Migration>> {
        let map = self.map.clone();
        blocking(move || {
            let found = format(&*map, FORMAT)?;
            (1..=FORMAT).map(|number| Self::step(&*map, number, found)).collect()
        })
        .await
    }

    async fn up(&self) -> Result<Vec<port::Migration>> {
        let map = self.map.clone();
        blocking(move || {
            let reached = run(&*map, MIGRATIONS)?;
            reached.into_iter().map(|number| Self::step(&*map, number, FORMAT)).collect()
        })
        .await
    }
}
