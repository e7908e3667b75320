//! The bound on every wait.

use std::time::Duration;

/// The longest that a scenario waits for one thing. Generous: it decides between "late" and "never", not about speed.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// Waits for `future`, or fails the scenario by saying what did not happen.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(WAIT_MAX, future).await {
        Ok(value) => value,
        Err(_) => panic!("did not happen within {WAIT_MAX:?}: {what}"),
    }
}
