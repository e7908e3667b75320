//! The built program, called as people call it.

// The exception for tests does not reach what tests share.
#![allow(clippy::unwrap_used)]

mod client;
mod config;
mod help;
mod listen;
mod load;
mod output;
mod server;
mod version;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program with an empty environment, no input, and nothing that is a terminal.
fn flare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flare"));
    command.args(arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What came of a run: exit code, standard output, standard error.
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    /// Standard output of a run that succeeded and said nothing else.
    #[track_caller]
    fn succeeded(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }

    /// Standard error of a run that failed with this code and printed nothing else.
    #[track_caller]
    fn failed(self, code: i32) -> String {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{}", self.err);
        self.err
    }
}

fn run(command: &mut Command) -> Ran {
    ran(command.output().unwrap())
}

/// Runs the program with this standard input.
fn run_with_input(command: &mut Command, input: &str) -> Ran {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    ran(child.wait_with_output().unwrap())
}

fn ran(output: Output) -> Ran {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A file in a folder of its own, with the folder to hold on to.
fn file(name: &str, content: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

/// The text with the folder of a test's file taken out of it.
fn without_folder(text: &str, path: &str) -> String {
    let folder = Path::new(path).parent().unwrap().to_str().unwrap();
    text.replace(&format!("{folder}/"), "")
}
