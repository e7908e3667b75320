//! Writing documents to a resource.
//!
//! A row is checked here as the server will check it, so that a bad one is found before anything of its batch is sent:
//! what subscribers were told cannot be taken back.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use flare_client::segment;
use flare_core::change::JSON_DEPTH_MAX;
use flare_core::pattern::UNNAMED;
use flare_core::url::DocumentUrl;
use parking_lot::RwLock;

use super::api::Resource;
use super::{Named, Place};
use crate::convert;
use crate::error::{Error, Result};
use crate::json;
use crate::location::Location;
use crate::port::{ChunkName, ChunkWriter, Target, WriteMode, Writer, Written};
use crate::row::{Batch, Names, RawFormat, Row, RowBatch};
use crate::value::Schema;

/// Rows wait until they have this many bytes.
const WAITING_BYTES_MAX: usize = 2 << 20;
/// Documents of one request.
const REQUEST_ROWS_MAX: usize = 1000;

/// Writes documents to a resource.
pub struct FlareWriter {
    place: Arc<Place>,
    prepared: RwLock<Option<Arc<Prepared>>>,
}

/// What is known once the target has been prepared.
struct Prepared {
    place: Arc<Place>,
    resource: Resource,
    /// The parts of the endpoint between its wildcards, the first before the first.
    literals: Vec<String>,
    /// The fields that stand at the wildcards.
    fields: Vec<String>,
}

impl FlareWriter {
    pub fn new(location: &Location) -> Result<Self> {
        Ok(Self { place: Arc::new(Place::read(location)?), prepared: RwLock::default() })
    }

    fn prepared(&self) -> Result<Arc<Prepared>> {
        self.prepared.read().clone().ok_or_else(|| Error::failed("the target has not been prepared"))
    }

    /// The resource; made, if the address says how.
    async fn resource(&self) -> Result<Resource> {
        if let Some(found) = self.place.find().await? {
            return Ok(found.clone());
        }
        match (&self.place.named, &self.place.change) {
            (Named::Endpoint(endpoint), Some((field, format))) => {
                self.place.api.create(endpoint, field, format.as_deref()).await
            }
            (named, _) => Err(Error::invalid(format!(
                "there is no resource {named}: make it, or add ?change=FIELD to an address with its endpoint, where \
                 FIELD is the one that shows when a document changed"
            ))),
        }
    }

    fn check(&self, target: &Target, fields: &[String]) -> Result<()> {
        if target.mode == WriteMode::Replace {
            return Err(Error::invalid(
                "a resource cannot be replaced, since its subscribers are told of every document: choose upsert",
            ));
        }
        let is_there = |field: &&String| target.schema.is_open || target.schema.column(field).is_some();
        match fields.iter().find(|field| !is_there(field)) {
            None => Ok(()),
            Some(field) => Err(Error::invalid(format!(
                "the rows have no field {field:?}, which the URL of a document is made of: name others with ?id="
            ))),
        }
    }
}

impl Prepared {
    fn new(place: Arc<Place>, resource: Resource) -> Result<Self> {
        let names: Vec<String> = resource.endpoint.wildcards().map(str::to_owned).collect();
        let fields = if place.id.is_empty() { names.clone() } else { place.id.clone() };
        if fields.len() != names.len() || fields.iter().any(|field| field == UNNAMED) {
            return Err(Error::invalid(format!(
                "the endpoint {} has {} wildcards: name as many fields, such as ?id=tenant,id",
                resource.endpoint,
                names.len()
            )));
        }
        let mut literals = Vec::new();
        let mut rest = resource.endpoint.as_str();
        for name in &names {
            let (before, after) = rest.split_once(&format!("{{{name}}}")).unwrap_or((rest, ""));
            literals.push(before.to_owned());
            rest = after;
        }
        literals.push(rest.to_owned());
        Ok(Self { place, resource, literals, fields })
    }

    /// The URL of a row's document. The error says what is wrong with the row.
    fn url(&self, row: &Row, names: &Names) -> Result<DocumentUrl, String> {
        let mut url = self.literals[0].clone();
        for (field, literal) in self.fields.iter().zip(&self.literals[1..]) {
            let value = row.get(names, field);
            let text = convert::text(value);
            if text.is_empty() {
                return Err(format!("{field:?} has no value, and the URL of a document is made of it"));
            }
            url.push_str(&segment(&text));
            url.push_str(literal);
        }
        DocumentUrl::parse(&url).map_err(|error| error.to_string())
    }

    /// Appends the line of a row.
    fn line(&self, row: &Row, names: &Names, out: &mut Vec<u8>) -> Result<(), String> {
        let url = self.url(row, names)?;
        out.extend_from_slice(b"{\"id\":");
        json::write_text(url.as_str(), out);
        out.extend_from_slice(b",\"document\":");
        let start = out.len();
        json::write_document(row.fields(names), self.place.style, out);
        let revision = self.resource.change.revision_of(&out[start..], JSON_DEPTH_MAX);
        revision.map_err(|error| format!("the document cannot be taken: {error}"))?;
        out.extend_from_slice(b"}\n");
        Ok(())
    }

    fn lines(&self, batch: &RowBatch, out: &mut Vec<u8>) -> Result<()> {
        batch.rows.iter().try_for_each(|row| self.line(row, &batch.names, out)).map_err(Error::rejected)
    }

    async fn send(&self, lines: &[u8]) -> Result<()> {
        let mut request = Vec::new();
        let mut rows = 0;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            request.extend_from_slice(line);
            rows += 1;
            if rows == REQUEST_ROWS_MAX {
                self.place.api.write(Bytes::from(std::mem::take(&mut request))).await?;
                rows = 0;
            }
        }
        if rows > 0 { self.place.api.write(Bytes::from(request)).await } else { Ok(()) }
    }
}

#[async_trait]
impl Writer for FlareWriter {
    fn takes_documents(&self) -> bool {
        true
    }

    async fn describe(&self) -> Result<Option<Schema>> {
        Ok(self.place.find().await?.map(|_| Schema { is_open: true, ..Schema::default() }))
    }

    async fn prepare(&self, target: &Target) -> Result<()> {
        let resource = self.resource().await?;
        let prepared = Prepared::new(Arc::clone(&self.place), resource)?;
        self.check(target, &prepared.fields)?;
        if target.mode == WriteMode::Create && !target.is_resumed {
            let total = self.place.api.documents(&prepared.resource.id, None, 0, 1).await?.total();
            if total > 0 {
                return Err(Error::invalid(format!(
                    "the resource {} has {total} documents: choose the mode append or upsert",
                    prepared.resource.endpoint
                )));
            }
        }
        *self.prepared.write() = Some(Arc::new(prepared));
        Ok(())
    }

    fn takes_raw(&self, _format: &RawFormat) -> bool {
        false
    }

    /// A server keeps no ledger: what is sent again announces nothing.
    async fn done(&self, _chunk: &ChunkName) -> Result<Option<Written>> {
        Ok(None)
    }

    async fn open(&self, _chunk: &ChunkName) -> Result<Box<dyn ChunkWriter>> {
        Ok(Box::new(FlareChunk { prepared: self.prepared()?, waiting: Vec::new(), rows: 0 }))
    }

    async fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// A chunk on its way.
struct FlareChunk {
    prepared: Arc<Prepared>,
    /// Lines that were not sent yet.
    waiting: Vec<u8>,
    rows: u64,
}

impl FlareChunk {
    async fn flush(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        self.prepared.send(&waiting).await
    }
}

#[async_trait]
impl ChunkWriter for FlareChunk {
    async fn write(&mut self, batch: Batch) -> Result<()> {
        let Batch::Rows(batch) = batch else { return Err(Error::failed("raw rows cannot be written")) };
        self.prepared.lines(&batch, &mut self.waiting)?;
        self.rows += batch.rows.len() as u64;
        if self.waiting.len() >= WAITING_BYTES_MAX { self.flush().await } else { Ok(()) }
    }

    async fn attempt(&mut self, batch: RowBatch) -> Result<()> {
        let mut lines = Vec::new();
        self.prepared.lines(&batch, &mut lines)?;
        self.flush().await?;
        // What the server takes although it refuses others is tried again alone, and then announces nothing.
        self.prepared.send(&lines).await?;
        self.rows += batch.rows.len() as u64;
        Ok(())
    }

    async fn commit(mut self: Box<Self>) -> Result<Written> {
        self.flush().await?;
        Ok(Written { rows: self.rows })
    }
}

impl std::fmt::Debug for FlareWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.place.named)
    }
}
