//! The data folder: made, locked for one process, and asked for its free space.

use std::{
    fs::{File, TryLockError},
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
};

use flare_core::{Error, Result};

const LOCK_FILE: &str = "flare.lock";

pub(crate) struct Folder {
    path: PathBuf,
    /// Locked as long as it is open, also when the process is killed.
    _lock: File,
}

impl Folder {
    pub fn lock(path: &Path) -> Result<Self> {
        let failed = |what: &str, error: std::io::Error| {
            Error::unavailable(format!("could not {what} the data folder {}", path.display())).because(error)
        };
        std::fs::create_dir_all(path).map_err(|error| failed("make", error))?;
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join(LOCK_FILE))
            .map_err(|error| failed("write to", error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _unknown = file.read_to_string(&mut holder);
                let holder = holder.trim();
                let holder = if holder.is_empty() { "another process".into() } else { format!("process {holder}") };
                return Err(Error::conflict(format!(
                    "the data folder {} is in use by {holder}; stop it, or choose another folder with --data",
                    path.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock", error)),
        }
        let written =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        // A full disk must not keep a server from reading: the number is only a help for people.
        if let Err(error) = written {
            tracing::warn!(%error, "could not write the process number into {LOCK_FILE}");
        }
        Ok(Self { path: path.into(), _lock: file })
    }

    pub fn free_bytes(&self) -> Result<u64> {
        let space = rustix::fs::statvfs(&self.path).map_err(|error| {
            Error::unavailable("could not ask for the free space of the data folder").because(error)
        })?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }
}
