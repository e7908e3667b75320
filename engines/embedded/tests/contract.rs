//! The embedded engine keeps the contract, and what it was given survives.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use flare_core::{ErrorKind, port::Store};
use flare_embedded::Options;

fn options(path: &Path) -> Options {
    Options { path: path.into(), cache_bytes: 1 << 20, reserve_bytes: 0, store: Default::default() }
}

fn open(path: &Path) -> Store {
    flare_embedded::open(&options(path)).unwrap()
}

#[tokio::test]
async fn the_embedded_engine_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let opened = std::sync::atomic::AtomicUsize::new(0);
    flare_contract::check_store(|| async {
        let number = opened.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        open(&folder.path().join(number.to_string()))
    })
    .await;
}

#[tokio::test]
async fn what_it_was_given_is_there_when_it_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    flare_contract::check_reopening(|data| {
        let path = folder.path().join(data.to_string());
        async move { open_when_free(&path).await }
    })
    .await;
}

/// A store that was dropped without being closed lets go of its folder when its writer thread has ended.
async fn open_when_free(path: &Path) -> Store {
    for _ in 0..500 {
        match flare_embedded::open(&options(path)) {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            opened => return opened.unwrap(),
        }
    }
    panic!("{} is still locked", path.display());
}

#[tokio::test]
async fn a_second_process_is_refused_and_told_who_holds_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let _held = open(folder.path());
    let error = flare_embedded::open(&options(folder.path())).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let message = error.to_string();
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
    assert!(message.contains("--data"), "{message}");
}
