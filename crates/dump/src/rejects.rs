//! The rows that were refused. Those of a chunk are written before the chunk is committed, to a file of its own, so
//! that a chunk that is done again writes them once. At the end they become one file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::{Error, Result};
use crate::history::ChunkId;
use crate::mapping::Reject;

/// Where they go: `<job>.rejects.ndjson`, by way of the folder `<job>.rejects`.
#[derive(Clone, Debug)]
pub(crate) struct Rejects {
    folder: PathBuf,
    file: PathBuf,
}

/// A line of the file.
#[derive(Serialize)]
struct Line<'a> {
    chunk: String,
    /// From 1, within the chunk.
    row: u64,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

impl Rejects {
    pub fn beside(base: &Path) -> Self {
        let named = |end: &str| {
            let mut name = base.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        Self { folder: named(".rejects"), file: named(".rejects.ndjson") }
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Keeps those of a chunk, in the place of what an earlier attempt kept.
    pub fn keep(&self, chunk: &ChunkId, rejects: &[Reject]) -> Result<()> {
        let path = self.folder.join(format!("{chunk}.ndjson"));
        let write = || -> io::Result<()> {
            if rejects.is_empty() {
                return match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                };
            }
            fs::create_dir_all(&self.folder)?;
            let mut text = Vec::new();
            for reject in rejects {
                serde_json::to_writer(&mut text, &line(chunk, reject))?;
                text.push(b'\n');
            }
            let mut file = File::create(&path)?;
            file.write_all(&text)?;
            file.sync_data()
        };
        write().map_err(|error| Error::io(format!("cannot write the rejects to {}", path.display()), error))
    }

    /// How many an earlier attempt at a chunk kept.
    pub fn count(&self, chunk: &ChunkId) -> u64 {
        let text = fs::read(self.folder.join(format!("{chunk}.ndjson"))).unwrap_or_default();
        memchr::memchr_iter(b'\n', &text).count() as u64
    }

    /// Makes one file of all. Nothing happens if there are none.
    pub fn gather(&self) -> Result<()> {
        let gather = || -> io::Result<()> {
            if !self.folder.is_dir() {
                return Ok(());
            }
            let mut chunks: Vec<(ChunkId, PathBuf)> = Vec::new();
            for entry in fs::read_dir(&self.folder)? {
                let path = entry?.path();
                let chunk = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
                chunks.extend(chunk.map(|chunk| (chunk, path)));
            }
            chunks.sort();
            let mut whole = File::create(&self.file)?;
            for (_, path) in &chunks {
                io::copy(&mut File::open(path)?, &mut whole)?;
            }
            whole.sync_all()
        };
        gather().map_err(|error| Error::io(format!("cannot write {}", self.file.display()), error))
    }

    /// Forgets what an earlier copy left.
    pub fn clear(&self) -> Result<()> {
        let clear = || -> io::Result<()> {
            if self.folder.is_dir() {
                fs::remove_dir_all(&self.folder)?;
            }
            if self.file.exists() { fs::remove_file(&self.file) } else { Ok(()) }
        };
        clear().map_err(|error| Error::io(format!("cannot remove {}", self.file.display()), error))
    }
}

fn line<'a>(chunk: &ChunkId, reject: &'a Reject) -> Line<'a> {
    let document = RawValue::from_string(reject.text.clone()).ok();
    let text = document.is_none().then_some(reject.text.as_str());
    Line { chunk: chunk.to_string(), row: reject.row + 1, reason: &reject.reason, document, text }
}
