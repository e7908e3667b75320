//! Finds the rows that a target refuses, by halves.

use std::sync::Arc;
use std::time::Duration;

use super::chunk::single;
use crate::error::{Error, ErrorKind, Result};
use crate::mapping::{Mapped, Reject, as_text};
use crate::patience::answered;
use crate::port::ChunkWriter;
use crate::row::RowBatch;

/// Writes what the target takes, and gives back what it refuses, each as a batch of one with the reason.
pub(super) async fn write(
    writer: &mut dyn ChunkWriter,
    mapped: Mapped,
    limit: Option<Duration>,
) -> Result<Vec<(RowBatch, Reject)>> {
    let Mapped { batch, numbers } = mapped;
    let mut refused = Vec::new();
    // Spans that are still to be written, the first on top.
    let everything = 0..batch.rows.len();
    let mut spans = Vec::from([everything]);
    while let Some(span) = spans.pop() {
        if span.is_empty() {
            continue;
        }
        let mut part = RowBatch::new(Arc::clone(&batch.names));
        batch.rows[span.clone()].iter().for_each(|row| part.push(row.clone()));
        let error: Error = match answered(limit, "target", writer.attempt(part)).await {
            Ok(()) => continue,
            Err(error) if error.kind() == ErrorKind::Rejected => error,
            Err(error) => return Err(error),
        };
        if span.len() == 1 {
            let text = as_text(&batch.rows[span.start], &batch.names);
            let reject = Reject { row: numbers[span.start], reason: error.chain(), text };
            refused.push((single(&batch, span.start), reject));
            continue;
        }
        let middle = span.start + span.len() / 2;
        spans.push(middle..span.end);
        spans.push(span.start..middle);
    }
    Ok(refused)
}
