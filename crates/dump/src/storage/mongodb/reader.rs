//! Reading collections.
//!
//! A comparison in a filter of MongoDB meets only values of the same type, so a walk by `$gt` would end at the first
//! `_id` of another type. Ranges are therefore bounds of the index itself (`min` and `max`), which has one order over
//! all types. `min` includes its key and `max` excludes it: the key at the beginning is passed over, the one at the end
//! asked for.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use mongodb::Cursor as MongoCursor;
use mongodb::action::Find;
use mongodb::bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use mongodb::options::Hint;
use tokio::sync::OnceCell;

use super::failure::{NOTHING_BETWEEN, code, failure};
use super::{ID, Place, commands, decode, encode};
use crate::error::{Error, Result};
use crate::infer;
use crate::json;
use crate::key::{Key, Range};
use crate::location::Location;
use crate::port::{Batches, Boundary, Description, Reader, SAMPLE_ROWS, Upper, Walk};
use crate::row::{BATCH_BYTES, BATCH_ROWS, Batch, RawBatch, RawFormat, Row, RowBatch};
use crate::storage::ReadOptions;
use crate::storage::sequence::{Cursor, Sequence};
use crate::value::Value;

/// How many bytes the server sends at once, about.
const REPLY_BYTES: u64 = 1 << 20;
/// The fewest documents of a reply.
const REPLY_ROWS_MIN: u64 = 16;

/// Reads a collection.
pub struct MongoReader {
    place: Arc<Place>,
    by_offset: bool,
    shape: OnceCell<Shape>,
}

/// What is known once the collection was looked at.
#[derive(Clone)]
struct Shape {
    rows: Option<u64>,
    bytes: Option<u64>,
    /// Documents per reply.
    reply_rows: u32,
    walk: Walk,
    /// Serves what has no index over `_id`: views and time series.
    sequence: Option<Arc<Sequence>>,
}

impl MongoReader {
    pub fn new(location: &Location, options: &ReadOptions) -> Result<Self> {
        let place = Place::read(location)?;
        let is_id = |key: &Vec<String>| *key == [ID] || *key == place.id;
        if !options.key.is_empty() && !is_id(&options.key) {
            return Err(Error::invalid(format!("{location}: MongoDB is walked by {ID}, not by another key")));
        }
        Ok(Self { place: Arc::new(place), by_offset: options.by_offset, shape: OnceCell::new() })
    }

    async fn shape(&self) -> Result<&Shape> {
        self.shape.get_or_try_init(|| self.look()).await
    }

    async fn look(&self) -> Result<Shape> {
        let database = self.place.database().await?;
        let command = doc! { "listCollections": 1, "filter": { "name": &self.place.collection } };
        let found = database.run_cursor_command(command).await;
        let mut found = found.map_err(|error| failure("the collections cannot be listed", error))?;
        let is_there = found.advance().await.map_err(|error| failure("the collections cannot be listed", error))?;
        if !is_there {
            let (collection, database) = (&self.place.collection, &self.place.database);
            return Err(Error::invalid(format!("there is no collection {collection:?} in the database {database:?}")));
        }
        let kind = found.current().get_str("type").unwrap_or("collection").to_owned();
        let walk = match kind.as_str() {
            _ if self.by_offset => Walk::Offset,
            "collection" => Walk::Key(vec![ID.to_owned()]),
            _ => Walk::Sequence,
        };
        let (rows, bytes) = if kind == "collection" { self.sizes().await? } else { (None, None) };
        let row_bytes = rows.zip(bytes).map_or(1024, |(rows, bytes)| bytes / rows.max(1)).max(1);
        let reply_rows = (REPLY_BYTES / row_bytes).clamp(REPLY_ROWS_MIN, BATCH_ROWS as u64) as u32;
        let sequence = (walk == Walk::Sequence).then(|| Arc::new(sequence(Arc::clone(&self.place), reply_rows)));
        Ok(Shape { rows, bytes, reply_rows, walk, sequence })
    }

    async fn sizes(&self) -> Result<(Option<u64>, Option<u64>)> {
        let stats = self.place.database().await?.run_command(doc! { "collStats": &self.place.collection }).await;
        // Whoever may read documents may not always read this.
        let Ok(stats) = stats else { return Ok((None, None)) };
        let number = |name: &str| match stats.get(name) {
            Some(Bson::Int32(number)) => u64::try_from(*number).ok(),
            Some(Bson::Int64(number)) => u64::try_from(*number).ok(),
            Some(Bson::Double(number)) => Some(*number as u64),
            _ => None,
        };
        Ok((number("count"), number("size")))
    }

    /// The first document that a query finds, with its `_id` alone.
    async fn key(
        &self,
        find: impl FnOnce(&mongodb::Collection<RawDocumentBuf>) -> Find<'_, RawDocumentBuf> + Send,
    ) -> Result<Option<Key>> {
        let collection = self.place.collection().await?;
        let cursor = nothing_between(find(&collection).projection(doc! { ID: 1 }).limit(1).await);
        let Some(mut cursor) = cursor.map_err(|error| failure("the keys cannot be read", error))? else {
            return Ok(None);
        };
        if !cursor.advance().await.map_err(|error| failure("the keys cannot be read", error))? {
            return Ok(None);
        }
        key_of(cursor.current()).map(Some)
    }

    async fn count(&self) -> Result<u64> {
        let count = self.place.collection().await?.count_documents(Document::new()).await;
        count.map_err(|error| failure("the documents cannot be counted", error))
    }

    /// The first documents, and the last where nobody knows what documents are like.
    async fn documents(&self, rows: usize, from_the_end: bool) -> Result<RowBatch> {
        let collection = self.place.collection().await?;
        let order = if from_the_end { -1 } else { 1 };
        let mut find = collection.find(Document::new()).limit(i64::try_from(rows).unwrap_or(i64::MAX));
        if self.shape().await?.sequence.is_none() {
            find = find.sort(doc! { ID: order });
        }
        let mut cursor = find.await.map_err(|error| failure("a sample cannot be read", error))?;
        let mut sample = RowBatch::documents();
        while cursor.advance().await.map_err(|error| failure("a sample cannot be read", error))? {
            sample.push(row_of(cursor.current(), &self.place.id));
        }
        Ok(sample)
    }
}

#[async_trait]
impl Reader for MongoReader {
    async fn describe(&self) -> Result<Description> {
        let shape = self.shape().await?.clone();
        let mut sample = self.documents(SAMPLE_ROWS / 2, false).await?;
        if shape.sequence.is_none() {
            sample.rows.extend(self.documents(SAMPLE_ROWS / 2, true).await?.rows);
        }
        let mut schema = infer::schema(&sample);
        let own = [ID.to_owned()];
        let key = if self.place.id.is_empty() { &own[..] } else { &self.place.id };
        schema.key = key.iter().map(|name| Arc::from(name.as_str())).collect();
        schema.is_open = true;
        let raw = (self.place.id.is_empty() && shape.sequence.is_none())
            .then(|| RawFormat { name: RawFormat::BSON, names: Arc::from([]) });
        Ok(Description { schema, rows: shape.rows, bytes: shape.bytes, walk: shape.walk, raw })
    }

    async fn sample(&self, rows: usize) -> Result<RowBatch> {
        self.documents(rows, false).await
    }

    async fn upper(&self) -> Result<Upper> {
        match self.shape().await?.walk {
            Walk::Sequence => Ok(Upper::Unknown),
            Walk::Offset => Ok(match self.count().await? {
                0 => Upper::Empty,
                count => Upper::Key(Key::int(count as i64)),
            }),
            _ => {
                let last = self.key(|collection| collection.find(Document::new()).sort(doc! { ID: -1 })).await?;
                Ok(last.map_or(Upper::Empty, Upper::Key))
            }
        }
    }

    async fn boundary(&self, after: Option<&Key>, upper: Option<&Key>, rows: u64) -> Result<Boundary> {
        match self.shape().await?.walk {
            Walk::Sequence => return Ok(Sequence::boundary(after, rows)),
            Walk::Offset => {
                let at = position(after).saturating_add(rows);
                let is_last = upper.is_some_and(|upper| at >= position(Some(upper)));
                return Ok(if is_last { Boundary::Last } else { Boundary::At(Key::int(at as i64)) });
            }
            _ => (),
        }
        let (min, max) = (after.map(bound).transpose()?, upper.map(bound).transpose()?);
        // From the beginning, the row that is `rows` further has one fewer before it.
        let skip = if min.is_some() { rows } else { rows.saturating_sub(1) };
        let found = self.key(|collection| within(collection.find(Document::new()), min, max).skip(skip)).await?;
        Ok(found.map_or(Boundary::Last, Boundary::At))
    }

    fn read(&self, range: &Range, raw: bool) -> Batches {
        if let Some(Shape { sequence: Some(sequence), .. }) = self.shape.get() {
            return sequence.read(range);
        }
        let (place, range) = (Arc::clone(&self.place), range.clone());
        let reply_rows = self.shape.get().map_or(BATCH_ROWS as u32, |shape| shape.reply_rows);
        let by_offset = self.by_offset;
        if range.after.is_some() && range.after == range.upto {
            return Box::pin(stream::empty());
        }
        let open = async move {
            let collection = place.collection().await?;
            let find = collection.find(Document::new()).batch_size(reply_rows);
            let find = if by_offset { counted(find, &range) } else { bounded(find, &range)? };
            let cursor = nothing_between(find.await);
            let cursor = cursor.map_err(|error| failure(&format!("documents {range} cannot be read"), error))?;
            let last = if by_offset { None } else { range.upto };
            Ok(Documents { place, cursor, passed_over: range.after.filter(|_| !by_offset), last, raw, is_over: false })
        };
        Box::pin(stream::try_unfold(State::Closed(Box::pin(open)), |state| async move {
            let mut documents = match state {
                State::Closed(open) => open.await?,
                State::Open(documents) => documents,
            };
            let batch = documents.next().await?;
            Ok(batch.map(|batch| (batch, State::Open(documents))))
        }))
    }
}

#[allow(clippy::large_enum_variant, reason = "there is one per chunk on its way")]
enum State {
    Closed(std::pin::Pin<Box<dyn Future<Output = Result<Documents>> + Send>>),
    Open(Documents),
}

/// The documents of a range on their way.
struct Documents {
    place: Arc<Place>,
    /// None if there is nothing between the bounds.
    cursor: Option<MongoCursor<RawDocumentBuf>>,
    /// The key that the range begins after, if it may come first.
    passed_over: Option<Key>,
    /// The key that the range ends with, which the cursor leaves out.
    last: Option<Key>,
    raw: bool,
    is_over: bool,
}

/// What was gathered of a batch.
struct Gathered {
    rows: RowBatch,
    raw: Vec<u8>,
    raw_rows: u64,
}

impl Documents {
    async fn next(&mut self) -> Result<Option<Batch>> {
        let mut gathered = Gathered { rows: RowBatch::documents(), raw: Vec::new(), raw_rows: 0 };
        while !self.is_over && !gathered.is_full() {
            if self.advance().await? {
                self.add(&mut gathered)?;
                continue;
            }
            self.is_over = true;
            if let Some(last) = self.last.take()
                && let Some(document) = find_one(&self.place, &last).await?
            {
                gathered.push(&document, self.raw, &self.place.id);
            }
        }
        Ok(gathered.into_batch())
    }

    async fn advance(&mut self) -> Result<bool> {
        let Some(cursor) = &mut self.cursor else { return Ok(false) };
        cursor.advance().await.map_err(|error| failure("the documents cannot be read", error))
    }

    fn add(&mut self, gathered: &mut Gathered) -> Result<()> {
        let Some(cursor) = &self.cursor else { return Ok(()) };
        let document = cursor.current();
        if let Some(key) = self.passed_over.take()
            && json::to_string(&key_of(document)?.0[0]) == json::to_string(&key.0[0])
        {
            return Ok(());
        }
        gathered.push(document, self.raw, &self.place.id);
        Ok(())
    }
}

async fn find_one(place: &Place, key: &Key) -> Result<Option<RawDocumentBuf>> {
    let id = bound(key)?.remove(ID).unwrap_or(Bson::Null);
    let found = place.collection().await?.find_one(doc! { ID: { "$eq": id } }).await;
    found.map_err(|error| failure("the last document of a range cannot be read", error))
}

impl Gathered {
    fn push(&mut self, document: &RawDocument, raw: bool, id: &[String]) {
        if raw {
            self.raw.extend_from_slice(document.as_bytes());
            self.raw_rows += 1;
        } else {
            self.rows.push(row_of(document, id));
        }
    }

    fn is_full(&self) -> bool {
        self.rows.is_full() || self.raw.len() >= BATCH_BYTES
    }

    fn into_batch(self) -> Option<Batch> {
        if self.raw_rows > 0 {
            return Some(Batch::Raw(RawBatch { data: Bytes::from(self.raw), rows: self.raw_rows }));
        }
        (!self.rows.is_empty()).then_some(Batch::Rows(self.rows))
    }
}

/// All documents in the order in which they lie.
struct Natural {
    place: Arc<Place>,
    cursor: MongoCursor<RawDocumentBuf>,
}

fn sequence(place: Arc<Place>, reply_rows: u32) -> Sequence {
    Sequence::new(Arc::new(move || {
        let place = Arc::clone(&place);
        Box::pin(async move {
            let cursor = place.collection().await?.find(Document::new()).batch_size(reply_rows).await;
            let cursor = cursor.map_err(|error| failure("the documents cannot be read", error))?;
            Ok(Box::new(Natural { place, cursor }) as Box<dyn Cursor>)
        })
    }))
}

#[async_trait]
impl Cursor for Natural {
    async fn next(&mut self) -> Result<Option<RowBatch>> {
        let mut batch = RowBatch::documents();
        while !batch.is_full() {
            if !self.cursor.advance().await.map_err(|error| failure("the documents cannot be read", error))? {
                break;
            }
            batch.push(row_of(self.cursor.current(), &self.place.id));
        }
        Ok((!batch.is_empty()).then_some(batch))
    }
}

/// The range as bounds of the index.
fn bounded<'a>(find: Find<'a, RawDocumentBuf>, range: &Range) -> Result<Find<'a, RawDocumentBuf>> {
    let (min, max) = (range.after.as_ref().map(bound).transpose()?, range.upto.as_ref().map(bound).transpose()?);
    Ok(within(find, min, max))
}

fn within(find: Find<'_, RawDocumentBuf>, min: Option<Document>, max: Option<Document>) -> Find<'_, RawDocumentBuf> {
    let mut find = find.hint(Hint::Keys(doc! { ID: 1 })).sort(doc! { ID: 1 });
    if let Some(min) = min {
        find = find.min(min);
    }
    if let Some(max) = max {
        find = find.max(max);
    }
    find
}

/// The server takes no bounds between which nothing can be, such as those before the smallest key of all.
fn nothing_between(
    found: mongodb::error::Result<MongoCursor<RawDocumentBuf>>,
) -> mongodb::error::Result<Option<MongoCursor<RawDocumentBuf>>> {
    match found {
        Err(error) if code(&error) == Some(NOTHING_BETWEEN) => Ok(None),
        found => found.map(Some),
    }
}

/// The range as a count of rows.
fn counted<'a>(find: Find<'a, RawDocumentBuf>, range: &Range) -> Find<'a, RawDocumentBuf> {
    let from = position(range.after.as_ref());
    let find = find.sort(doc! { ID: 1 }).skip(from);
    match &range.upto {
        Some(upto) => find.limit(position(Some(upto)).saturating_sub(from) as i64),
        None => find,
    }
}

fn position(key: Option<&Key>) -> u64 {
    key.and_then(Key::as_int).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

fn key_of(document: &RawDocument) -> Result<Key> {
    let id = commands::id_of(document.as_bytes())?;
    let fields = decode::document(id.as_bytes());
    let mut fields = fields.map_err(|reason| Error::failed(format!("a key cannot be read: {reason}")))?;
    Ok(Key::one(fields.remove(0).1))
}

/// The key as the driver wants it.
fn bound(key: &Key) -> Result<Document> {
    let wrong = |reason: String| Error::invalid(format!("{key} is no key of MongoDB: {reason}"));
    let [value] = key.0.as_slice() else { return Err(wrong("it has several values".to_owned())) };
    let mut bytes = Vec::new();
    encode::document([(ID, value)].into_iter(), &mut bytes).map_err(wrong)?;
    let document = RawDocumentBuf::from_bytes(bytes).and_then(Document::try_from);
    document.map_err(|error| wrong(error.to_string()))
}

/// The document as a row; with `id`, those columns are its `_id`.
fn row_of(document: &RawDocument, id: &[String]) -> Row {
    let mut fields = match decode::document(document.as_bytes()) {
        Ok(fields) => fields,
        Err(reason) => return Row::bad(format!("{document:?}"), reason),
    };
    if let Some(at) = fields.iter().position(|(name, _)| name == ID) {
        match (id, &mut fields[at]) {
            ([], _) => (),
            ([one], field) => field.0.clone_from(one),
            (several, (_, Value::Object(parts))) if parts.iter().map(|(name, _)| name).eq(several) => {
                let parts = std::mem::take(parts);
                fields.splice(at..=at, parts);
            }
            // Another key than the address says stays what it is.
            _ => (),
        }
    }
    Row::Document(fields)
}

impl std::fmt::Debug for MongoReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.place.database, self.place.collection)
    }
}
