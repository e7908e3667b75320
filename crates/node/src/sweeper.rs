//! Removes what nobody needs any more, at long intervals.

use std::{sync::Arc, time::Duration};

use flare_core::port::Documents;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

pub(crate) struct Sweeper {
    pub documents: Arc<dyn Documents>,
    /// How long a change is kept after it was accepted, if a newer one has replaced it.
    pub retention: Duration,
    pub interval: Duration,
}

impl Sweeper {
    pub async fn run(self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(self.interval)).await.is_some() {
            let oldest = Timestamp::now().checked_sub(self.retention).unwrap_or(Timestamp::UNIX_EPOCH);
            match self.documents.sweep(oldest).await {
                Ok(0) => {}
                Ok(changes) => tracing::debug!(changes, "swept replaced changes"),
                Err(error) => tracing::warn!(reason = error.chain(), "could not sweep; it will be tried again"),
            }
        }
    }
}
