//! The file that a running copy adds lines to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{History, Line, Place};
use crate::error::{Error, Result};

/// The journal of a copy, open. Only one process has it.
#[derive(Debug)]
pub struct Journal {
    place: Place,
    inner: Mutex<Inner>,
    file: Arc<File>,
    written: AtomicU64,
    synced: tokio::sync::Mutex<u64>,
}

#[derive(Debug)]
struct Inner {
    history: History,
}

impl Journal {
    /// Opens the journal and goes on with what is known.
    pub fn open(place: Place) -> Result<Self> {
        let path = place.journal();
        let failed = |error| Error::io(format!("cannot open the journal {}", path.display()), error);
        let file = OpenOptions::new().create(true).read(true).append(true).open(&path).map_err(failed)?;
        if file.try_lock().is_err() {
            return Err(Error::invalid(format!("another process works on this copy: it holds {}", path.display())));
        }
        let history = place.load()?.unwrap_or_default();
        // A line that was cut by a crash must not swallow the next one.
        (&file).write_all(b"\n").map_err(failed)?;
        let inner = Mutex::new(Inner { history });
        Ok(Self { place, inner, file: Arc::new(file), written: AtomicU64::new(0), synced: Default::default() })
    }

    /// Forgets everything.
    pub fn clear(&self) -> Result<()> {
        let failed = |error| Error::io("cannot forget the old history", error);
        self.inner.lock().history = History::default();
        match fs::remove_file(self.place.history()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => (),
        }
        self.file.set_len(0).map_err(failed)
    }

    /// Forgets what was begun and came to nothing: the history is the one from before.
    pub fn put_back(&self, before: History) -> Result<()> {
        self.clear()?;
        let is_known = !before.job.is_empty();
        self.inner.lock().history = before;
        if is_known { self.compact() } else { Ok(()) }
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    pub fn history(&self) -> History {
        self.inner.lock().history.clone()
    }

    /// Looks at the history without a copy of it.
    pub fn with<T>(&self, look: impl FnOnce(&History) -> T) -> T {
        look(&self.inner.lock().history)
    }

    /// Adds a line. It is on the disk once [`Journal::sync`] has returned for the number that this gives.
    pub fn append(&self, line: Line) -> Result<u64> {
        let mut text =
            serde_json::to_vec(&line).map_err(|error| Error::failed("cannot write a line").because(error))?;
        text.push(b'\n');
        let mut inner = self.inner.lock();
        (&*self.file)
            .write_all(&text)
            .map_err(|error| Error::io(format!("cannot write to {}", self.place.journal().display()), error))?;
        inner.history.apply(line);
        Ok(self.written.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// Waits until the line of this number is on the disk. Those who wait together share one wait.
    pub async fn sync(&self, number: u64) -> Result<()> {
        let mut synced = self.synced.lock().await;
        if *synced >= number {
            return Ok(());
        }
        let upto = self.written.load(Ordering::Acquire);
        let file = Arc::clone(&self.file);
        let done = tokio::task::spawn_blocking(move || file.sync_data()).await;
        let done = done.map_err(|error| Error::failed("the journal was not synced").because(error))?;
        done.map_err(|error| Error::io(format!("cannot sync {}", self.place.journal().display()), error))?;
        *synced = upto;
        Ok(())
    }

    /// Writes the history for people, and empties the journal.
    pub fn compact(&self) -> Result<()> {
        let history = self.inner.lock();
        let path = self.place.history();
        let compact = || -> io::Result<()> {
            let mut whole = path.as_os_str().to_owned();
            whole.push(".tmp");
            let mut file = File::create(Path::new(&whole))?;
            serde_json::to_writer_pretty(&mut file, &history.history)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&whole, &path)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(folder)?.sync_all()?;
            self.file.set_len(0)
        };
        compact().map_err(|error| Error::io(format!("cannot write {}", path.display()), error))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Empty journals are only in the way.
        if self.file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            let _ = fs::remove_file(self.place.journal());
        }
    }
}

/// Applies all lines that are whole.
pub(super) fn replay(history: &mut History, text: &[u8]) {
    for line in text.split(|byte| *byte == b'\n') {
        if let Ok(line) = serde_json::from_slice::<Line>(line) {
            history.apply(line);
        }
    }
}
