//! `flare dump`, called as people call it, and killed as machines do.

// The exception for tests does not reach what tests share.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "dump")]

mod kill;
mod life;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder to work in.
struct Desk {
    folder: tempfile::TempDir,
}

/// What came of a run.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Desk {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flare"));
        command.arg("dump").args(arguments).current_dir(self.folder.path()).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Runs what must succeed.
    #[track_caller]
    fn succeed(&self, arguments: &[&str]) -> Ran {
        let ran = self.run(arguments);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran
    }
}

/// Lines `{"id":0,…}` and so on.
fn lines(rows: usize) -> String {
    (0..rows).map(|id| format!("{{\"id\":{id},\"name\":\"row {id}\"}}\n")).collect()
}

/// The ids of a file of lines, sorted.
fn ids(path: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(path).unwrap();
    let id = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_u64().unwrap();
    let mut ids: Vec<u64> = text.lines().map(id).collect();
    ids.sort_unstable();
    ids
}
