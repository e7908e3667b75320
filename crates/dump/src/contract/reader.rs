//! What a reader must keep.

use futures_util::StreamExt;

use crate::error::Result;
use crate::json;
use crate::key::{Key, Range};
use crate::port::{Boundary, Reader, Upper, Walk};
use crate::row::{Batch, RowBatch};
use crate::value::Value;

/// Walks no further than this many chunks.
const CHUNKS_MAX: usize = 10_000;

/// Reads the whole source in chunks of several sizes: every row comes once, whatever the cut. Returns the rows as
/// extended JSON, sorted.
///
/// # Panics
/// When the reader breaks the contract.
pub async fn check_reader(reader: &dyn Reader, rows: usize) -> Vec<String> {
    let description = reader.describe().await.expect("the source is described");
    let whole = read(reader, &Range::default()).await.expect("the whole source is read");
    assert_eq!(whole.len(), rows, "rows of the whole source");
    for chunksize in [1, 3, 7, rows.max(1) as u64, rows as u64 + 10] {
        let ranges = walk(reader, chunksize).await.expect("the source is walked");
        let is_exact = !matches!(&description.walk, Walk::Position(what) if what != "byte");
        let mut found = Vec::new();
        for (index, range) in ranges.iter().enumerate() {
            let part = read(reader, range).await.expect("a range is read");
            let is_last = index + 1 == ranges.len();
            if is_exact && !is_last && description.walk != Walk::Sequence {
                assert_eq!(part.len() as u64, chunksize, "rows of the range {range}");
            }
            found.extend(part);
        }
        found.sort();
        assert_eq!(found, whole, "rows of all ranges of {chunksize}");
    }
    check_again_and_at_once(reader).await;
    let sample = reader.sample(2).await.expect("a sample is read");
    assert_eq!(sample.rows.len(), rows.min(2), "rows of a sample");
    whole
}

/// The same range twice, and two ranges at once.
async fn check_again_and_at_once(reader: &dyn Reader) {
    let ranges = walk(reader, 5).await.expect("the source is walked");
    let Some(first) = ranges.first() else { return };
    let once = read(reader, first).await.expect("a range is read");
    assert_eq!(once, read(reader, first).await.expect("a range is read again"));
    let last = &ranges[ranges.len() - 1];
    let (one, other) = tokio::join!(read(reader, first), read(reader, last));
    assert_eq!(one.expect("a range is read beside another"), once);
    other.expect("a range is read beside another");
    // A stream that is given up holds nobody up.
    drop(reader.read(first, false).next().await);
    read(reader, last).await.expect("a range is read after another was given up");
}

/// The ranges of a source.
pub(super) async fn walk(reader: &dyn Reader, chunksize: u64) -> Result<Vec<Range>> {
    let upper: Option<Key> = match reader.upper().await? {
        Upper::Empty => return Ok(Vec::new()),
        Upper::Key(key) => Some(key),
        Upper::Unknown => None,
    };
    let mut ranges: Vec<Range> = Vec::new();
    loop {
        assert!(ranges.len() < CHUNKS_MAX, "the walk does not end");
        let after = ranges.last().and_then(|range| range.upto.clone());
        match reader.boundary(after.as_ref(), upper.as_ref(), chunksize).await? {
            Boundary::At(key) => {
                let range = Range { after, upto: Some(key) };
                // Where the end is unknown, the first empty range is it.
                let is_end = upper.is_none() && read(reader, &range).await?.is_empty();
                ranges.push(range);
                if is_end {
                    return Ok(ranges);
                }
            }
            Boundary::Last => {
                ranges.push(Range { after, upto: upper });
                return Ok(ranges);
            }
        }
    }
}

/// The rows of a range as extended JSON, sorted.
pub(super) async fn read(reader: &dyn Reader, range: &Range) -> Result<Vec<String>> {
    let mut batches = reader.read(range, false);
    let mut found = Vec::new();
    while let Some(batch) = batches.next().await {
        match batch? {
            Batch::Rows(batch) => found.extend(texts(batch)),
            Batch::Raw(_) => panic!("nobody asked for raw rows"),
        }
    }
    found.sort();
    Ok(found)
}

pub(super) fn texts(batch: RowBatch) -> Vec<String> {
    let names = batch.names;
    batch.rows.into_iter().map(|row| json::to_string(&Value::Object(row.into_document(&names)))).collect()
}
