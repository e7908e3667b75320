//! The file that a target will be, as far as it goes.
//!
//! Parts are added behind each other, and noted once their bytes are on the disk. What lies behind the last note was on
//! its way when somebody pulled the plug, and is cut off.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::compression::Compression;
use super::format::Format;
use super::parts::{Part, last_byte, sync_folder};
use super::{Place, csv};
use crate::port::WriteMode;
use crate::row::Names;
use crate::value::Value;

/// Stands in the notes for what is in front of the first part.
const BEGINNING: &str = "beginning";

/// What is in front of the first part.
pub(super) struct Beginning {
    pub place: Arc<Place>,
    pub mode: WriteMode,
    /// Of a CSV file.
    pub names: Names,
}

pub(super) struct Whole {
    path: PathBuf,
    /// Lines of a chunk, its rows, and where it ends in the file.
    notes: PathBuf,
    beginning: Beginning,
    /// Where the first part begins, if the file has been begun.
    first: Option<u64>,
    /// Where the last part ends that is noted.
    end: u64,
    /// The length of the notes that count.
    notes_end: u64,
    /// The chunks from 0 on that are there without a gap.
    ordinals: u64,
}

impl Whole {
    pub fn new(folder: &Path, beginning: Beginning) -> Self {
        let (path, notes) = (folder.join("whole"), folder.join("whole.notes"));
        Self { path, notes, beginning, first: None, end: 0, notes_end: 0, ordinals: 0 }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The chunk that can be added, behind so many others. None where what is there already is to be read at the end,
    /// because others may add to it until then.
    pub fn next(&self, behind: usize) -> Option<u64> {
        (self.beginning.mode != WriteMode::Append).then_some(self.ordinals + behind as u64)
    }

    /// Reads the notes of an earlier run: the chunks that are there, and their rows.
    pub fn look(&mut self) -> io::Result<Vec<(String, u64)>> {
        let notes = match fs::read_to_string(&self.notes) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            notes => notes?,
        };
        let mut chunks = Vec::new();
        for line in notes.split_inclusive('\n') {
            // A line that was not written to its end says nothing.
            let Some(note) = Note::of(line) else { break };
            self.count(&note, line.len());
            if note.chunk != BEGINNING {
                chunks.push((note.chunk.to_owned(), note.rows));
            }
        }
        Ok(chunks)
    }

    fn count(&mut self, note: &Note<'_>, bytes: usize) {
        if note.chunk == BEGINNING {
            self.first = Some(note.end);
        } else if note.chunk.parse() == Ok(self.ordinals) {
            self.ordinals += 1;
        }
        self.end = note.end;
        self.notes_end += bytes as u64;
    }

    /// Adds parts, and waits for the disk once for all of them.
    pub fn add(&mut self, parts: &[Part]) -> io::Result<()> {
        let mut file = self.open()?;
        let mut notes = Vec::new();
        let first = match self.first {
            Some(first) => first,
            None => {
                file = self.beginning.write(file)?;
                let end = file.stream_position()?;
                notes.push((BEGINNING, 0, end));
                end
            }
        };
        let mut end = file.stream_position()?;
        for part in parts {
            let mut content = File::open(&part.path)?;
            if end > first && content.metadata()?.len() > 0 {
                file = self.beginning.place.between(file)?;
            }
            io::copy(&mut content, &mut file)?;
            end = file.stream_position()?;
            notes.push((&part.chunk, part.rows, end));
        }
        file.sync_data()?;
        if self.first.is_none() {
            sync_folder(self.path.parent())?;
        }
        let lines: Vec<String> = notes.iter().map(|(chunk, rows, end)| format!("{chunk} {rows} {end}\n")).collect();
        self.note(&lines.concat())?;
        for (line, &(chunk, rows, end)) in lines.iter().zip(&notes) {
            self.count(&Note { chunk, rows, end }, line.len());
        }
        Ok(())
    }

    /// The file, without what is not noted.
    fn open(&self) -> io::Result<File> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(&self.path)?;
        if file.metadata()?.len() < self.end {
            let message = format!("{} is shorter than its notes say: begin again with --fresh", self.path.display());
            return Err(io::Error::new(ErrorKind::InvalidData, message));
        }
        file.set_len(self.end)?;
        file.seek(SeekFrom::Start(self.end))?;
        Ok(file)
    }

    fn note(&self, lines: &str) -> io::Result<()> {
        let mut notes = OpenOptions::new().write(true).create(true).truncate(false).open(&self.notes)?;
        notes.set_len(self.notes_end)?;
        notes.seek(SeekFrom::Start(self.notes_end))?;
        notes.write_all(lines.as_bytes())?;
        notes.sync_data()?;
        if self.notes_end == 0 { sync_folder(self.notes.parent()) } else { Ok(()) }
    }

    /// The complete file, on the disk.
    pub fn close(&mut self) -> io::Result<File> {
        if self.first.is_none() {
            self.add(&[])?;
        }
        let mut file = self.open()?;
        let place = &self.beginning.place;
        if place.format == Format::Json {
            file = place.encoded(file, b"\n]\n")?;
        }
        file.sync_all()?;
        Ok(file)
    }
}

struct Note<'a> {
    chunk: &'a str,
    rows: u64,
    end: u64,
}

impl<'a> Note<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let mut words = line.strip_suffix('\n')?.split(' ');
        let (chunk, rows, end) = (words.next()?, words.next()?, words.next()?);
        Some(Self { chunk, rows: rows.parse().ok()?, end: end.parse().ok()? })
    }
}

impl Beginning {
    /// What was there before, and what a format has in front.
    fn write(&self, mut file: File) -> io::Result<File> {
        let place = &self.place;
        let mut has_rows = false;
        if self.mode == WriteMode::Append && place.path.exists() {
            let mut existing = File::open(&place.path)?;
            let last = last_byte(&mut existing)?;
            has_rows = last.is_some();
            io::copy(&mut existing, &mut file)?;
            if place.compression == Compression::None && last.is_some_and(|byte| byte != b'\n') {
                file.write_all(b"\n")?;
            }
        }
        match place.format {
            Format::Csv { delimiter, header: true } if !has_rows => {
                let names: Vec<Value> = self.names.iter().map(|name| Value::text(&**name)).collect();
                let mut line = Vec::new();
                csv::write(names.iter(), delimiter, place.style, &mut line);
                place.encoded(file, &line)
            }
            Format::Json => place.encoded(file, b"[\n"),
            _ => Ok(file),
        }
    }
}

impl Place {
    /// Adds what a format has between two parts.
    fn between(&self, file: File) -> io::Result<File> {
        if self.format == Format::Json { self.encoded(file, b",\n") } else { Ok(file) }
    }

    /// Adds a piece, compressed as a member of its own.
    fn encoded(&self, file: File, bytes: &[u8]) -> io::Result<File> {
        let mut encoder = self.compression.writer(file)?;
        encoder.write_all(bytes)?;
        Ok(encoder.finish()?.file)
    }
}
