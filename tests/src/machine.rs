//! What a scenario needs from the machine, and what happens where the machine does not give it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::process::Guard;

/// Says, past the capture of the test runner, that a scenario did not run. In CI that is a failure.
pub fn skipped(scenario: &str, reason: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{scenario} cannot run here: {reason}");
    let _ = writeln!(std::io::stderr(), "skipped: {scenario}: {reason}");
}

/// A file system of a few MiB in memory. Unmounted when it is dropped.
pub struct SmallDisk {
    folder: TempDir,
    guard: Guard,
}

impl SmallDisk {
    /// None, with the reason, where this process may not mount.
    pub fn mount(mib: u64) -> Result<Self, String> {
        let folder = TempDir::with_prefix("flare-disk-").map_err(|error| error.to_string())?;
        let size = format!("size={mib}m");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path()).output();
        match mount {
            Ok(output) if output.status.success() => {
                let guard = Guard::new("umount --lazy \"$0\"; rmdir \"$0\"", &folder.path().to_string_lossy());
                Ok(Self { folder, guard })
            }
            Ok(output) => Err(format!("mount: {}", String::from_utf8_lossy(&output.stderr).trim())),
            Err(error) => Err(format!("mount: {error}")),
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Writes a file until no more than so many bytes are left.
    pub fn fill(&self, bytes_left: u64) {
        const PIECE: &[u8] = &[0; 4096];
        let mut ballast = fs::OpenOptions::new().append(true).create(true).open(self.ballast()).unwrap();
        loop {
            let pieces = self.bytes_free().saturating_sub(bytes_left).div_ceil(PIECE.len() as u64);
            if pieces == 0 || (0..pieces).any(|_| ballast.write_all(PIECE).is_err()) {
                return;
            }
        }
    }

    /// Makes room again.
    pub fn empty(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    pub fn bytes_free(&self) -> u64 {
        let output = Command::new("stat").args(["-f", "-c", "%a %S"]).arg(self.path()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (blocks, size) = text.trim().split_once(' ').unwrap();
        blocks.parse::<u64>().unwrap() * size.parse::<u64>().unwrap()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.guard.dismiss();
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}
