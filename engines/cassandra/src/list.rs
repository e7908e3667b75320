//! Lists of documents, in URL order.

use flare_core::{
    Result, StreamId,
    document::Change,
    port::{DocumentPage, DocumentQuery},
    url::DocumentUrl,
};
use flare_toolkit::rows::damaged;

use crate::{
    Core,
    connection::all,
    entities::{self, kind_shards},
    heads::{self, Head, HeadRow},
    layout,
    statement::Query,
};

const READ: Query = Query::new(
    "SELECT url, number, sequence, revision, updated_at, deleted, replaces, bytes, group_id, position FROM heads \
     WHERE stream = ? AND shard = ? AND url >= ?",
);

pub(crate) async fn page(core: &Core, stream: StreamId, query: &DocumentQuery) -> Result<DocumentPage> {
    // Documents that changed in between end a page; one that would be empty by that is read again.
    loop {
        if let Some(page) = try_page(core, stream, query).await? {
            return Ok(page);
        }
    }
}

async fn try_page(core: &Core, stream: StreamId, query: &DocumentQuery) -> Result<Option<DocumentPage>> {
    let counted = if query.prefix.is_empty() && query.changed_since.is_none() {
        Some(entities::read_count(&core.connection, stream).await? as usize)
    } else {
        None
    };
    let (mut wanted, mut seen, mut passed) = (Vec::new(), 0, 0);
    // Whoever counts sees them all.
    let from = query.after.as_ref().filter(|_| counted.is_some()).map_or("", DocumentUrl::as_str);
    walk(core, stream, &query.prefix, from, |url, head| {
        if head.deleted || query.changed_since.is_some_and(|since| head.updated_at < since) {
            return true;
        }
        seen += 1;
        if query.after.as_ref().is_some_and(|after| url <= *after) {
            return true;
        }
        if passed >= query.offset && wanted.len() < query.limit {
            wanted.push((url, head));
        }
        passed += 1;
        counted.is_none() || wanted.len() < query.limit
    })
    .await?;
    let is_empty = wanted.is_empty();
    let documents = read(core, stream, wanted, query.bytes_max).await?;
    let is_read = is_empty || !documents.is_empty();
    Ok(is_read.then(|| DocumentPage { documents, total: counted.unwrap_or(seen) }))
}

/// Goes through the heads of a stream whose URLs start so, in order and from this one on, until `visit` says no.
async fn walk(
    core: &Core,
    stream: StreamId,
    prefix: &str,
    from: &str,
    mut visit: impl FnMut(DocumentUrl, Head) -> bool,
) -> Result<()> {
    for shard in shards(core, stream).await? {
        // All of the shard, a part of it, or nothing.
        if !shard.starts_with(prefix) && !prefix.starts_with(&shard) {
            continue;
        }
        if shard.as_str() < from && !from.starts_with(&shard) {
            continue;
        }
        let range = (layout::stream_uuid(stream), &shard, prefix.max(from));
        let mut rows = core.connection.stream::<HeadRow>(READ, range).await?;
        while let Some(row) = rows.next().await? {
            let (url, head) = heads::decode(row)?;
            if !url.as_str().starts_with(prefix) {
                break;
            }
            if !visit(url, head) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The partitions of a stream's heads, in the order of the URLs in them.
pub(crate) async fn shards(core: &Core, stream: StreamId) -> Result<Vec<String>> {
    let rows = entities::read_all(&core.connection, &kind_shards(stream)).await?;
    let shards = rows.into_iter().map(|(id, _)| String::from_utf8(id).map_err(|_| damaged("shard")));
    shards.collect()
}

/// The contents of these documents, about as many bytes as are wanted but at least one, and none from the first on that
/// changed in between.
async fn read(
    core: &Core,
    stream: StreamId,
    wanted: Vec<(DocumentUrl, Head)>,
    bytes_max: Option<usize>,
) -> Result<Vec<Change>> {
    let mut bytes = 0;
    let fitting = wanted.into_iter().take_while(|(url, head)| {
        let fits = bytes_max.is_none_or(|max| bytes < max);
        bytes += head.bytes as usize + url.as_str().len();
        fits
    });
    let mut reads = Vec::new();
    for (url, head) in fitting {
        reads.push(async move { core.change_of_head(stream, url, &head).await });
    }
    let changes = all(reads).await?;
    Ok(changes.into_iter().map_while(|change| change).collect())
}
