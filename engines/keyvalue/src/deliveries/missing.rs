//! Truth against versions: on which documents is an outlet behind?
//!
//! The heads are in the order of their URLs, the versions in the order of the documents' numbers. So the heads, without
//! their URLs, are put in the other order in memory, and both are gone through side by side.

use std::ops::ControlFlow;

use flare_core::{DocumentNumber, OutletId, Result, Sequence, StreamId, delivery::Behind, port::Span};

use crate::{
    KeyValue, Table,
    documents::read_change,
    keys,
    rows::{self, Head},
};

/// Heads held in memory at once. A larger stream is compared in several passes over them.
const HEADS_MAX: usize = 1 << 22;

pub(super) fn find(
    map: &dyn KeyValue,
    stream: StreamId,
    outlet: OutletId,
    span: Span,
    limit: usize,
) -> Result<Vec<Behind>> {
    let mut behind = Vec::new();
    let mut from = DocumentNumber(0);
    while behind.len() < limit {
        let heads = heads(map, stream, span, from)?;
        let Some((last, _)) = heads.last().copied() else { break };
        let missing = missing(map, outlet, &heads)?;
        for (_, sequence) in missing {
            // A document that has changed since is not behind on that change any more.
            if let Some(change) = read_change(map, stream, sequence)? {
                behind.push(Behind {
                    number: change.number,
                    url: change.url,
                    sequence,
                    revision: change.revision,
                    updated_at: change.updated_at,
                });
            }
        }
        from = DocumentNumber(last.0 + 1);
    }
    behind.sort_unstable_by_key(|document| document.sequence);
    behind.truncate(limit);
    Ok(behind)
}

/// The heads in the span with the lowest numbers from `from` on, in the order of the numbers.
fn heads(
    map: &dyn KeyValue,
    stream: StreamId,
    span: Span,
    from: DocumentNumber,
) -> Result<Vec<(DocumentNumber, Sequence)>> {
    let prefix = stream.as_bytes();
    let (mut heads, mut failure) = (Vec::new(), None);
    map.scan(Table::Heads, prefix, &keys::after_prefix(prefix), &mut |_, row| match Head::decode(&row) {
        Ok(head) => {
            if head.number >= from && head.sequence > span.after && head.sequence <= span.until {
                heads.push((head.number, head.sequence));
                if heads.len() >= 2 * HEADS_MAX {
                    keep_lowest(&mut heads);
                }
            }
            ControlFlow::Continue(())
        }
        Err(error) => {
            failure = Some(error);
            ControlFlow::Break(())
        }
    })?;
    if heads.len() > HEADS_MAX {
        keep_lowest(&mut heads);
    }
    heads.sort_unstable();
    failure.map_or(Ok(heads), Err)
}

fn keep_lowest(heads: &mut Vec<(DocumentNumber, Sequence)>) {
    heads.select_nth_unstable(HEADS_MAX - 1);
    heads.truncate(HEADS_MAX);
}

/// Those of the heads that the outlet does not have.
fn missing(
    map: &dyn KeyValue,
    outlet: OutletId,
    heads: &[(DocumentNumber, Sequence)],
) -> Result<Vec<(DocumentNumber, Sequence)>> {
    let (Some((first, _)), Some((last, _))) = (heads.first(), heads.last()) else { return Ok(Vec::new()) };
    let (from, to) = (keys::outlet_document(outlet, *first), keys::after(&keys::outlet_document(outlet, *last)));
    let mut heads = heads.iter().copied().peekable();
    let (mut missing, mut failure) = (Vec::new(), None);
    map.scan(Table::Versions, &from, &to, &mut |key, row| {
        let number = DocumentNumber(keys::tail::<8>(&key).map_or(0, u64::from_be_bytes));
        // What lies before has no version at all.
        while let Some(head) = heads.next_if(|(head, _)| *head < number) {
            missing.push(head);
        }
        match rows::decode_version(&row) {
            Ok(version) => {
                let head = heads.next_if(|(head, _)| *head == number);
                missing.extend(head.filter(|(_, sequence)| version.sequence < *sequence));
                ControlFlow::Continue(())
            }
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    missing.extend(heads);
    failure.map_or(Ok(missing), Err)
}
