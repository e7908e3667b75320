//! Writing files.

use std::fs::{self, File};
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::RwLock;
use xxhash_rust::xxh3::Xxh3Default;

use super::compression::Encoder;
use super::format::Format;
use super::parts::Parts;
use super::whole::Beginning;
use super::{Place, csv};
use crate::error::{Error, Result};
use crate::json::{self, Style};
use crate::location::Location;
use crate::port::{ChunkName, ChunkWriter, Target, WriteMode, Writer, Written};
use crate::row::{Batch, Names, RawFormat, Row, RowBatch};
use crate::value::{Schema, Value};

/// Writes a file of records.
pub struct FileWriter {
    place: Arc<Place>,
    target: Arc<RwLock<Option<Prepared>>>,
}

/// What is known once the target has been prepared.
#[derive(Clone)]
struct Prepared {
    parts: Parts,
    names: Names,
}

impl FileWriter {
    pub fn new(location: &Location) -> Result<Self> {
        Ok(Self { place: Arc::new(Place::read(location)?), target: Arc::default() })
    }

    fn prepared(&self) -> Result<Prepared> {
        self.target.read().clone().ok_or_else(|| Error::failed("the target has not been prepared"))
    }

    fn check_mode(&self, target: &Target) -> Result<()> {
        let path = self.place.path.display();
        let is_csv = matches!(self.place.format, Format::Csv { .. });
        match target.mode {
            WriteMode::Upsert => {
                Err(Error::invalid(format!("{path} is a file, which cannot be upserted: write replace or append")))
            }
            WriteMode::Append if self.place.format == Format::Json => {
                Err(Error::invalid(format!("{path} is one JSON array, which cannot be appended to: use .ndjson")))
            }
            _ if is_csv && target.schema.is_open => Err(Error::invalid(format!(
                "{path} needs columns: add a mapping to the job (`flare dump guess` writes one)"
            ))),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Writer for FileWriter {
    fn takes_documents(&self) -> bool {
        !matches!(self.place.format, Format::Csv { .. })
    }

    async fn describe(&self) -> Result<Option<Schema>> {
        // A file takes whatever comes. What a CSV file has is looked at when it is appended to.
        Ok(None)
    }

    async fn prepare(&self, target: &Target) -> Result<()> {
        self.check_mode(target)?;
        let names = target.schema.names();
        let beginning = Beginning { place: Arc::clone(&self.place), mode: target.mode, names: Arc::clone(&names) };
        let parts = Parts::of(&self.place.path, &target.job, beginning);
        let prepared = Prepared { parts: parts.clone(), names };
        *self.target.write() = Some(prepared);
        let (place, mode, is_resumed) = (Arc::clone(&self.place), target.mode, target.is_resumed);
        blocking(move || {
            let is_taken = fs::metadata(&place.path).is_ok_and(|metadata| metadata.len() > 0);
            if mode == WriteMode::Create && is_taken && !(is_resumed || parts.exist()) {
                let path = place.path.display();
                return Err(Error::invalid(format!(
                    "{path} exists: choose the mode replace or append, or another file"
                )));
            }
            parts.look().map_err(|error| place.error("read the parts of", error))?;
            // Whoever removed the parts of a job had finished it.
            if is_resumed {
                return Ok(());
            }
            parts.create().map_err(|error| place.error("make the folder of the parts of", error))
        })
        .await
    }

    fn takes_raw(&self, format: &RawFormat) -> bool {
        let takes_lines = matches!(self.place.format, Format::NdJson) && self.place.style == Style::Extended;
        takes_lines && format.name == RawFormat::JSON_LINES
    }

    async fn done(&self, chunk: &ChunkName) -> Result<Option<Written>> {
        let (prepared, place, chunk) = (self.prepared()?, Arc::clone(&self.place), chunk.to_owned());
        blocking(move || prepared.parts.done(&chunk).map_err(|error| place.error("read a part of", error))).await
    }

    fn settles(&self) -> bool {
        true
    }

    async fn settle(&self, chunks: &[String]) -> Result<Vec<bool>> {
        let (prepared, place, chunks) = (self.prepared()?, Arc::clone(&self.place), chunks.to_vec());
        blocking(move || prepared.parts.settle(&chunks).map_err(|error| place.error("sync parts of", error))).await
    }

    async fn open(&self, chunk: &ChunkName) -> Result<Box<dyn ChunkWriter>> {
        let prepared = self.prepared()?;
        let (place, chunk) = (Arc::clone(&self.place), chunk.to_owned());
        blocking(move || {
            let part = Part::create(place, prepared, chunk)?;
            Ok(Box::new(FileChunk(Some(part))) as Box<dyn ChunkWriter>)
        })
        .await
    }

    async fn finish(&self) -> Result<()> {
        let (prepared, place) = (self.prepared()?, Arc::clone(&self.place));
        blocking(move || {
            let Prepared { parts, .. } = &prepared;
            let failed = |error| place.error("put together", error);
            if !parts.have_become(&place.path) && parts.exist() {
                parts.become_target(&place.path).map_err(failed)?;
            }
            parts.remove().map_err(failed)
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::failed("writing a file ended unexpectedly").because(error)),
    }
}

/// A chunk on its way to its part file.
struct FileChunk(Option<Part>);

struct Part {
    place: Arc<Place>,
    prepared: Prepared,
    chunk: String,
    /// Until the first row, so that a chunk without rows is an empty file, compressed or not.
    file: Option<File>,
    encoder: Option<Encoder>,
    rows: u64,
    text: Vec<u8>,
}

impl Part {
    fn create(place: Arc<Place>, prepared: Prepared, chunk: String) -> Result<Self> {
        let file = prepared.parts.begin(&chunk).map_err(|error| place.error("begin a part of", error))?;
        Ok(Self { place, prepared, chunk, file: Some(file), encoder: None, rows: 0, text: Vec::new() })
    }

    fn write(&mut self, batch: Batch) -> Result<()> {
        let rows = batch.rows();
        let written = match batch {
            Batch::Raw(raw) => self.put(&raw.data),
            Batch::Rows(batch) => {
                let mut text = std::mem::take(&mut self.text);
                text.clear();
                for row in &batch.rows {
                    self.encode(row, &batch.names, &mut text);
                }
                let written = self.put(&text);
                self.text = text;
                written
            }
        };
        self.rows += rows;
        written.map_err(|error| self.place.error("write a part of", error))
    }

    fn encode(&self, row: &Row, names: &Names, out: &mut Vec<u8>) {
        let style = self.place.style;
        match self.place.format {
            Format::Csv { delimiter, .. } => {
                let columns = self.prepared.names.iter();
                let values: Vec<&Value> = match row {
                    Row::Cells(cells) if names == &self.prepared.names => cells.iter().collect(),
                    _ => columns.map(|name| row.get(names, name)).collect(),
                };
                csv::write(values.into_iter(), delimiter, style, out);
            }
            Format::NdJson => {
                json::write_document(row.fields(names), style, out);
                out.push(b'\n');
            }
            Format::Json => {
                if self.rows > 0 || !out.is_empty() {
                    out.extend_from_slice(b",\n");
                }
                json::write_document(row.fields(names), style, out);
            }
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if let Some(file) = self.file.take() {
            self.encoder = Some(self.place.compression.writer(file)?);
        }
        let encoder = self.encoder.as_mut().ok_or_else(|| io::Error::other("the part is spoilt"))?;
        encoder.write_all(bytes)
    }

    fn commit(mut self) -> Result<Written> {
        let failed = |error| self.place.error("complete a part of", error);
        let parts = &self.prepared.parts;
        if let Some(done) = parts.done(&self.chunk).map_err(failed)? {
            return Ok(done);
        }
        let checksum = match self.encoder.take() {
            Some(encoder) => encoder.finish().map_err(failed)?.checksum(),
            None => Xxh3Default::new().digest(),
        };
        parts.keep(&self.chunk, self.rows, checksum).map_err(failed)?;
        Ok(Written { rows: self.rows })
    }
}

#[async_trait]
impl ChunkWriter for FileChunk {
    async fn write(&mut self, batch: Batch) -> Result<()> {
        let Some(mut part) = self.0.take() else { return Err(Error::failed("the part was given up")) };
        // One batch into the memory of the system is quicker than another thread; only the wait for the disk has one.
        part.write(batch)?;
        self.0 = Some(part);
        Ok(())
    }

    async fn attempt(&mut self, batch: RowBatch) -> Result<()> {
        self.write(Batch::Rows(batch)).await
    }

    async fn commit(mut self: Box<Self>) -> Result<Written> {
        let Some(part) = self.0.take() else { return Err(Error::failed("the part was given up")) };
        blocking(move || part.commit()).await
    }
}

impl std::fmt::Debug for FileWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.place.path.display())
    }
}
