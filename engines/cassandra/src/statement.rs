//! Statements, and writes that go together.

use rustc_hash::FxHashMap;
use scylla::serialize::row::SerializeRow;

/// Rows of one partition that are written in one mutation.
const BATCH_ROWS_MAX: usize = 200;
const BATCH_BYTES_MAX: usize = 64 << 10;

/// A statement, and how it is run.
#[derive(Clone, Copy)]
pub(crate) struct Query {
    pub text: &'static str,
    pub mode: Mode,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A read, or a write that may be repeated.
    Plain,
    /// A read of what nodes have agreed on, finished or not.
    SerialRead,
    /// A conditional write: never repeated by the driver, since nobody knows what came of the first attempt.
    Conditional,
}

impl Query {
    pub const fn new(text: &'static str) -> Self {
        Self { text, mode: Mode::Plain }
    }

    pub const fn serial_read(text: &'static str) -> Self {
        Self { text, mode: Mode::SerialRead }
    }

    pub const fn conditional(text: &'static str) -> Self {
        Self { text, mode: Mode::Conditional }
    }
}

/// One row to write, in a batch with others of its partition.
pub(crate) struct Write {
    pub query: Query,
    pub values: Box<dyn SerializeRow + Send + Sync>,
    bytes: usize,
}

/// Writes by table and partition: each partition is one mutation or a few.
#[derive(Default)]
pub(crate) struct Plan {
    partitions: FxHashMap<Vec<u8>, Vec<Write>>,
}

impl Plan {
    /// `partition` names the partition within the table.
    pub fn add(
        &mut self,
        table: u8,
        partition: &[&[u8]],
        query: Query,
        values: impl SerializeRow + Send + Sync + 'static,
        bytes: usize,
    ) {
        let mut key = vec![table];
        for part in partition {
            key.extend_from_slice(part);
            key.push(0);
        }
        self.partitions.entry(key).or_default().push(Write { query, values: Box::new(values), bytes });
    }

    /// The batches to send: each is of one partition, and no larger than one mutation should be.
    pub fn into_batches(self) -> impl Iterator<Item = Vec<Write>> {
        self.partitions.into_values().flat_map(chunks)
    }
}

fn chunks(writes: Vec<Write>) -> Vec<Vec<Write>> {
    let mut chunks: Vec<Vec<Write>> = Vec::new();
    let mut bytes = usize::MAX;
    for write in writes {
        bytes = bytes.saturating_add(write.bytes);
        match chunks.last_mut() {
            Some(chunk) if chunk.len() < BATCH_ROWS_MAX && bytes <= BATCH_BYTES_MAX => chunk.push(write),
            _ => {
                bytes = write.bytes;
                chunks.push(vec![write]);
            }
        }
    }
    chunks
}
