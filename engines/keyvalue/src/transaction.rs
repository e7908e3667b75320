//! A serial transaction: it reads what was committed, what its group has written before it, and what it wrote itself.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use flare_core::{Error, Result, Sequence, StreamId, document::Change};

use crate::{
    Durability, KeyValue, Row, Table, keys,
    recent::{Place, Recent},
};

/// What a group of transactions has gathered for its one batch.
pub(crate) struct Group {
    rows: Vec<Row>,
    /// What transactions read in place of the committed rows.
    overlay: HashMap<Place, Option<Bytes>>,
    /// The last sequence given out.
    sequence: Sequence,
    /// Documents gained or lost, in order.
    count_changes: Vec<(StreamId, i64)>,
    /// What listeners are told once the group is committed.
    changes: Vec<Arc<Change>>,
    durability: Durability,
    /// What the running transaction has covered in the overlay.
    undo: Vec<(Place, Option<Option<Bytes>>)>,
}

impl Group {
    pub(crate) fn new(sequence: Sequence) -> Self {
        Self {
            rows: Vec::new(),
            overlay: HashMap::new(),
            sequence,
            count_changes: Vec::new(),
            changes: Vec::new(),
            durability: Durability::Later,
            undo: Vec::new(),
        }
    }

    pub(crate) fn rows_len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn sequence(&self) -> Sequence {
        self.sequence
    }

    pub(crate) fn take_changes(&mut self) -> Vec<Arc<Change>> {
        std::mem::take(&mut self.changes)
    }

    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    /// The rows to commit, counters included.
    pub(crate) fn take_rows(&mut self, map: &dyn KeyValue, before: Sequence) -> Result<Vec<Row>> {
        if self.sequence != before {
            let value = Bytes::copy_from_slice(&self.sequence.0.to_be_bytes());
            self.rows.push(Row { table: Table::Meta, key: Bytes::from_static(keys::SEQUENCE), value: Some(value) });
        }
        let mut sums: HashMap<StreamId, i64> = HashMap::new();
        for (stream, change) in self.count_changes.drain(..) {
            *sums.entry(stream).or_default() += change;
        }
        for (stream, change) in sums {
            let key = keys::count(stream);
            let count = read_count(map.get(Table::Meta, &key)?.as_ref())?.saturating_add_signed(change);
            let value = Some(Bytes::copy_from_slice(&count.to_be_bytes()));
            self.rows.push(Row { table: Table::Meta, key, value });
        }
        Ok(std::mem::take(&mut self.rows))
    }

    /// The rows of the group are written: later transactions may rely on them.
    pub(crate) fn teach(self, recent: &mut Recent) {
        for (place, value) in self.overlay {
            recent.learn(place, value);
        }
    }
}

/// Reads a counter; absent is zero.
pub(crate) fn read_count(value: Option<&Bytes>) -> Result<u64> {
    match value.map(|value| <[u8; 8]>::try_from(&value[..])) {
        None => Ok(0),
        Some(Ok(bytes)) => Ok(u64::from_be_bytes(bytes)),
        Some(Err(_)) => Err(Error::internal("a counter row does not have 8 bytes")),
    }
}

/// One unit of check and write. Dropped without [`Transaction::keep`], it leaves no trace in its group.
pub(crate) struct Transaction<'a> {
    map: &'a dyn KeyValue,
    recent: &'a mut Recent,
    group: &'a mut Group,
    /// Where the group stood before.
    rows: usize,
    count_changes: usize,
    changes: usize,
    sequence: Sequence,
    kept: bool,
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let group = &mut *self.group;
        group.rows.truncate(self.rows);
        group.count_changes.truncate(self.count_changes);
        group.changes.truncate(self.changes);
        group.sequence = self.sequence;
        for (place, covered) in group.undo.drain(..).rev() {
            match covered {
                Some(value) => group.overlay.insert(place, value),
                None => group.overlay.remove(&place),
            };
        }
    }
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(map: &'a dyn KeyValue, recent: &'a mut Recent, group: &'a mut Group) -> Self {
        group.undo.clear();
        let (rows, count_changes, changes) = (group.rows.len(), group.count_changes.len(), group.changes.len());
        let sequence = group.sequence;
        Self { map, recent, group, rows, count_changes, changes, sequence, kept: false }
    }

    pub(crate) fn get(&mut self, table: Table, key: &Bytes) -> Result<Option<Bytes>> {
        debug_assert!(table.is_read_in_transactions(), "{table:?} is not tracked by transactions");
        let place = (table, key.clone());
        if let Some(value) = self.group.overlay.get(&place).or_else(|| self.recent.get(&place)) {
            return Ok(value.clone());
        }
        let value = self.map.get(table, key)?;
        self.recent.learn(place, value.clone());
        Ok(value)
    }

    /// A counter in `Meta`; absent is zero.
    pub(crate) fn count(&mut self, key: &'static [u8]) -> Result<u64> {
        read_count(self.get(Table::Meta, &Bytes::from_static(key))?.as_ref())
    }

    pub(crate) fn has_written(&self) -> bool {
        self.group.rows.len() > self.rows
    }

    pub(crate) fn put(&mut self, table: Table, key: Bytes, value: Bytes) {
        self.set(table, key, Some(value));
    }

    pub(crate) fn remove(&mut self, table: Table, key: Bytes) {
        self.set(table, key, None);
    }

    fn set(&mut self, table: Table, key: Bytes, value: Option<Bytes>) {
        if table.is_read_in_transactions() {
            let place = (table, key.clone());
            let covered = self.group.overlay.insert(place.clone(), value.clone());
            self.group.undo.push((place, covered));
        }
        self.group.rows.push(Row { table, key, value });
    }

    /// The last sequence given out.
    pub(crate) fn sequence(&self) -> Sequence {
        self.group.sequence
    }

    pub(crate) fn next_sequence(&mut self) -> Sequence {
        self.group.sequence = self.group.sequence.next();
        self.group.sequence
    }

    pub(crate) fn change_count(&mut self, stream: StreamId, by: i64) {
        self.group.count_changes.push((stream, by));
    }

    /// Tells the listeners of this change once it is durable.
    pub(crate) fn announce(&mut self, change: Change) {
        self.group.changes.push(Arc::new(change));
    }

    /// Makes what was written part of the group.
    pub(crate) fn keep(mut self, durability: Durability) {
        if durability == Durability::Now {
            self.group.durability = Durability::Now;
        }
        self.kept = true;
    }
}
