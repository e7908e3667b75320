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
    find_in_passes(map, stream, outlet, span, limit, HEADS_MAX)
}

fn find_in_passes(
    map: &dyn KeyValue,
    stream: StreamId,
    outlet: OutletId,
    span: Span,
    limit: usize,
    heads_max: usize,
) -> Result<Vec<Behind>> {
    let mut behind = Vec::new();
    let mut from = DocumentNumber(0);
    while behind.len() < limit {
        let heads = heads(map, stream, span, from, heads_max)?;
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
    heads_max: usize,
) -> Result<Vec<(DocumentNumber, Sequence)>> {
    let prefix = stream.as_bytes();
    let (mut heads, mut failure) = (Vec::new(), None);
    map.scan(Table::Heads, prefix, &keys::after_prefix(prefix), &mut |_, row| match Head::decode(&row) {
        Ok(head) => {
            if head.number >= from && head.sequence > span.after && head.sequence <= span.until {
                heads.push((head.number, head.sequence));
                if heads.len() >= 2 * heads_max {
                    keep_lowest(&mut heads, heads_max);
                }
            }
            ControlFlow::Continue(())
        }
        Err(error) => {
            failure = Some(error);
            ControlFlow::Break(())
        }
    })?;
    keep_lowest(&mut heads, heads_max);
    heads.sort_unstable();
    failure.map_or(Ok(heads), Err)
}

fn keep_lowest(heads: &mut Vec<(DocumentNumber, Sequence)>, heads_max: usize) {
    if heads.len() > heads_max {
        heads.select_nth_unstable(heads_max - 1);
        heads.truncate(heads_max);
    }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use flare_core::{document::Version, revision::Revision, url::DocumentUrl};
    use jiff::Timestamp;

    use super::*;
    use crate::{Row, Visit};

    /// Only what a comparison reads.
    #[derive(Default)]
    struct Tables(BTreeMap<(&'static str, Bytes), Bytes>);

    impl KeyValue for Tables {
        fn name(&self) -> &'static str {
            "tables"
        }

        fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
            Ok(self.0.get(&(table.name(), Bytes::copy_from_slice(key))).cloned())
        }

        fn scan(&self, table: Table, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
            let place = |key: &[u8]| (table.name(), Bytes::copy_from_slice(key));
            for ((_, key), row) in self.0.range(place(from)..place(to)) {
                if visit(key.clone(), row.clone()).is_break() {
                    break;
                }
            }
            Ok(())
        }

        fn write(&self, _: Vec<Row>) -> Result<()> {
            Ok(())
        }

        fn sync(&self) -> Result<()> {
            Ok(())
        }

        fn check(&self) -> Result<()> {
            Ok(())
        }
    }

    /// Documents 1 to 100 with URLs in another order; the outlet lacks every seventh, and has an old version of every
    /// tenth.
    fn tables(stream: StreamId, outlet: OutletId) -> Tables {
        let mut tables = Tables::default();
        for number in 1..=100_u64 {
            let url = DocumentUrl::parse(&format!("http://api.test/users/{}", number * 37 % 101)).unwrap();
            let (sequence, revision) = (Sequence(1000 + number), Revision::new(1));
            let head = Head {
                number: DocumentNumber(number),
                sequence,
                revision,
                updated_at: Timestamp::UNIX_EPOCH,
                deleted: false,
            };
            let change = rows::encode_change(&head, None, &url, Some(&Bytes::from_static(b"{}")), None);
            tables.0.insert((Table::Heads.name(), keys::head(stream, &url)), head.encode());
            tables.0.insert((Table::Changes.name(), keys::change(stream, sequence)), change);
            let has = Sequence(if number % 10 == 0 { 1 } else { sequence.0 });
            if number % 7 != 0 {
                let row = rows::encode_version(&Version { sequence: has, revision, deleted: false });
                tables.0.insert((Table::Versions.name(), keys::outlet_document(outlet, head.number)), row);
            }
        }
        tables
    }

    #[test]
    fn what_is_missing_is_found_in_however_many_passes() {
        let (stream, outlet) = (StreamId::generate(), OutletId::generate());
        let tables = tables(stream, outlet);
        let span = Span { after: Sequence::START, until: Sequence::MAX };
        let expected: Vec<u64> = (1..=100).filter(|number| number % 7 == 0 || number % 10 == 0).collect();
        for heads_max in [1, 3, 64, 1000] {
            let behind = find_in_passes(&tables, stream, outlet, span, 1000, heads_max).unwrap();
            let numbers: Vec<_> = behind.iter().map(|document| document.number.0).collect();
            assert_eq!(numbers, expected, "{heads_max} at once");
        }
        let some = find_in_passes(&tables, stream, outlet, span, 5, 3).unwrap();
        assert_eq!(some.iter().map(|document| document.number.0).collect::<Vec<_>>(), expected[..5]);
        let span = Span { after: Sequence(1010), until: Sequence(1020) };
        let some = find_in_passes(&tables, stream, outlet, span, 1000, 3).unwrap();
        assert_eq!(some.iter().map(|document| document.number.0).collect::<Vec<_>>(), [14, 20]);
    }
}
