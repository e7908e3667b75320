//! Documents as they are read: one by one, in lists, and through their history.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use flare_core::{
    Error, Result, Sequence, StreamId,
    document::{Change, DocumentWrite, Written},
    port::{ChangeListener, DocumentPage, DocumentQuery, Documents, FeedPage, FeedQuery},
    url::DocumentUrl,
};
use flare_toolkit::batch::BatchLimits;
use futures_util::TryStreamExt;
use jiff::Timestamp;
use mongodb::bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};

use crate::{
    MongoStore,
    cache::DocumentKey,
    connection::Connection,
    rows::{self, UPDATED_AT, date, int, micros_past, read_change, read_int},
    table::Table,
    writer::{Done, Job},
};

/// Concurrent reads of documents go together.
pub(crate) const READ_LIMITS: BatchLimits = BatchLimits { jobs_max: 256, weight_max: 256, waiting_max: 8192, lanes: 4 };
/// How often and how long to wait for a change that is committed and not in its place yet.
const LOOKS_MAX: u32 = 50;
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

#[async_trait]
impl Documents for MongoStore {
    async fn write(&self, writes: Vec<DocumentWrite>) -> Result<Vec<Written>> {
        match self.lane.write(Job::Documents(writes)).await? {
            Done::Written(written) => Ok(written),
            _ => Err(Error::internal("a write of documents was answered as another")),
        }
    }

    async fn get(&self, stream: StreamId, url: &DocumentUrl) -> Result<Option<Change>> {
        for look in 0..LOOKS_MAX {
            match self.reads.run((stream, url.clone()), 1).await? {
                Found::Nothing => return Ok(None),
                Found::Change(change) => return Ok(Some(*change)),
                Found::Later if look == LOOKS_MAX / 2 => self.lane.repair().await?,
                Found::Later => tokio::time::sleep(LOOK_INTERVAL).await,
            }
        }
        Err(Error::unavailable(format!("the newest change of {} is not there yet", url.as_str())))
    }

    async fn change_at(&self, stream: StreamId, sequence: Sequence) -> Result<Option<Change>> {
        if sequence.0 > i64::MAX as u64 {
            return Ok(None);
        }
        let rows = self.connection.rows(Table::Changes);
        let find = rows.find_one(doc! { "_id": int(sequence.0) });
        let row = self.connection.call("read a change", find).await?;
        let change = row.map(|row| read_change(&row)).transpose()?;
        Ok(change.filter(|change| change.stream == stream))
    }

    async fn next_change(&self, stream: StreamId, url: &DocumentUrl, after: Sequence) -> Result<Option<Change>> {
        let Some(newest) = self.get(stream, url).await?.filter(|newest| newest.sequence > after) else {
            return Ok(None);
        };
        if newest.replaces.is_none_or(|older| older <= after) {
            return Ok(Some(newest));
        }
        let filter = doc! { "number": int(newest.number.0), "_id": { "$gt": int(after.0) } };
        let rows = self.connection.rows(Table::Changes);
        let find = rows.find_one(filter).sort(doc! { "_id": 1 });
        let row = self.connection.call("read the next change", find).await?;
        row.map(|row| read_change(&row)).transpose()
    }

    async fn page(&self, stream: StreamId, query: &DocumentQuery) -> Result<DocumentPage> {
        // Documents that changed in between end a page; one that would be empty by that is read again.
        loop {
            if let Some(page) = self.try_page(stream, query).await? {
                return Ok(page);
            }
        }
    }

    async fn feed(&self, stream: StreamId, query: FeedQuery) -> Result<FeedPage> {
        self.read_feed(stream, query).await
    }

    async fn sequence_at(&self, time: Timestamp) -> Result<Sequence> {
        let filter = doc! { "_id": { "$lte": date(time) } };
        let rows = self.connection.rows(Table::Clock);
        let find = rows.find_one(filter).sort(doc! { "_id": -1 });
        let row = self.connection.call("read the clock", find).await?;
        row.map_or(Ok(Sequence::START), |row| Ok(Sequence(read_int(&row, "sequence")?)))
    }

    async fn sweep(&self, older_than: Timestamp) -> Result<u64> {
        self.sweep_changes(older_than).await
    }

    fn head(&self) -> Sequence {
        self.follower.head()
    }

    fn listen(&self, listener: Arc<dyn ChangeListener>) {
        self.follower.listen(listener);
    }
}

/// What a look for a document found.
pub(crate) enum Found {
    Nothing,
    Change(Box<Change>),
    /// There is a newest change, and it is not in its place yet.
    Later,
}

/// Adds the change that a document names, as the only item of `change`.
pub(crate) fn with_change() -> Document {
    let changes = Table::Changes.name();
    doc! { "$lookup": { "from": changes, "localField": "sequence", "foreignField": "_id", "as": "change" } }
}

/// The change in a row that [`with_change`] has made.
pub(crate) fn joined_change(row: &RawDocument) -> Result<Option<Change>> {
    let Ok(list) = row.get_array("change") else { return Ok(None) };
    match list.get_document(0) {
        Ok(change) => read_change(change).map(Some),
        Err(_) => Ok(None),
    }
}

/// Reads many documents at once; the answers are in the order of the keys.
pub(crate) async fn read_many(connection: &Connection, keys: Vec<DocumentKey>) -> Result<Vec<Result<Found>>> {
    let ids: Vec<Bson> =
        keys.iter().map(|(stream, url)| doc! { "stream": stream.to_string(), "url": url.as_str() }.into()).collect();
    let pipeline = [doc! { "$match": { "_id": { "$in": ids } } }, with_change()];
    let rows = aggregate(connection, Table::Documents, pipeline);
    let mut found = std::collections::HashMap::with_capacity(keys.len());
    for row in connection.call("read documents", rows).await? {
        found.insert(rows::read_document_key(&row)?, row);
    }
    let answer = |key| match found.get(&key) {
        None => Ok(Found::Nothing),
        Some(row) => Ok(joined_change(row)?.map_or(Found::Later, |change| Found::Change(Box::new(change)))),
    };
    Ok(keys.into_iter().map(answer).collect())
}

async fn aggregate(
    connection: &Connection,
    table: Table,
    pipeline: impl IntoIterator<Item = Document>,
) -> mongodb::error::Result<Vec<RawDocumentBuf>> {
    let rows = connection.rows(table);
    let cursor = rows.aggregate(pipeline).with_type::<RawDocumentBuf>().await?;
    cursor.try_collect().await
}

/// How many documents the stream has: its last change says so.
pub(crate) async fn total(connection: &Connection, stream: StreamId) -> Result<u64> {
    let rows = connection.rows(Table::Changes);
    let find = rows.find_one(doc! { "stream": stream.to_string() });
    let find = find.sort(doc! { "_id": -1 }).projection(doc! { "total": 1 });
    let row = connection.call("count documents", find).await?;
    row.map_or(Ok(0), |row| read_int(&row, "total"))
}

impl MongoStore {
    /// None if all that would be on the page has changed while it was read.
    async fn try_page(&self, stream: StreamId, query: &DocumentQuery) -> Result<Option<DocumentPage>> {
        let mut filter = list_filter(stream, query);
        let is_whole = query.prefix.is_empty() && query.changed_since.is_none();
        let total = if is_whole {
            total(&self.connection, stream).await? as usize
        } else {
            let rows = self.connection.rows(Table::Documents);
            let count = rows.count_documents(filter.clone());
            self.connection.call("count documents", count).await? as usize
        };
        let mut page = DocumentPage { documents: Vec::new(), total };
        if query.limit == 0 || query.offset >= total {
            return Ok(Some(page));
        }
        if let (Some(after), Ok(range)) = (&query.after, filter.get_document_mut("_id")) {
            range.insert("$gt", doc! { "stream": stream.to_string(), "url": after.as_str() });
        }
        let pipeline = [
            doc! { "$match": filter },
            doc! { "$sort": { "_id": 1 } },
            doc! { "$skip": int(query.offset as u64) },
            doc! { "$limit": int(query.limit as u64) },
            with_change(),
        ];
        let rows = self.connection.rows(Table::Documents);
        let read = async {
            let mut cursor = rows.aggregate(pipeline).with_type::<RawDocumentBuf>().await?;
            let (mut found, mut bytes) = (Vec::new(), 0);
            while query.bytes_max.is_none_or(|max| bytes < max)
                && let Some(row) = cursor.try_next().await?
            {
                bytes += row.as_bytes().len();
                found.push(row);
            }
            Ok(found)
        };
        let rows = self.connection.call("list documents", read).await?;
        for row in &rows {
            let Some(change) = joined_change(row)? else { break };
            page.documents.push(change);
        }
        Ok((rows.is_empty() || !page.documents.is_empty()).then_some(page))
    }
}

fn list_filter(stream: StreamId, query: &DocumentQuery) -> Document {
    let stream = stream.to_string();
    let end: Bson = if query.prefix.is_empty() {
        Bson::MaxKey
    } else {
        // URLs are ASCII, so this is past all that start so.
        format!("{}\u{10ffff}", query.prefix).into()
    };
    let from = doc! { "stream": &stream, "url": &query.prefix };
    let mut filter = doc! { "_id": { "$gte": from, "$lt": { "stream": stream, "url": end } }, "deleted": false };
    if let Some(since) = query.changed_since {
        let (date_name, micros_name) = (UPDATED_AT.date.as_str(), UPDATED_AT.micros.as_str());
        let mut ways = vec![doc! { date_name: { "$gt": date(since) } }];
        match micros_past(since) {
            0 => ways.push(doc! { date_name: date(since) }),
            past => ways.push(doc! { date_name: date(since), micros_name: { "$gte": past } }),
        }
        filter.insert("$or", ways);
    }
    filter
}
