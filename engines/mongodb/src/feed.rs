//! The feed: changes in the order of their sequences.

use flare_core::{
    Result, Sequence, StreamId,
    document::Change,
    outlet::Revisions,
    port::{FeedPage, FeedQuery},
};
use futures_util::TryStreamExt;
use mongodb::bson::{Document, RawDocumentBuf, doc};

use crate::{
    MongoStore,
    connection::Connection,
    documents::{joined_change, with_change},
    rows::{int, read_change, read_int},
    table::Table,
};

/// Rows of one look into the feed.
const FEED_ROWS_MAX: usize = 1000;

impl MongoStore {
    pub(crate) async fn read_feed(&self, stream: StreamId, query: FeedQuery) -> Result<FeedPage> {
        let head = self.follower.head();
        if query.after >= head || query.limit == 0 {
            return Ok(FeedPage { changes: Vec::new(), until: query.after });
        }
        let limit = query.limit.min(FEED_ROWS_MAX);
        let span = doc! { "$gt": int(query.after.0), "$lte": int(head.0) };
        let stream = stream.to_string();
        let (table, pipeline) = match query.revisions {
            // The newest change of each document is where its row says.
            Revisions::Last => (
                Table::Documents,
                vec![
                    doc! { "$match": { "stream": stream, "sequence": span } },
                    doc! { "$sort": { "sequence": 1 } },
                    doc! { "$limit": int(limit as u64) },
                    with_change(),
                ],
            ),
            Revisions::All => (
                Table::Changes,
                vec![
                    doc! { "$match": { "stream": stream, "_id": span } },
                    doc! { "$sort": { "_id": 1 } },
                    doc! { "$limit": int(limit as u64) },
                ],
            ),
        };
        let (rows, is_cut) = self.read_some(table, pipeline, query.bytes_max).await?;
        let mut page = FeedPage { changes: Vec::with_capacity(rows.len()), until: head };
        if (is_cut || rows.len() >= limit)
            && let Some(last) = rows.last()
        {
            page.until = match query.revisions {
                Revisions::Last => Sequence(read_int(last, "sequence")?),
                Revisions::All => Sequence(read_int(last, "_id")?),
            };
        }
        for row in rows {
            match query.revisions {
                Revisions::Last => page.changes.extend(joined_change(&row)?),
                Revisions::All => page.changes.push(read_change(&row)?),
            }
        }
        Ok(page)
    }

    /// Rows of about so many bytes, but at least one, and whether there may be more.
    async fn read_some(
        &self,
        table: Table,
        pipeline: Vec<Document>,
        bytes_max: usize,
    ) -> Result<(Vec<RawDocumentBuf>, bool)> {
        let rows = self.connection.rows(table);
        let read = async {
            let mut cursor = rows.aggregate(pipeline).with_type::<RawDocumentBuf>().await?;
            let (mut found, mut bytes) = (Vec::new(), 0);
            while let Some(row) = cursor.try_next().await? {
                bytes += row.as_bytes().len();
                found.push(row);
                if bytes >= bytes_max {
                    return Ok((found, true));
                }
            }
            Ok((found, false))
        };
        self.connection.call("read the feed", read).await
    }
}

/// What follows a sequence, of all streams, in order: what others have written.
pub(crate) async fn read_after(
    connection: &Connection,
    after: Sequence,
    until: Sequence,
    limit: usize,
) -> Result<Vec<Change>> {
    let filter = doc! { "_id": { "$gt": int(after.0), "$lte": int(until.0) } };
    let rows = connection.rows(Table::Changes);
    let find = rows.find(filter).sort(doc! { "_id": 1 }).limit(limit as i64);
    let read = async { find.await?.try_collect::<Vec<_>>().await };
    let rows = connection.call("read what others have written", read).await?;
    rows.iter().map(|row| read_change(row)).collect()
}
