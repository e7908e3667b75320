//! Documents and their feed.

use std::sync::Arc;

use async_trait::async_trait;
use flare_core::{
    DocumentNumber, Result, Sequence, StreamId,
    document::{Change, DocumentWrite, WriteBody, Written, WrittenChange},
    outlet::Revisions,
    port::{ChangeListener, DocumentPage, DocumentQuery, Documents, FeedPage, FeedQuery},
    trace::Trace,
    url::DocumentUrl,
};
use jiff::Timestamp;
use tokio_postgres::Row;

use crate::{
    Inner, PostgresStore,
    connection::Call,
    values::{Id, Json, Number, Time, Url, bigint, sequence},
};

/// Rows of the feed that a look passes at least, so that one with many replaced changes does not take forever.
const FEED_ROWS_MIN: usize = 256;
/// What the follower reads at once.
const FOLLOW_BYTES_MAX: i64 = 8 << 20;
/// What a write costs besides its content.
const WRITE_BYTES: usize = 256;
/// After every URL: they are printable ASCII.
const AFTER_URLS: &str = "\x7f";
/// What the index has of a URL.
const INDEXED_BYTES: usize = 2000;

macro_rules! columns {
    () => {
        "c.sequence, c.stream, c.number, c.replaces, c.revision, c.updated_at, c.url, c.content, c.trace"
    };
}

const GET: &str = concat!(
    "SELECT ",
    columns!(),
    ", w.place FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS w (stream, url, place) CROSS JOIN LATERAL \
     (SELECT d.sequence FROM documents d WHERE d.stream = w.stream AND left(d.url, 2000) = left(w.url, 2000) \
     AND d.url = w.url LIMIT 1) d CROSS JOIN LATERAL (SELECT * FROM changes c WHERE c.sequence = d.sequence) c"
);
const CHANGE_AT: &str = concat!("SELECT ", columns!(), " FROM changes c WHERE c.sequence = $2 AND c.stream = $1");
/// Each change knows the one that it replaced.
const NEXT_CHANGE: &str = concat!(
    "WITH RECURSIVE older (sequence, replaces) AS (\
     SELECT c.sequence, c.replaces FROM documents d JOIN changes c ON c.sequence = d.sequence \
     WHERE d.stream = $1 AND left(d.url, 2000) = left($2::text, 2000) AND d.url = $2 AND d.sequence > $3 \
     UNION ALL SELECT c.sequence, c.replaces FROM older o JOIN changes c ON c.sequence = o.replaces \
     WHERE o.replaces > $3) \
     SELECT ",
    columns!(),
    " FROM changes c WHERE c.sequence = (SELECT min(sequence) FROM older)"
);
const PAGE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM (SELECT c.*, p.place, sum(c.bytes) OVER (ORDER BY p.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) \
     AS before FROM (SELECT d.sequence, row_number() OVER () AS place FROM (\
     SELECT sequence FROM documents WHERE stream = $1 AND left(url, 2000) >= $2 AND left(url, 2000) < $3 \
     AND starts_with(url, $4) AND NOT deleted AND updated_at >= $5 AND url > $9 ORDER BY left(url, 2000), url \
     OFFSET $6 LIMIT $7) d) p \
     CROSS JOIN LATERAL (SELECT * FROM changes c WHERE c.sequence = p.sequence) c) c \
     WHERE coalesce(c.before, 0) < $8 ORDER BY c.place"
);
const COUNT: &str = "SELECT count(*) FROM documents WHERE stream = $1 AND left(url, 2000) >= $2 \
    AND left(url, 2000) < $3 AND starts_with(url, $4) AND NOT deleted AND updated_at >= $5";
const COUNTED: &str = "SELECT documents FROM streams WHERE id = $1";
pub(crate) const HEAD: &str = "SELECT sequence FROM head";
/// The last row that was looked at comes in any case: it tells how far the look went.
const FEED: &str = "SELECT sequence, stream, number, replaces, revision, updated_at, url, \
     CASE WHEN is_wanted THEN content END AS content, trace, is_wanted, bytes, looked = $3 FROM (\
     SELECT c.*, coalesce($4 OR d.sequence = c.sequence, false) AS is_wanted, row_number() OVER w AS looked, \
     sum(CASE WHEN $4 OR d.sequence = c.sequence THEN c.bytes ELSE 0 END) \
     OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before \
     FROM (SELECT * FROM changes WHERE stream = $1 AND sequence > $2 ORDER BY sequence LIMIT $3) c \
     LEFT JOIN documents d ON d.number = c.number WINDOW w AS (ORDER BY c.sequence)) f \
     WHERE (is_wanted AND coalesce(before, 0) < $5) OR looked = $3 ORDER BY sequence";
const FOLLOW: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM (SELECT c.*, sum(c.bytes) OVER (ORDER BY c.sequence ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) \
     AS before FROM (SELECT * FROM changes WHERE sequence > $1 ORDER BY sequence LIMIT $2) c) c \
     WHERE coalesce(c.before, 0) < $3 ORDER BY c.sequence"
);

#[async_trait]
impl Documents for PostgresStore {
    async fn write(&self, writes: Vec<DocumentWrite>) -> Result<Vec<Written>> {
        self.inner.writer.check()?;
        let weight = writes.iter().map(|write| WRITE_BYTES + content_bytes(write)).sum();
        self.writes.run_within(self.inner.patience(), writes, weight, || self.inner.busy()).await
    }

    async fn get(&self, stream: StreamId, url: &DocumentUrl) -> Result<Option<Change>> {
        self.gets.run_within(self.inner.patience(), (stream, url.clone()), 1, || self.inner.busy()).await
    }

    async fn change_at(&self, stream: StreamId, sequence: Sequence) -> Result<Option<Change>> {
        let call = Call::new(CHANGE_AT).with(Id::from(stream)).with(bigint(sequence));
        self.inner.pool.query(&call).await?.first().map(read_change).transpose()
    }

    async fn next_change(&self, stream: StreamId, url: &DocumentUrl, after: Sequence) -> Result<Option<Change>> {
        let call = Call::new(NEXT_CHANGE).with(Id::from(stream)).with(Url(url.clone())).with(bigint(after));
        self.inner.pool.query(&call).await?.first().map(read_change).transpose()
    }

    async fn page(&self, stream: StreamId, query: &DocumentQuery) -> Result<DocumentPage> {
        self.inner.page(stream, query).await
    }

    async fn feed(&self, stream: StreamId, query: FeedQuery) -> Result<FeedPage> {
        if query.after >= self.head() || query.limit == 0 {
            return Ok(FeedPage { changes: Vec::new(), until: query.after });
        }
        self.inner.feed(stream, &query).await
    }

    async fn sequence_at(&self, time: Timestamp) -> Result<Sequence> {
        self.inner.clock_at(time).await
    }

    async fn sweep(&self, older_than: Timestamp) -> Result<u64> {
        self.inner.sweep_changes(older_than).await
    }

    fn head(&self) -> Sequence {
        self.inner.follower.head()
    }

    fn listen(&self, listener: Arc<dyn ChangeListener>) {
        self.inner.follower.listen(listener);
    }
}

fn content_bytes(write: &DocumentWrite) -> usize {
    match &write.body {
        WriteBody::Put { content, .. } => content.len(),
        WriteBody::Delete { .. } => 0,
    }
}

impl Inner {
    /// The newest changes of many documents, in one round trip.
    pub(crate) async fn get_all(&self, jobs: Vec<(StreamId, DocumentUrl)>) -> Result<Vec<Result<Option<Change>>>> {
        let mut found: Vec<Result<Option<Change>>> = jobs.iter().map(|_| Ok(None)).collect();
        let (ids, urls): (Vec<Id>, Vec<Url>) =
            jobs.into_iter().map(|(stream, url)| (Id::from(stream), Url(url))).unzip();
        for row in self.pool.query(&Call::new(GET).with(ids).with(urls)).await? {
            let place: i64 = row.try_get(9).map_err(crate::groups::unreadable)?;
            if let Some(slot) = found.get_mut(place as usize - 1) {
                *slot = read_change(&row).map(Some);
            }
        }
        Ok(found)
    }

    async fn page(&self, stream: StreamId, query: &DocumentQuery) -> Result<DocumentPage> {
        if !query.prefix.is_ascii() {
            // No URL has such characters.
            return Ok(DocumentPage::default());
        }
        let after = query.after.as_ref().map_or("", DocumentUrl::as_str);
        let narrowed = |sql, after: &str| {
            let (from, to) = index_range(&query.prefix);
            let from = from.max(after[..after.len().min(INDEXED_BYTES)].to_owned());
            let since = Time(query.changed_since.unwrap_or(Timestamp::UNIX_EPOCH));
            Call::new(sql).with(Id::from(stream)).with(from).with(to).with(query.prefix.clone()).with(since)
        };
        let page = narrowed(PAGE, after)
            .with(i64::try_from(query.offset).unwrap_or(i64::MAX))
            .with(i64::try_from(query.limit).unwrap_or(i64::MAX))
            .with(query.bytes_max.and_then(|max| i64::try_from(max).ok()).unwrap_or(i64::MAX))
            .with(after.to_owned());
        let count = if query.prefix.is_empty() && query.changed_since.is_none() {
            Call::new(COUNTED).with(Id::from(stream))
        } else {
            narrowed(COUNT, "")
        };
        let rows = self.pool.query_all(&[&page, &count]).await?;
        let documents = rows[0].iter().map(read_change).collect::<Result<_>>()?;
        let total: i64 = rows[1].first().map_or(Ok(0), |row| row.try_get(0)).map_err(crate::groups::unreadable)?;
        Ok(DocumentPage { documents, total: usize::try_from(total).unwrap_or(0) })
    }

    async fn feed(&self, stream: StreamId, query: &FeedQuery) -> Result<FeedPage> {
        let is_all = query.revisions == Revisions::All;
        let look = if is_all { query.limit } else { query.limit.max(FEED_ROWS_MIN) };
        let head = Call::new(HEAD);
        let feed = Call::new(FEED)
            .with(Id::from(stream))
            .with(bigint(query.after))
            .with(look as i64)
            .with(is_all)
            .with(query.bytes_max as i64);
        let rows = self.pool.query_all(&[&head, &feed]).await?;
        let unreadable = crate::groups::unreadable;
        let mut page = FeedPage { changes: Vec::new(), until: read_sequence(&rows[0])?.max(query.after) };
        let mut bytes = 0;
        for row in &rows[1] {
            let at = sequence(row.try_get(0).map_err(unreadable)?);
            if row.try_get(9).map_err(unreadable)? {
                bytes += row.try_get::<_, i32>(10).map_err(unreadable)? as usize;
                page.changes.push(read_change(row)?);
            }
            let is_end_of_look = row.try_get(11).map_err(unreadable)?;
            if page.changes.len() >= query.limit || bytes >= query.bytes_max || is_end_of_look {
                page.until = at;
                return Ok(page);
            }
            // The head was read before the feed, which may know of more.
            page.until = page.until.max(at);
        }
        Ok(page)
    }

    /// What follows a sequence, of all streams.
    pub(crate) async fn follow(&self, after: Sequence, limit: usize) -> Result<Vec<Change>> {
        let call = Call::new(FOLLOW).with(bigint(after)).with(limit as i64).with(FOLLOW_BYTES_MAX);
        self.pool.query(&call).await?.iter().map(read_change).collect()
    }

    pub(crate) async fn read_head(&self) -> Result<Sequence> {
        read_sequence(&self.pool.query(&Call::new(HEAD)).await?)
    }
}

fn read_sequence(rows: &[Row]) -> Result<Sequence> {
    let row = rows.first().ok_or_else(|| flare_core::Error::internal("the head of the store is gone"))?;
    row.try_get(0).map(sequence).map_err(crate::groups::unreadable)
}

/// The part of the index that has all URLs with this prefix.
fn index_range(prefix: &str) -> (String, String) {
    let from = &prefix[..prefix.len().min(INDEXED_BYTES)];
    let mut to = from.as_bytes().to_vec();
    match to.last_mut() {
        Some(last) if *last < 0x7f => *last += 1,
        _ => return (from.into(), AFTER_URLS.into()),
    }
    (from.into(), String::from_utf8(to).unwrap_or_else(|_| AFTER_URLS.into()))
}

fn read_change(row: &Row) -> Result<Change> {
    let read = || {
        let written = WrittenChange {
            sequence: sequence(row.try_get(0)?),
            number: DocumentNumber(sequence(row.try_get(2)?).0),
            replaces: row.try_get::<_, Option<i64>>(3)?.map(sequence),
            revision: row.try_get::<_, Number>(4)?.0,
        };
        let stream = StreamId::from_bytes(row.try_get::<_, Id>(1)?.0);
        let (Time(updated_at), Url(url)) = (row.try_get(5)?, row.try_get(6)?);
        let content = row.try_get::<_, Option<Json>>(7)?.map(|Json(content)| content);
        let trace = row.try_get::<_, Option<&str>>(8)?.and_then(read_trace);
        Ok(Change::new(stream, &written, url, updated_at, content).with_trace(trace))
    };
    read().map_err(crate::groups::unreadable)
}

/// What is not a trace any more is as good as none.
fn read_trace(text: &str) -> Option<Arc<Trace>> {
    let (parent, state) = text.split_once(' ').map_or((text, None), |(parent, state)| (parent, Some(state)));
    Trace::parse(parent, state).map(Arc::new)
}
