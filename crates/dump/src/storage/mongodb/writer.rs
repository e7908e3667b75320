//! Writing collections.
//!
//! MongoDB has no transaction that spans a chunk on every kind of server, so a chunk is idempotent instead: its rows
//! have `_id`s that are the same each time, and the ledger says whether it was begun before. The rows of a small chunk
//! are sent when it is committed; of a large one, as they come.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc, oid::ObjectId};
use parking_lot::RwLock;
use xxhash_rust::xxh3::xxh3_64;

use super::commands::{self, Method, Refusal};
use super::failure::{NAMESPACE_NOT_FOUND, code, failure};
use super::ledger::{Begun, Ledger, create};
use super::{ID, Place, decode, encode};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::port::{ChunkName, ChunkWriter, Target, WriteMode, Writer, Written};
use crate::row::{Batch, Names, RawFormat, Row, RowBatch};
use crate::value::{Schema, Value};

/// Rows wait until they have this many bytes.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// The counter of an ObjectId has three bytes.
const GENERATED_MAX: u32 = 1 << 24;

/// Writes a collection.
pub struct MongoWriter {
    place: Arc<Place>,
    prepared: RwLock<Option<Arc<Prepared>>>,
}

/// What is known once the target has been prepared.
struct Prepared {
    place: Arc<Place>,
    ledger: Ledger,
    job: String,
    mode: WriteMode,
    /// Where rows go: the target, or what becomes it.
    collection: Collection<RawDocumentBuf>,
    /// When the job began, in seconds; for `_id`s that are made here.
    began: u32,
}

impl MongoWriter {
    pub fn new(location: &Location) -> Result<Self> {
        Ok(Self { place: Arc::new(Place::read(location)?), prepared: RwLock::default() })
    }

    fn prepared(&self) -> Result<Arc<Prepared>> {
        self.prepared.read().clone().ok_or_else(|| Error::failed("the target has not been prepared"))
    }

    /// What the server says of a collection: its options, if it is there.
    async fn options(&self, name: &str) -> Result<Option<Document>> {
        let unlisted = |error| failure("the collections cannot be listed", error);
        let command = doc! { "listCollections": 1, "filter": { "name": name } };
        let mut found = self.place.database().await?.run_cursor_command(command).await.map_err(unlisted)?;
        let entry: Option<Document> = found.try_next().await.map_err(unlisted)?;
        Ok(entry.map(|entry| match entry.get("options") {
            Some(Bson::Document(options)) => options.clone(),
            _ => Document::new(),
        }))
    }

    fn check(&self, target: &Target) -> Result<()> {
        let names = |name: &String| target.schema.is_open || target.schema.column(name).is_some();
        let has_id = if self.place.id.is_empty() { names(&ID.to_owned()) } else { self.place.id.iter().all(names) };
        if target.mode == WriteMode::Upsert && !has_id {
            return Err(Error::invalid(
                "rows without an _id cannot be upserted: say which column it is, with ?id=column at the address",
            ));
        }
        if !self.place.id.is_empty() && !has_id {
            let names = self.place.id.join(",");
            return Err(Error::invalid(format!("the rows have no column {names:?}, which the address has as id")));
        }
        Ok(())
    }

    async fn begin(&self, target: &Target, ledger: &Ledger) -> Result<()> {
        let (database, name) = (self.place.database().await?, &self.place.collection);
        let existing = self.options(name).await?;
        if target.mode == WriteMode::Create && existing.is_some() && ledger.began().await?.is_none() {
            let first = self.place.collection().await?.find_one(Document::new()).await;
            if first.map_err(|error| failure("the target cannot be read", error))?.is_some() {
                return Err(Error::invalid(format!(
                    "the collection {name:?} has documents: choose the mode append, upsert or replace"
                )));
            }
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        ledger.begin(u32::try_from(now).unwrap_or(u32::MAX)).await?;
        if target.mode != WriteMode::Replace {
            return if existing.is_some() { Ok(()) } else { create(&database, name, None).await };
        }
        // Its documents are replaced; its rules and indexes stay.
        let new = new_name(&target.job);
        create(&database, &new, existing.clone()).await?;
        if existing.is_some() {
            self.copy_indexes(&new).await?;
        }
        Ok(())
    }

    async fn copy_indexes(&self, to: &str) -> Result<()> {
        let failed = |error| failure("the indexes of the target cannot be made anew", error);
        let (database, name) = (self.place.database().await?, &self.place.collection);
        let listed = match database.run_cursor_command(doc! { "listIndexes": name }).await {
            Err(error) if code(&error) == Some(NAMESPACE_NOT_FOUND) => return Ok(()),
            listed => listed.map_err(failed)?,
        };
        let indexes: Vec<Document> = listed.try_collect().await.map_err(failed)?;
        let wanted =
            |index: &Document| index.get_str("name").unwrap_or_default() != "_id_" && !index.contains_key("clustered");
        let indexes: Vec<Document> = indexes.into_iter().filter(wanted).collect();
        if !indexes.is_empty() {
            database.run_command(doc! { "createIndexes": to, "indexes": indexes }).await.map_err(failed)?;
        }
        Ok(())
    }
}

/// The collection that takes the place of the target.
fn new_name(job: &str) -> String {
    format!("flare_dump_{job}_new")
}

#[async_trait]
impl Writer for MongoWriter {
    fn takes_documents(&self) -> bool {
        true
    }

    async fn describe(&self) -> Result<Option<Schema>> {
        let existing = self.options(&self.place.collection).await?;
        Ok(existing.map(|_| Schema { key: vec![Arc::from(ID)], is_open: true, ..Schema::default() }))
    }

    async fn prepare(&self, target: &Target) -> Result<()> {
        self.check(target)?;
        let database = self.place.database().await?;
        let ledger = Ledger::of(&database, &target.job);
        // Whoever removed the ledger of a job had finished it.
        if !target.is_resumed {
            self.begin(target, &ledger).await?;
        }
        let collection = match target.mode {
            WriteMode::Replace => database.collection(&new_name(&target.job)),
            _ => self.place.collection().await?,
        };
        let (place, job, mode) = (Arc::clone(&self.place), target.job.clone(), target.mode);
        let began = ledger.began().await?.unwrap_or_default();
        *self.prepared.write() = Some(Arc::new(Prepared { place, ledger, job, mode, collection, began }));
        Ok(())
    }

    fn takes_raw(&self, format: &RawFormat) -> bool {
        format.name == RawFormat::BSON && self.place.id.is_empty()
    }

    async fn done(&self, chunk: &ChunkName) -> Result<Option<Written>> {
        let rows = self.prepared()?.ledger.done(chunk).await?;
        Ok(rows.map(|rows| Written { rows }))
    }

    async fn open(&self, chunk: &ChunkName) -> Result<Box<dyn ChunkWriter>> {
        let (prepared, chunk) = (self.prepared()?, chunk.to_owned());
        Ok(Box::new(MongoChunk { prepared, chunk, begun: None, waiting: Vec::new(), rows: 0, generated: 0 }))
    }

    async fn finish(&self) -> Result<()> {
        let prepared = self.prepared()?;
        let new = new_name(&prepared.job);
        if prepared.mode == WriteMode::Replace && self.options(&new).await?.is_some() {
            let database = self.place.database().await?;
            let name = |collection: &str| format!("{}.{collection}", self.place.database);
            let rename = doc! {
                "renameCollection": name(&new), "to": name(&self.place.collection), "dropTarget": true,
                "writeConcern": { "w": "majority" },
            };
            let renamed = database.client().database("admin").run_command(rename).await;
            renamed.map_err(|error| failure("the new collection cannot take the place of the old one", error))?;
        }
        prepared.ledger.remove().await
    }
}

/// A chunk on its way.
struct MongoChunk {
    prepared: Arc<Prepared>,
    chunk: String,
    /// What the ledger said, once it was asked.
    begun: Option<Begun>,
    /// Documents that were not sent yet, one behind the other.
    waiting: Vec<u8>,
    /// Documents that were taken on.
    rows: u64,
    /// `_id`s that were made.
    generated: u32,
}

impl MongoChunk {
    /// Appends the documents of a batch.
    fn encode(&mut self, batch: &RowBatch, out: &mut Vec<u8>) -> Result<()> {
        for row in &batch.rows {
            let at = out.len();
            self.encode_row(row, &batch.names, out)?;
            let bytes = out.len() - at;
            if bytes > encode::DOCUMENT_BYTES_MAX {
                return Err(Error::rejected(format!("the document has {bytes} bytes: MongoDB takes 16 MiB at most")));
            }
        }
        Ok(())
    }

    fn encode_row(&mut self, row: &Row, names: &Names, out: &mut Vec<u8>) -> Result<()> {
        let id = match self.prepared.place.id.as_slice() {
            [] => row.get(names, ID).clone(),
            [one] => row.get(names, one).clone(),
            several => Value::Object(several.iter().map(|name| (name.clone(), row.get(names, name).clone())).collect()),
        };
        let is_made = matches!(id, Value::Missing);
        let id = if is_made { self.generate()? } else { id };
        let is_id = |name: &str| {
            if self.prepared.place.id.is_empty() {
                name == ID
            } else {
                self.prepared.place.id.iter().any(|id| id == name)
            }
        };
        let rest = row.fields(names).filter(|(name, _)| !is_id(name));
        let fields = std::iter::once((ID, &id)).chain(rest);
        encode::document(fields, out).map_err(Error::rejected)
    }

    /// An `_id` that is the same when the chunk is done again.
    fn generate(&mut self) -> Result<Value> {
        if !self.prepared.place.id.is_empty() || self.prepared.mode == WriteMode::Upsert {
            return Err(Error::rejected("the row has no value for _id"));
        }
        if self.generated == GENERATED_MAX {
            return Err(Error::failed(
                "a chunk of rows without _id has at most 16777216 rows: choose a smaller chunksize",
            ));
        }
        self.generated += 1;
        Ok(Value::ObjectId(self.generated_id(self.generated - 1)))
    }

    fn generated_id(&self, number: u32) -> [u8; 12] {
        let chunk = xxh3_64(format!("{}/{}", self.prepared.job, self.chunk).as_bytes()).to_be_bytes();
        let mut id = [0; 12];
        id[..4].copy_from_slice(&self.prepared.began.to_be_bytes());
        id[4..9].copy_from_slice(&chunk[..5]);
        id[9..].copy_from_slice(&number.to_be_bytes()[1..]);
        id
    }

    /// Asks the ledger, the first time. Rows that were given `_id`s by an earlier attempt are removed.
    async fn begin(&mut self) -> Result<Begun> {
        if let Some(begun) = self.begun {
            return Ok(begun);
        }
        let begun = self.prepared.ledger.begin_chunk(&self.chunk).await?;
        if begun == Begun::Again {
            let [first, last] = [0, GENERATED_MAX - 1].map(|number| ObjectId::from_bytes(self.generated_id(number)));
            let removed = self.prepared.collection.delete_many(doc! { ID: { "$gte": first, "$lte": last } }).await;
            removed.map_err(|error| failure("what an earlier attempt left cannot be removed", error))?;
        }
        self.begun = Some(begun);
        Ok(begun)
    }

    /// Sends documents. `Ok` has those that were refused, and those that are there only since now.
    async fn place(&mut self, documents: &[&[u8]]) -> Result<(Vec<Refusal>, Vec<usize>)> {
        let begun = self.begin().await?;
        if matches!(begun, Begun::Done(_)) {
            return Ok(Default::default());
        }
        let Prepared { place, collection, mode, .. } = &*self.prepared;
        // Nobody else writes to a target that is new, so what is there of a chunk is of an earlier attempt at it.
        let is_ours = matches!(mode, WriteMode::Create | WriteMode::Replace);
        let is_upsert = *mode == WriteMode::Upsert || (begun == Begun::Again && is_ours);
        let method = if is_upsert { Method::Upsert } else { Method::Insert };
        let refusals = commands::send(collection, &place.database().await?, documents, method).await?;
        if is_upsert {
            return Ok((refusals, Vec::new()));
        }
        let refused: HashSet<usize> = refusals.iter().map(|refusal| refusal.index).collect();
        let refusals = commands::without_repeated(collection, documents, refusals).await?;
        let new = (0..documents.len()).filter(|index| !refused.contains(index));
        let new = if refusals.is_empty() { Vec::new() } else { new.collect() };
        Ok((refusals, new))
    }

    async fn flush(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let (refusals, _) = self.place(&split(&waiting)?).await?;
        refusals.into_iter().next().map_or(Ok(()), |refusal| Err(refusal.into_error()))
    }
}

fn split(mut documents: &[u8]) -> Result<Vec<&[u8]>> {
    let mut all = Vec::new();
    while !documents.is_empty() {
        let (first, rest) = decode::split_first(documents).ok_or_else(|| Error::failed("a document has no end"))?;
        all.push(first);
        documents = rest;
    }
    Ok(all)
}

#[async_trait]
impl ChunkWriter for MongoChunk {
    async fn write(&mut self, batch: Batch) -> Result<()> {
        let rows = batch.rows();
        let mut waiting = std::mem::take(&mut self.waiting);
        match batch {
            Batch::Raw(raw) => waiting.extend_from_slice(&raw.data),
            Batch::Rows(batch) => self.encode(&batch, &mut waiting)?,
        }
        self.waiting = waiting;
        self.rows += rows;
        if self.waiting.len() >= WAITING_BYTES_MAX { self.flush().await } else { Ok(()) }
    }

    async fn attempt(&mut self, batch: RowBatch) -> Result<()> {
        self.flush().await?;
        let generated = self.generated;
        let mut bytes = Vec::new();
        let refused = match self.encode(&batch, &mut bytes) {
            Err(error) => Some(error),
            Ok(()) => {
                let documents = split(&bytes)?;
                let (refusals, new) = self.place(&documents).await?;
                let refusal = refusals.into_iter().next();
                if refusal.is_some() {
                    let new: Vec<&[u8]> = new.into_iter().map(|index| documents[index]).collect();
                    commands::remove(&self.prepared.collection, &new).await?;
                }
                refusal.map(Refusal::into_error)
            }
        };
        if let Some(error) = refused {
            self.generated = generated;
            return Err(error);
        }
        self.rows += batch.rows.len() as u64;
        Ok(())
    }

    async fn commit(mut self: Box<Self>) -> Result<Written> {
        self.flush().await?;
        if let Begun::Done(rows) = self.begin().await? {
            return Ok(Written { rows });
        }
        self.prepared.ledger.complete(&self.chunk, self.rows).await?;
        Ok(Written { rows: self.rows })
    }
}

impl std::fmt::Debug for MongoWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.place.database, self.place.collection)
    }
}
