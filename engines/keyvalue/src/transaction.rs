//! A serial transaction: it reads what was committed, what its group has written before it, and what it wrote itself.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use flare_core::{Error, Result, Sequence, StreamId, document::Change};

use crate::{Durability, KeyValue, Row, Table, keys};

type Overlay = HashMap<(Table, Bytes), Option<Bytes>>;

/// What a group of transactions has gathered for its one batch.
pub(crate) struct Group {
    rows: Vec<Row>,
    overlay: Overlay,
    /// The last sequence given out.
    sequence: Sequence,
    /// Documents gained or lost per stream.
    count_changes: HashMap<StreamId, i64>,
    /// What listeners are told once the group is committed.
    changes: Vec<Arc<Change>>,
    durability: Durability,
}

impl Group {
    pub(crate) fn new(sequence: Sequence) -> Self {
        Self {
            rows: Vec::new(),
            overlay: HashMap::new(),
            sequence,
            count_changes: HashMap::new(),
            changes: Vec::new(),
            durability: Durability::Later,
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

    /// The rows to commit, counters included, and when they must be on disk.
    pub(crate) fn into_rows(mut self, map: &dyn KeyValue, before: Sequence) -> Result<(Vec<Row>, Durability)> {
        if self.sequence != before {
            let value = Bytes::copy_from_slice(&self.sequence.0.to_be_bytes());
            self.rows.push(Row { table: Table::Meta, key: Bytes::from_static(keys::SEQUENCE), value: Some(value) });
        }
        for (stream, change) in std::mem::take(&mut self.count_changes) {
            let key = keys::count(stream);
            let count = read_count(map.get(Table::Meta, &key)?.as_ref())?.saturating_add_signed(change);
            let value = Some(Bytes::copy_from_slice(&count.to_be_bytes()));
            self.rows.push(Row { table: Table::Meta, key, value });
        }
        Ok((self.rows, self.durability))
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
    group: &'a mut Group,
    rows: Vec<Row>,
    overlay: Overlay,
    sequence: Sequence,
    count_changes: Vec<(StreamId, i64)>,
    changes: Vec<Arc<Change>>,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(map: &'a dyn KeyValue, group: &'a mut Group) -> Self {
        let sequence = group.sequence;
        Self {
            map,
            group,
            rows: Vec::new(),
            overlay: HashMap::new(),
            sequence,
            count_changes: Vec::new(),
            changes: Vec::new(),
        }
    }

    pub(crate) fn get(&self, table: Table, key: &Bytes) -> Result<Option<Bytes>> {
        debug_assert!(table.is_read_in_transactions(), "{table:?} is not tracked by transactions");
        let at = (table, key.clone());
        match self.overlay.get(&at).or_else(|| self.group.overlay.get(&at)) {
            Some(value) => Ok(value.clone()),
            None => self.map.get(table, key),
        }
    }

    pub(crate) fn put(&mut self, table: Table, key: Bytes, value: Bytes) {
        self.set(table, key, Some(value));
    }

    pub(crate) fn remove(&mut self, table: Table, key: Bytes) {
        self.set(table, key, None);
    }

    fn set(&mut self, table: Table, key: Bytes, value: Option<Bytes>) {
        if table.is_read_in_transactions() {
            self.overlay.insert((table, key.clone()), value.clone());
        }
        self.rows.push(Row { table, key, value });
    }

    pub(crate) fn next_sequence(&mut self) -> Sequence {
        self.sequence = self.sequence.next();
        self.sequence
    }

    pub(crate) fn change_count(&mut self, stream: StreamId, by: i64) {
        self.count_changes.push((stream, by));
    }

    /// Tells the listeners of this change once it is durable.
    pub(crate) fn announce(&mut self, change: Change) {
        self.changes.push(Arc::new(change));
    }

    /// Makes what was written part of the group.
    pub(crate) fn keep(mut self, durability: Durability) {
        self.group.rows.append(&mut self.rows);
        self.group.overlay.extend(self.overlay.drain());
        self.group.changes.append(&mut self.changes);
        self.group.sequence = self.sequence;
        for (stream, by) in self.count_changes.drain(..) {
            *self.group.count_changes.entry(stream).or_default() += by;
        }
        if durability == Durability::Now {
            self.group.durability = Durability::Now;
        }
    }
}
