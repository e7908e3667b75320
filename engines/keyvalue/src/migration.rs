//! The format of the store: refused when newer than this build, migrated when older.

use bytes::Bytes;
use flare_core::{Error, Result};

use crate::{KeyValue, Row, Table, keys, transaction::read_count};

/// The rows to write to bring the map from one format to the next.
pub type Migration = fn(&dyn KeyValue) -> Result<Vec<Row>>;

/// `MIGRATIONS[n]` leads from format n + 1 to format n + 2. The first format needed none.
pub const MIGRATIONS: &[Migration] = &[];

/// The format that this build writes.
pub const FORMAT: u64 = 1 + MIGRATIONS.len() as u64;

/// Brings the map to the newest format. Each step is one atomic batch with its own mark, so an interrupted migration
/// goes on where it stopped.
pub fn run(map: &dyn KeyValue, migrations: &[Migration]) -> Result<()> {
    let newest = 1 + migrations.len() as u64;
    let found = read_count(map.get(Table::Meta, keys::FORMAT)?.as_ref())?;
    if found > newest {
        return Err(Error::invalid(format!(
            "the data has format {found}, written by a newer version of Flare; this version reads formats up to \
             {newest}: run the newer version, or choose another data folder"
        )));
    }
    if found == 0 {
        map.write(vec![mark(newest)])?;
        return map.sync();
    }
    for (from, migration) in (1..).zip(migrations).skip(found as usize - 1) {
        tracing::info!(from, to = from + 1, "migrating the store");
        let mut rows = migration(map)?;
        rows.push(mark(from + 1));
        map.write(rows)?;
        map.sync()?;
    }
    Ok(())
}

fn mark(format: u64) -> Row {
    let value = Some(Bytes::copy_from_slice(&format.to_be_bytes()));
    Row { table: Table::Meta, key: Bytes::from_static(keys::FORMAT), value }
}
