//! Standard output and error that nobody reads.

use std::io;
use std::process::Stdio;

use super::{flare, run};

/// The end of a pipe whose other end is closed.
fn closed() -> Stdio {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_closed_pipe_is_an_ordinary_end() {
    for arguments in [&["config"][..], &["version"], &["--help"], &["listen", "127.0.0.1:0"]] {
        let ran = run(flare(arguments).stdout(closed()));
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn closed_pipes_hide_no_failure() {
    let check = |arguments: &[&str], code: i32| {
        let ran = run(flare(arguments).stdout(closed()).stderr(closed()));
        assert_eq!(ran.code, Some(code), "{arguments:?}");
    };
    check(&["config", "--check", "/no/such.toml"], 1);
    check(&["status", "--url", "http://127.0.0.1:1"], 1);
    check(&["nonsense"], 2);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = run(flare(&["config"]).stdout(full));
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.starts_with("error: cannot write to standard output\n  because: No space"), "{}", ran.err);
}
