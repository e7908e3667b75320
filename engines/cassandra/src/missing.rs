//! Truth against versions: on which documents is an outlet behind?

use std::collections::BTreeMap;

use flare_core::{DocumentNumber, OutletId, Result, Sequence, StreamId, delivery::Behind, port::Span};
use rustc_hash::FxHashMap;

use crate::{
    Core,
    connection::all,
    feed::{self, Item},
    layout::{self, outlet_uuid},
    statement::Query,
};

const READ: Query = Query::new("SELECT number, sequence FROM versions WHERE outlet = ? AND bucket = ? AND number IN ?");
/// Changes that are compared at once.
const STEP_MAX: usize = 1000;
/// Versions of one partition that are asked for at once.
const NUMBERS_MAX: usize = 100;

pub(crate) async fn find(
    core: &Core,
    stream: StreamId,
    outlet: OutletId,
    span: Span,
    limit: usize,
) -> Result<Vec<Behind>> {
    let until = span.until.min(core.applied()).0;
    let mut after = span.after.0;
    let mut behind = Vec::new();
    while after < until && behind.len() < limit {
        let mut items: Vec<Item> = Vec::new();
        after = feed::walk(&core.connection, stream, after, until, |item| {
            if item.replaced_by.is_none() {
                items.push(item);
            }
            Ok(items.len() < STEP_MAX)
        })
        .await?;
        let versions = versions(core, outlet, &items).await?;
        let lacking = items
            .into_iter()
            .filter(|item| versions.get(&item.head.number).is_none_or(|has| *has < item.head.sequence));
        behind.extend(lacking.map(|item| Behind {
            number: DocumentNumber(item.head.number),
            url: item.url,
            sequence: Sequence(item.head.sequence),
            revision: item.head.revision,
            updated_at: item.head.updated_at,
        }));
    }
    behind.truncate(limit);
    Ok(behind)
}

/// The sequences that the outlet has of these documents.
async fn versions(core: &Core, outlet: OutletId, items: &[Item]) -> Result<FxHashMap<u64, u64>> {
    let mut buckets: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for item in items {
        buckets.entry(layout::versions_bucket(item.head.number)).or_default().push(item.head.number as i64);
    }
    let outlet = outlet_uuid(outlet);
    let mut reads = Vec::new();
    for (bucket, numbers) in &buckets {
        for numbers in numbers.chunks(NUMBERS_MAX) {
            reads.push(core.connection.rows::<(i64, Option<i64>)>(READ, (outlet, *bucket, numbers)));
        }
    }
    let versions = all(reads).await?.into_iter().flatten();
    Ok(versions.filter_map(|(number, sequence)| Some((number as u64, sequence? as u64))).collect())
}
