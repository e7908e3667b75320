//! The engine `memory`: nothing outlives the process. For tests, and for trying things out.

mod queue;

pub use queue::Broker;

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use bytes::Bytes;
use flare_core::{Result, port::Store};
use flare_keyvalue::{KeyValue, Options, Row, Table, Visit};
use parking_lot::RwLock;

/// Rows handed out between two looks at the lock, so that a long scan does not keep writers waiting.
const SCAN_ROWS_MAX: usize = 256;

/// Opens an empty store.
pub fn open(options: &Options) -> Result<Store> {
    flare_keyvalue::open(Arc::new(Memory::default()), options)
}

/// Ordered maps behind one lock: a batch is atomic because it holds the lock.
#[derive(Default)]
pub struct Memory {
    tables: RwLock<[BTreeMap<Bytes, Bytes>; Table::ALL.len()]>,
}

impl KeyValue for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.tables.read()[table as usize].get(key).cloned())
    }

    fn scan(&self, table: Table, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let mut next = Bound::Included(Bytes::copy_from_slice(from));
        loop {
            let rows: Vec<(Bytes, Bytes)> = {
                let tables = self.tables.read();
                let end = Bound::Excluded(Bytes::copy_from_slice(to));
                if is_empty(&next, to) {
                    return Ok(());
                }
                let range = tables[table as usize].range((next, end));
                range.take(SCAN_ROWS_MAX).map(|(key, value)| (key.clone(), value.clone())).collect()
            };
            let Some((last, _)) = rows.last() else { return Ok(()) };
            next = Bound::Excluded(last.clone());
            for (key, value) in rows {
                if visit(key, value).is_break() {
                    return Ok(());
                }
            }
        }
    }

    fn write(&self, rows: Vec<Row>) -> Result<()> {
        let mut tables = self.tables.write();
        for row in rows {
            let table = &mut tables[row.table as usize];
            match row.value {
                Some(value) => drop(table.insert(row.key, value)),
                None => drop(table.remove(&row.key)),
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// `BTreeMap::range` panics on a range that ends before it starts.
fn is_empty(from: &Bound<Bytes>, to: &[u8]) -> bool {
    match from {
        Bound::Included(from) | Bound::Excluded(from) => &from[..] >= to,
        Bound::Unbounded => false,
    }
}
