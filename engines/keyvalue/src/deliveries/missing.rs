//! Truth against versions: on which documents is an outlet behind?

use std::{collections::HashMap, ops::ControlFlow};

use flare_core::{OutletId, Result, Sequence, StreamId, delivery::Behind, port::Span, url::DocumentUrl};

use crate::{
    KeyValue, Table, keys,
    rows::{self, Head},
};

/// Versions held in memory at once. A larger outlet is compared in several passes over the heads.
const VERSIONS_MAX: usize = 1 << 20;

pub(super) fn find(
    map: &dyn KeyValue,
    stream: StreamId,
    outlet: OutletId,
    span: Span,
    limit: usize,
) -> Result<Vec<Behind>> {
    let mut behind = Vec::new();
    let mut from = 0;
    while behind.len() < limit {
        let (versions, next) = versions(map, outlet, from)?;
        compare(map, stream, span, from..next.unwrap_or(u64::MAX), &versions, &mut behind)?;
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    behind.sort_unstable_by_key(|document| document.sequence);
    behind.truncate(limit);
    Ok(behind)
}

/// The versions of documents from this number on, and the number at which to go on.
fn versions(map: &dyn KeyValue, outlet: OutletId, from: u64) -> Result<(HashMap<u64, Sequence>, Option<u64>)> {
    let start = keys::outlet_document(outlet, flare_core::DocumentNumber(from));
    let mut versions = HashMap::new();
    let (mut failure, mut next) = (None, None);
    map.scan(Table::Versions, &start, &keys::after_prefix(outlet.as_bytes()), &mut |key, row| {
        let number = keys::tail::<8>(&key).map_or(0, u64::from_be_bytes);
        if versions.len() >= VERSIONS_MAX {
            next = Some(number);
            return ControlFlow::Break(());
        }
        match rows::decode_version(&row) {
            Ok(version) => drop(versions.insert(number, version.sequence)),
            Err(error) => {
                failure = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    })?;
    failure.map_or(Ok((versions, next)), Err)
}

fn compare(
    map: &dyn KeyValue,
    stream: StreamId,
    span: Span,
    numbers: std::ops::Range<u64>,
    versions: &HashMap<u64, Sequence>,
    behind: &mut Vec<Behind>,
) -> Result<()> {
    let prefix = stream.as_bytes();
    let mut failure = None;
    map.scan(Table::Heads, prefix, &keys::after_prefix(prefix), &mut |key, row| {
        let compared = Head::decode(&row).and_then(|head| {
            let is_new = head.sequence > span.after && head.sequence <= span.until && numbers.contains(&head.number.0);
            if !is_new || versions.get(&head.number.0).is_some_and(|has| *has >= head.sequence) {
                return Ok(None);
            }
            let url = std::str::from_utf8(&key[prefix.len()..]).ok().and_then(|url| DocumentUrl::parse(url).ok());
            let url = url.ok_or_else(|| rows::damaged("head"))?;
            Ok(Some(Behind {
                number: head.number,
                url,
                sequence: head.sequence,
                revision: head.revision,
                updated_at: head.updated_at,
            }))
        });
        match compared {
            Ok(found) => behind.extend(found),
            Err(error) => {
                failure = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    })?;
    failure.map_or(Ok(()), Err)
}
