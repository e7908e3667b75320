//! Waiting for what a server or an engine does in its own time.

use std::time::Duration;

use flare_core::{ErrorKind, Result};

const LOOK_AGAIN: Duration = Duration::from_millis(50);
const LOOKS_MAX: usize = 1200;

/// Waits until it is so.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS_MAX {
        if is_so() {
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    panic!("it never came that {what}");
}

/// Waits until the call fails with what is `told`; it must not succeed, nor tell the `secret`. A connection that was cut
/// may be found so only now.
pub async fn until_refused<T>(told: &str, secret: &str, call: impl AsyncFn() -> Result<T>) {
    let mut last = String::new();
    for _ in 0..LOOKS_MAX {
        let error = call().await.err().unwrap();
        last = error.chain();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{last}");
        assert!(!last.contains(secret), "{last}");
        if last.contains(told) {
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    panic!("nobody said that it {told}: {last}");
}
