//! Reading files.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use serde::de::IgnoredAny;
use tokio::sync::mpsc;

use super::compression::Compression;
use super::format::Format;
use super::records::Records;
use super::{Place, csv};
use crate::error::{Error, Result};
use crate::infer;
use crate::json::Style;
use crate::key::{Key, Range};
use crate::location::Location;
use crate::port::{Batches, Boundary, Description, Reader, SAMPLE_ROWS, Upper, Walk};
use crate::row::{BATCH_BYTES, Batch, Names, RawBatch, RawFormat, RowBatch};
use crate::storage::ReadOptions;
use crate::storage::sequence::{Cursor, Open, Sequence};

/// How many batches wait for the one who writes them.
const BATCHES_AHEAD: usize = 1;

/// Reads a file of records.
pub struct FileReader {
    source: Source,
    /// For files that cannot be entered in the middle.
    sequence: Option<Sequence>,
}

/// What a thread needs to read from the file.
#[derive(Clone)]
struct Source {
    place: Arc<Place>,
    /// The columns of a CSV file, once they have been looked at.
    names: Arc<OnceLock<Names>>,
}

impl FileReader {
    pub fn new(location: &Location, options: &ReadOptions) -> Result<Self> {
        if !options.key.is_empty() {
            return Err(Error::invalid(format!("{location}: a file is cut by its bytes: take the key away")));
        }
        let source = Source { place: Arc::new(Place::read(location)?), names: Arc::default() };
        let opened = source.clone();
        let open: Open = Arc::new(move || {
            let cursor: Result<Box<dyn Cursor>> = Ok(Box::new(FileCursor(opened.rows(0, None, false))));
            Box::pin(std::future::ready(cursor))
        });
        let sequence = (source.place.compression != Compression::None).then(|| Sequence::new(open));
        Ok(Self { source, sequence })
    }

    fn raw(&self) -> Option<RawFormat> {
        let place = &self.source.place;
        let is_raw = place.format == Format::NdJson && place.style == Style::Extended && self.sequence.is_none();
        is_raw.then(|| RawFormat { name: RawFormat::JSON_LINES, names: Arc::from([]) })
    }
}

#[async_trait]
impl Reader for FileReader {
    async fn describe(&self) -> Result<Description> {
        let source = self.source.clone();
        let raw = self.raw();
        blocking(move || source.describe(raw)).await
    }

    async fn sample(&self, rows: usize) -> Result<RowBatch> {
        let source = self.source.clone();
        blocking(move || Ok(source.sample(rows)?.0)).await
    }

    async fn upper(&self) -> Result<Upper> {
        if self.sequence.is_some() {
            return Ok(Upper::Unknown);
        }
        let source = self.source.clone();
        blocking(move || {
            let bytes = source.open()?.metadata().map_err(|error| source.place.error("read", error))?.len();
            Ok(if bytes == 0 { Upper::Empty } else { Upper::Key(Key::int(bytes as i64)) })
        })
        .await
    }

    async fn boundary(&self, after: Option<&Key>, upper: Option<&Key>, rows: u64) -> Result<Boundary> {
        if self.sequence.is_some() {
            return Ok(Sequence::boundary(after, rows));
        }
        let (source, from, to) = (self.source.clone(), byte(after).unwrap_or(0), byte(upper));
        blocking(move || source.boundary(from, to, rows)).await
    }

    fn read(&self, range: &Range, raw: bool) -> Batches {
        if let Some(sequence) = &self.sequence {
            return sequence.read(range);
        }
        let (from, to) = (byte(range.after.as_ref()).unwrap_or(0), byte(range.upto.as_ref()));
        let source = self.source.clone();
        Box::pin(stream::unfold(None, move |receiver: Option<mpsc::Receiver<_>>| {
            let mut receiver = receiver.unwrap_or_else(|| source.rows(from, to, raw));
            async move { receiver.recv().await.map(|batch| (batch, Some(receiver))) }
        }))
    }
}

fn byte(key: Option<&Key>) -> Option<u64> {
    key.and_then(Key::as_int).and_then(|at| u64::try_from(at).ok())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::failed("reading a file ended unexpectedly").because(error)),
    }
}

impl Source {
    fn open(&self) -> Result<File> {
        let open = || -> std::io::Result<File> {
            let file = File::open(&self.place.path)?;
            if file.metadata()?.is_dir() { Err(std::io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
        };
        open().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::invalid(format!("there is no file {}", self.place.path.display())),
            _ => self.place.error("open", error),
        })
    }

    /// The records between two bytes of a file, or all of a compressed one. The header of a CSV file is none of them.
    fn records(&self, from: u64, to: Option<u64>) -> Result<Records<Box<dyn Read + Send>>> {
        let unreadable = |error| self.place.error("read", error);
        let names = self.names()?;
        let mut file = self.open()?;
        let mut records = if self.place.compression == Compression::None {
            file.seek(SeekFrom::Start(from)).map_err(unreadable)?;
            let part = file.take(to.map_or(u64::MAX, |to| to.saturating_sub(from)));
            Records::new(Box::new(part) as Box<dyn Read + Send>, self.place.format, from)
        } else {
            Records::new(self.place.compression.reader(file).map_err(unreadable)?, self.place.format, 0)
        };
        if from == 0 && !names.is_empty() && matches!(self.place.format, Format::Csv { header: true, .. }) {
            records.next().map_err(unreadable)?;
        }
        Ok(records)
    }

    /// The columns of a CSV file, from its first record; none for documents.
    fn names(&self) -> Result<Names> {
        let Format::Csv { delimiter, header } = self.place.format else { return Ok(Arc::from([])) };
        if let Some(names) = self.names.get() {
            return Ok(Arc::clone(names));
        }
        let unreadable = |error| self.place.error("read", error);
        let content = self.place.compression.reader(self.open()?).map_err(unreadable)?;
        let mut records = Records::new(content, self.place.format, 0);
        let names = match records.next().map_err(unreadable)? {
            None => Arc::from([]),
            Some(first) => csv::names(first, delimiter, header).map_err(|reason| {
                Error::invalid(format!("the first line of {} has no columns: {reason}", self.place.path.display()))
            })?,
        };
        Ok(Arc::clone(self.names.get_or_init(|| names)))
    }

    /// The first rows, and how many bytes of the content they take.
    fn sample(&self, rows: usize) -> Result<(RowBatch, u64)> {
        let names = self.names()?;
        let mut records = self.records(0, None)?;
        let mut batch = RowBatch::new(Arc::clone(&names));
        while batch.rows.len() < rows {
            let Some(record) = records.next().map_err(|error| self.place.error("read", error))? else { break };
            batch.push(self.place.format.row(record, &names, self.place.style));
        }
        Ok((batch, records.position()))
    }

    fn describe(&self, raw: Option<RawFormat>) -> Result<Description> {
        let (sample, sampled_bytes) = self.sample(SAMPLE_ROWS)?;
        let bytes = self.open()?.metadata().map_err(|error| self.place.error("read", error))?.len();
        let is_plain = self.place.compression == Compression::None;
        let rows = sample.rows.len() as u64;
        let estimate = if rows < SAMPLE_ROWS as u64 {
            Some(rows)
        } else {
            is_plain.then(|| (bytes as f64 * rows as f64 / sampled_bytes.max(1) as f64) as u64)
        };
        let walk = if is_plain { Walk::Position("byte".to_owned()) } else { Walk::Sequence };
        Ok(Description { schema: infer::schema(&sample), rows: estimate, bytes: is_plain.then_some(bytes), walk, raw })
    }

    fn boundary(&self, from: u64, to: Option<u64>, rows: u64) -> Result<Boundary> {
        let mut records = self.records(from, to)?;
        for _ in 0..rows {
            if records.next().map_err(|error| self.place.error("read", error))?.is_none() {
                return Ok(Boundary::Last);
            }
        }
        Ok(Boundary::At(Key::int(records.position() as i64)))
    }

    /// Reads on a thread of its own.
    fn rows(&self, from: u64, to: Option<u64>, raw: bool) -> mpsc::Receiver<Result<Batch>> {
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let source = self.clone();
        tokio::task::spawn_blocking(move || {
            let read = if raw { source.send_raw(from, to, &sender) } else { source.send_rows(from, to, &sender) };
            if let Err(error) = read {
                // Nobody listens any more if this fails, which is no error.
                let _ = sender.blocking_send(Err(error));
            }
        });
        receiver
    }

    fn send_rows(&self, from: u64, to: Option<u64>, sender: &mpsc::Sender<Result<Batch>>) -> Result<()> {
        let names = self.names()?;
        let mut records = self.records(from, to)?;
        let mut batch = RowBatch::new(Arc::clone(&names));
        while let Some(record) = records.next().map_err(|error| self.place.error("read", error))? {
            batch.push(self.place.format.row(record, &names, self.place.style));
            if batch.is_full() && sender.blocking_send(Ok(Batch::Rows(batch.take()))).is_err() {
                return Ok(());
            }
        }
        if !batch.is_empty() {
            let _ = sender.blocking_send(Ok(Batch::Rows(batch)));
        }
        Ok(())
    }

    /// Lines that are JSON are passed on as they are. One that is not sends the chunk the other way.
    fn send_raw(&self, from: u64, to: Option<u64>, sender: &mpsc::Sender<Result<Batch>>) -> Result<()> {
        let mut records = self.records(from, to)?;
        let (mut data, mut rows) = (Vec::with_capacity(BATCH_BYTES + BATCH_BYTES / 8), 0);
        while let Some(record) = records.next().map_err(|error| self.place.error("read", error))? {
            if !is_document(record) {
                return Err(Error::rejected("a line is not a JSON document"));
            }
            data.extend_from_slice(record);
            data.push(b'\n');
            rows += 1;
            if data.len() >= BATCH_BYTES {
                let full = std::mem::replace(&mut data, Vec::with_capacity(BATCH_BYTES + BATCH_BYTES / 8));
                if sender.blocking_send(Ok(Batch::Raw(RawBatch { data: Bytes::from(full), rows }))).is_err() {
                    return Ok(());
                }
                rows = 0;
            }
        }
        if rows > 0 {
            let _ = sender.blocking_send(Ok(Batch::Raw(RawBatch { data: Bytes::from(data), rows })));
        }
        Ok(())
    }
}

/// Nothing is built of it. A check of bytes would skip what is within strings, so the text is checked first.
fn is_document(record: &[u8]) -> bool {
    let is_json = |text| serde_json::from_str::<IgnoredAny>(text).is_ok();
    record.trim_ascii_start().first() == Some(&b'{') && str::from_utf8(record).is_ok_and(is_json)
}

/// A compressed file from its beginning.
struct FileCursor(mpsc::Receiver<Result<Batch>>);

#[async_trait]
impl Cursor for FileCursor {
    async fn next(&mut self) -> Result<Option<RowBatch>> {
        match self.0.recv().await.transpose()? {
            Some(Batch::Rows(batch)) => Ok(Some(batch)),
            _ => Ok(None),
        }
    }
}

/// The path, for messages of the copy.
impl std::fmt::Debug for FileReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path: &PathBuf = &self.source.place.path;
        write!(f, "{}", path.display())
    }
}
