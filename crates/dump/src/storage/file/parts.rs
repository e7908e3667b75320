//! The chunks of a target on their way into one file.
//!
//! A chunk is first a part file: complete, or not there. Parts that follow each other from the first on are moved into
//! the whole file as soon as they are to be durable, so that most bytes go to the disk once; the others wait as parts.
//! The folder of both is the ledger.
//!
//! A part gets its name before its bytes are on the disk, so after a power failure it may have the name and not the
//! bytes. The name therefore tells a checksum, and what an earlier run has left is checked before it counts.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use xxhash_rust::xxh3::Xxh3Default;

use super::whole::{Beginning, Whole};
use crate::port::Written;

const END: &str = ".part";
/// Says which file the parts have become, so that they are not added to it twice.
const FINISHED: &str = "finished";
const CHECK_BYTES: usize = 256 << 10;

/// The folder beside the target.
#[derive(Clone)]
pub(super) struct Parts {
    folder: PathBuf,
    /// The chunks that are complete: nobody else adds to the folder.
    complete: Arc<Mutex<HashMap<String, Complete>>>,
    whole: Arc<Mutex<Whole>>,
}

#[derive(Clone)]
struct Complete {
    rows: u64,
    /// None if the whole file has it.
    part: Option<Part>,
}

impl Parts {
    pub fn of(target: &Path, job: &str, beginning: Beginning) -> Self {
        let mut name = target.as_os_str().to_owned();
        name.push(format!(".parts-{job}"));
        let folder = PathBuf::from(name);
        let whole = Arc::new(Mutex::new(Whole::new(&folder, beginning)));
        Self { folder, complete: Arc::default(), whole }
    }

    pub fn create(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        sync_folder(self.folder.parent())
    }

    /// Looks at what an earlier run has completed.
    pub fn look(&self) -> io::Result<()> {
        if !self.exist() {
            return Ok(());
        }
        let mut complete = HashMap::new();
        for entry in fs::read_dir(&self.folder)? {
            let part = Part::of(entry?.path());
            complete.extend(part.map(|part| (part.chunk.clone(), Complete { rows: part.rows, part: Some(part) })));
        }
        for (chunk, rows) in self.whole.lock().look()? {
            // A part that was moved, but not yet removed.
            if let Some(Complete { part: Some(part), .. }) = complete.insert(chunk, Complete { rows, part: None }) {
                remove(&part.path)?;
            }
        }
        *self.complete.lock() = complete;
        Ok(())
    }

    /// Where a chunk is written until it is complete. What was cut because it was not done does not count whole.
    pub fn begin(&self, chunk: &str) -> io::Result<File> {
        if let Some((whole, _)) = chunk.split_once('.') {
            self.forget(whole)?;
        }
        File::create(self.unfinished(chunk))
    }

    fn unfinished(&self, chunk: &str) -> PathBuf {
        self.folder.join(format!("{chunk}.tmp"))
    }

    /// The chunk is complete. The name tells the number of its rows.
    pub fn keep(&self, chunk: &str, rows: u64, checksum: u64) -> io::Result<()> {
        let path = self.folder.join(format!("{chunk}.{rows}.{checksum:016x}{END}"));
        fs::rename(self.unfinished(chunk), &path)?;
        let part = Part::of(path).map(|part| Part { is_checked: true, ..part });
        self.complete.lock().insert(chunk.to_owned(), Complete { rows, part });
        Ok(())
    }

    pub fn done(&self, chunk: &str) -> io::Result<Option<Written>> {
        Ok(self.checked(chunk)?.map(|complete| Written { rows: complete.rows }))
    }

    /// What there is of a chunk, if its bytes are what its name says. Nobody moves a part while it is looked at.
    fn checked(&self, chunk: &str) -> io::Result<Option<Complete>> {
        let mut complete = self.complete.lock();
        let Some(Complete { part: Some(part), .. }) = complete.get_mut(chunk) else {
            return Ok(complete.get(chunk).cloned());
        };
        if !part.is_checked && !part.is_sound()? {
            remove(&part.path)?;
            complete.remove(chunk);
            return Ok(None);
        }
        part.is_checked = true;
        Ok(complete.get(chunk).cloned())
    }

    /// Removes the part of a chunk.
    fn forget(&self, chunk: &str) -> io::Result<()> {
        let mut complete = self.complete.lock();
        if let Some(Complete { part: Some(part), .. }) = complete.get(chunk) {
            remove(&part.path)?;
            complete.remove(chunk);
        }
        Ok(())
    }

    /// Makes chunks durable, and says which there are.
    pub fn settle(&self, chunks: &[String]) -> io::Result<Vec<bool>> {
        let mut whole = self.whole.lock();
        if !self.exist() {
            chunks.iter().try_for_each(|chunk| self.forget(chunk))?;
            return Ok(vec![false; chunks.len()]);
        }
        let mut next = Vec::new();
        while let Some(ordinal) = whole.next(next.len()) {
            let Some(Complete { part: Some(part), .. }) = self.checked(&ordinal.to_string())? else { break };
            next.push(part);
        }
        self.move_parts(&mut whole, &next)?;
        let (mut settled, mut are_parts) = (Vec::with_capacity(chunks.len()), false);
        for chunk in chunks {
            let found = self.checked(chunk)?;
            if let Some(Complete { part: Some(part), .. }) = &found {
                are_parts = true;
                if let Err(error) = File::open(&part.path).and_then(|file| file.sync_data()) {
                    // What a failed sync leaves behind may never reach the disk, and a second one would not tell.
                    self.forget(chunk)?;
                    return Err(error);
                }
            }
            settled.push(found.is_some());
        }
        if are_parts {
            sync_folder(Some(&self.folder))?;
        }
        Ok(settled)
    }

    fn move_parts(&self, whole: &mut Whole, parts: &[Part]) -> io::Result<()> {
        if parts.is_empty() {
            return Ok(());
        }
        whole.add(parts)?;
        for part in parts {
            self.complete.lock().insert(part.chunk.clone(), Complete { rows: part.rows, part: None });
            remove(&part.path)?;
        }
        Ok(())
    }

    /// Makes one file of all chunks, in their order, and puts it in the place of the target.
    pub fn become_target(&self, target: &Path) -> io::Result<()> {
        let mut whole = self.whole.lock();
        let mut rest: Vec<Part> = self.complete.lock().values().filter_map(|one| one.part.clone()).collect();
        rest.sort_by(|a, b| a.order.cmp(&b.order));
        self.move_parts(&mut whole, &rest)?;
        let file = whole.close()?;
        let note = self.folder.join(FINISHED);
        fs::write(&note, file.metadata()?.ino().to_string())?;
        File::open(&note)?.sync_all()?;
        sync_folder(Some(&self.folder))?;
        fs::rename(whole.path(), target)?;
        sync_folder(target.parent())
    }

    /// Whether this file is what the parts have become.
    pub fn have_become(&self, target: &Path) -> bool {
        let inode = fs::read_to_string(self.folder.join(FINISHED)).ok().and_then(|text| text.parse::<u64>().ok());
        let there = fs::metadata(target).ok().map(|metadata| metadata.ino());
        inode.is_some() && inode == there
    }

    pub fn exist(&self) -> bool {
        self.folder.is_dir()
    }

    /// Removes the folder: its name first, because half of a folder would say that nothing is done.
    pub fn remove(&self) -> io::Result<()> {
        let mut away = self.folder.clone().into_os_string();
        away.push(".removed");
        for result in [fs::rename(&self.folder, &away), fs::remove_dir_all(&away)] {
            match result {
                Err(error) if error.kind() == ErrorKind::NotFound => (),
                result => result?,
            }
        }
        Ok(())
    }
}

/// One complete part.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub path: PathBuf,
    pub chunk: String,
    pub rows: u64,
    checksum: u64,
    order: Vec<u64>,
    /// Whether its bytes are known to be what its name says.
    is_checked: bool,
}

impl Part {
    fn of(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_suffix(END)?;
        let (name, checksum) = name.rsplit_once('.')?;
        let (chunk, rows) = name.rsplit_once('.')?;
        let order = chunk.split('.').map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let (rows, checksum) = (rows.parse().ok()?, u64::from_str_radix(checksum, 16).ok()?);
        Some(Self { chunk: chunk.to_owned(), rows, checksum, order, is_checked: false, path })
    }

    fn is_sound(&self) -> io::Result<bool> {
        let mut file = File::open(&self.path)?;
        let (mut hash, mut block) = (Xxh3Default::new(), vec![0; CHECK_BYTES]);
        loop {
            match file.read(&mut block) {
                Ok(0) => return Ok(hash.digest() == self.checksum),
                Ok(count) => hash.update(&block[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
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

#[cfg(test)]
mod tests;
