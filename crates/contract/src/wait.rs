//! Waiting for what a server or an engine does in its own time.

use std::time::Duration;

pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(50);
pub(crate) const LOOKS_MAX: usize = 1200;

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
