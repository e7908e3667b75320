//! The part files of a target: one per chunk, complete or not there. The folder of them is the ledger.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::port::Written;

const END: &str = ".part";
/// Says which file the parts have become, so that they are not added to it twice.
const FINISHED: &str = "finished";

/// The folder beside the target.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    folder: PathBuf,
    /// The rows of the chunks that are complete: nobody else adds to the folder.
    done: Arc<Mutex<HashMap<String, u64>>>,
}

impl Parts {
    pub fn of(target: &Path, job: &str) -> Self {
        let mut name = target.as_os_str().to_owned();
        name.push(format!(".parts-{job}"));
        Self { folder: name.into(), done: Arc::default() }
    }

    pub fn create(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        sync_folder(self.folder.parent())
    }

    /// Looks at what an earlier run has completed.
    pub fn look(&self) -> io::Result<()> {
        if self.exist() {
            *self.done.lock() = self.list()?.into_iter().map(|part| (part.chunk, part.rows)).collect();
        }
        Ok(())
    }

    /// Where a chunk is written until it is complete.
    pub fn unfinished(&self, chunk: &str) -> PathBuf {
        self.folder.join(format!("{chunk}.tmp"))
    }

    /// The chunk is complete: its bytes are on the disk already. The name tells the number of its rows.
    pub fn keep(&self, chunk: &str, rows: u64) -> io::Result<()> {
        fs::rename(self.unfinished(chunk), self.folder.join(format!("{chunk}.{rows}{END}")))?;
        sync_folder(Some(&self.folder))?;
        self.done.lock().insert(chunk.to_owned(), rows);
        Ok(())
    }

    pub fn done(&self, chunk: &str) -> Option<Written> {
        self.done.lock().get(chunk).map(|rows| Written { rows: *rows })
    }

    /// The complete parts, in the order of their chunks.
    pub fn list(&self) -> io::Result<Vec<Part>> {
        let mut parts = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            parts.extend(Part::of(path));
        }
        parts.sort_by(|a, b| a.order.cmp(&b.order));
        Ok(parts)
    }

    /// Whether this file is what the parts have become.
    pub fn have_become(&self, target: &Path) -> bool {
        let inode = fs::read_to_string(self.folder.join(FINISHED)).ok().and_then(|text| text.parse::<u64>().ok());
        let there = fs::metadata(target).ok().map(|metadata| metadata.ino());
        inode.is_some() && inode == there
    }

    /// Puts the whole file in the place of the target.
    pub fn become_target(&self, whole: &Path, target: &Path) -> io::Result<()> {
        let file = File::open(whole)?;
        file.sync_all()?;
        let note = self.folder.join(FINISHED);
        fs::write(&note, file.metadata()?.ino().to_string())?;
        File::open(&note)?.sync_all()?;
        sync_folder(Some(&self.folder))?;
        fs::rename(whole, target)?;
        sync_folder(target.parent())
    }

    pub fn whole(&self) -> PathBuf {
        self.folder.join("whole")
    }

    pub fn exist(&self) -> bool {
        self.folder.is_dir()
    }

    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

/// One complete part.
#[derive(Debug)]
pub(super) struct Part {
    pub path: PathBuf,
    chunk: String,
    rows: u64,
    order: Vec<u64>,
}

impl Part {
    fn of(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_suffix(END)?;
        let (chunk, rows) = name.rsplit_once('.')?;
        let order = chunk.split('.').map(|number| number.parse().ok()).collect::<Option<_>>()?;
        Some(Self { chunk: chunk.to_owned(), rows: rows.parse().ok()?, order, path })
    }
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: Option<&Path>) -> io::Result<()> {
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// The last byte of a file that is not space.
pub(super) fn last_byte(file: &mut File) -> io::Result<Option<u8>> {
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(length - 1))?;
    let mut byte = [0];
    file.read_exact(&mut byte)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(Some(byte[0]))
}
