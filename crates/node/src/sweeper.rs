//! Removes what nobody needs any more, at long intervals.

use std::time::Duration;

use flare_core::port::Store;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

pub(crate) struct Sweeper {
    pub store: Store,
    /// How long a change is kept after it was accepted, if a newer one has replaced it.
    pub retention: Duration,
    pub attempts_retention: Duration,
    pub dead_letters_retention: Duration,
    pub interval: Duration,
}

impl Sweeper {
    pub async fn run(self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(self.interval)).await.is_some() {
            if let Err(error) = self.sweep().await {
                tracing::warn!(reason = error.chain(), "could not sweep; it will be tried again");
            }
        }
    }

    async fn sweep(&self) -> flare_core::Result<()> {
        let before = |age: Duration| Timestamp::now().checked_sub(age).unwrap_or(Timestamp::UNIX_EPOCH);
        let changes = self.store.documents.sweep(before(self.retention)).await?;
        tracing::debug!(changes, "swept replaced changes");
        self.store.deliveries.forget_attempts(before(self.attempts_retention)).await?;
        if self.dead_letters_retention.is_zero() {
            return Ok(());
        }
        self.store.deliveries.forget_dead_letters(before(self.dead_letters_retention)).await
    }
}
