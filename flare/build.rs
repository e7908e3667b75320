//! Finds the commit that is built, for `flare version`.
//!
//! Outside of a git checkout, and in a folder that the checkout around it does not track (a release unpacked inside of
//! another project), the version is the plain one. Cargo runs this again only when a commit or branch changes: those
//! files alone are watched.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The names do not begin with `FLARE_`: `cargo run` passes them on, and Flare refuses variables it does not know.
    let rustc = env::var("RUSTC").ok().and_then(|rustc| output(&rustc, &["--version"])).unwrap_or_default();
    println!("cargo::rustc-env=BUILD_RUSTC={rustc}");
    let commit = commit().unwrap_or_default();
    println!("cargo::rustc-env=BUILD_COMMITS={}", commit.count);
    println!("cargo::rustc-env=BUILD_SHA={}", commit.sha);
    println!("cargo::rustc-env=BUILD_DATE={}", commit.date);
    println!("cargo::rustc-env=BUILD_METADATA={}", commit.metadata());
}

#[derive(Default)]
struct Commit {
    count: String,
    sha: String,
    /// `2026-11-15`
    date: String,
}

impl Commit {
    /// The part of a semantic version after the number, with its `+`; empty where the commit is not known.
    fn metadata(&self) -> String {
        if self.sha.is_empty() {
            return String::new();
        }
        format!("+{}.{}.{}", self.count, self.sha, self.date.replace('-', ""))
    }
}

fn commit() -> Option<Commit> {
    for name in ["HEAD", "refs/heads", "packed-refs"] {
        // A file that does not exist would make cargo run this every time.
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    Some(Commit {
        count: git(&["rev-list", "--count", "HEAD"])?,
        sha: git(&["rev-parse", "--short=12", "HEAD"])?,
        date: git(&["show", "--no-patch", "--format=%cs", "HEAD"])?,
    })
}

/// What git says about the folder of this package, which is where cargo runs build scripts.
fn git(arguments: &[&str]) -> Option<String> {
    output("git", arguments)
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments);
    // Set within git hooks, where they may name another repository.
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(variable);
    }
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}
