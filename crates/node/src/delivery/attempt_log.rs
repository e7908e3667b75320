//! The log of attempts, written seldom: attempts of one outlet that are written together are one row, so the longer they
//! gather, the less each costs. It is only a log: a crash may take the last ones with it.

use std::{sync::Arc, time::Duration};

use flare_core::{OutletId, Result, delivery::AttemptRecord, document::Progress, port::Deliveries};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::fast_map::FastMap;

/// How long attempts gather.
const DELAY: Duration = Duration::from_secs(2);
/// They are written early when so many have gathered.
const ATTEMPTS_EARLY: usize = 16_384;
/// Past this, while the store takes no writes, they are not logged.
const ATTEMPTS_MAX: usize = 65_536;

pub(crate) struct AttemptLog {
    store: Arc<dyn Deliveries>,
    gathered: Mutex<Gathered>,
    writes: tokio::sync::Mutex<()>,
    begun: Notify,
    enough: Notify,
}

#[derive(Default)]
struct Gathered {
    attempts: FastMap<OutletId, Vec<AttemptRecord>>,
    count: usize,
    lost: u64,
}

impl AttemptLog {
    pub fn new(store: Arc<dyn Deliveries>) -> Self {
        Self {
            store,
            gathered: Mutex::default(),
            writes: tokio::sync::Mutex::default(),
            begun: Notify::new(),
            enough: Notify::new(),
        }
    }

    pub fn add(&self, outlet: OutletId, attempt: AttemptRecord) {
        let mut gathered = self.gathered.lock();
        if gathered.count >= ATTEMPTS_MAX {
            gathered.lost += 1;
            return;
        }
        gathered.attempts.entry(outlet).or_default().push(attempt);
        gathered.count += 1;
        let count = gathered.count;
        drop(gathered);
        match count {
            1 => self.begun.notify_one(),
            ATTEMPTS_EARLY => self.enough.notify_one(),
            _ => {}
        }
    }

    /// Writes until it is told to stop, and then what is left.
    pub async fn run(&self, stop: CancellationToken) {
        while stop.run_until_cancelled(self.begun.notified()).await.is_some() {
            tokio::select! {
                () = tokio::time::sleep(DELAY) => {}
                () = self.enough.notified() => {}
                () = stop.cancelled() => {}
            }
            if let Err(error) = self.flush().await {
                tracing::warn!(
                    reason = error.chain(),
                    "could not write the log of attempts; it is kept and tried again"
                );
                self.begun.notify_one();
            }
        }
        if let Err(error) = self.flush().await {
            tracing::warn!(reason = error.chain(), "the last attempts are not in the log");
        }
    }

    /// Writes what has gathered, now.
    pub async fn flush(&self) -> Result<()> {
        let _one_at_a_time = self.writes.lock().await;
        let gathered = std::mem::take(&mut *self.gathered.lock());
        if gathered.lost > 0 {
            tracing::warn!(attempts = gathered.lost, "attempts are missing in the log: the store took no writes");
        }
        if gathered.count == 0 {
            return Ok(());
        }
        let step = |(outlet, attempts): (&OutletId, &Vec<AttemptRecord>)| Progress::Attempts {
            outlet: *outlet,
            attempts: attempts.clone(),
        };
        let written = self.store.record(gathered.attempts.iter().map(step).collect()).await;
        if written.is_err() {
            self.keep(gathered);
        }
        written
    }

    /// Puts back what could not be written, before what came meanwhile.
    fn keep(&self, unwritten: Gathered) {
        let mut gathered = self.gathered.lock();
        let newer = std::mem::replace(&mut gathered.attempts, unwritten.attempts);
        gathered.count += unwritten.count;
        for (outlet, attempts) in newer {
            gathered.attempts.entry(outlet).or_default().extend(attempts);
        }
    }
}
