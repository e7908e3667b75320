//! Remembers progress lazily: many deliveries, one write.
//!
//! What is not yet written is visible to [`Recorder::version`], so that laziness shows only after a crash, as a repeated
//! delivery. When the store refuses writes, progress is kept and written later; when too much has gathered, slots
//! start no more deliveries until it is written.

use std::{sync::Arc, time::Duration};

use flare_core::{
    DocumentNumber, OutletId, Result,
    document::{Progress, Version},
    port::Deliveries,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::fast_map::FastMap;

/// A write is started early when so much has gathered.
const STEPS_EARLY: usize = 4096;
/// Past this, no delivery is started.
const STEPS_MAX: usize = 65_536;
const RETRY_DELAY: Duration = Duration::from_millis(500);

type Versions = FastMap<(OutletId, DocumentNumber), Version>;

pub(crate) struct Recorder {
    store: Arc<dyn Deliveries>,
    delay: Duration,
    buffer: Mutex<Buffer>,
    writes: tokio::sync::Mutex<()>,
    /// The first step came in.
    begun: Notify,
    /// Enough steps came in not to wait any longer.
    enough: Notify,
}

#[derive(Default)]
struct Buffer {
    steps: Vec<Progress>,
    versions: Versions,
    /// What is being written.
    writing: Versions,
}

impl Recorder {
    pub fn new(store: Arc<dyn Deliveries>, delay: Duration) -> Self {
        Self {
            store,
            delay,
            buffer: Mutex::default(),
            writes: tokio::sync::Mutex::default(),
            begun: Notify::new(),
            enough: Notify::new(),
        }
    }

    pub fn record(&self, step: Progress) {
        let mut buffer = self.buffer.lock();
        if let Some((at, version)) = version_in(&step) {
            buffer.versions.insert(at, version);
        }
        buffer.steps.push(step);
        let steps = buffer.steps.len();
        drop(buffer);
        match steps {
            1 => self.begun.notify_one(),
            STEPS_EARLY => self.enough.notify_one(),
            _ => {}
        }
    }

    pub fn is_full(&self) -> bool {
        self.buffer.lock().steps.len() >= STEPS_MAX
    }

    /// The version of the document that the outlet has.
    pub fn version(&self, outlet: OutletId, number: DocumentNumber) -> Result<Option<Version>> {
        let at = (outlet, number);
        {
            let buffer = self.buffer.lock();
            if let Some(version) = buffer.versions.get(&at).or_else(|| buffer.writing.get(&at)) {
                return Ok(Some(*version));
            }
        }
        self.store.version(outlet, number)
    }

    /// Until the version that the outlet has of the document is written.
    pub async fn settle(&self, outlet: OutletId, number: DocumentNumber) -> Result<()> {
        let at = (outlet, number);
        let is_written = || {
            let buffer = self.buffer.lock();
            !buffer.versions.contains_key(&at) && !buffer.writing.contains_key(&at)
        };
        if is_written() { Ok(()) } else { self.flush().await }
    }

    /// Writes until it is told to stop, and then what is left. Calls `drained` when it is no longer full.
    pub async fn run(&self, stop: CancellationToken, drained: impl Fn()) {
        loop {
            tokio::select! {
                () = self.begun.notified() => {}
                () = stop.cancelled() => break,
            }
            tokio::select! {
                () = tokio::time::sleep(self.delay) => {}
                () = self.enough.notified() => {}
                () = stop.cancelled() => break,
            }
            let was_full = self.is_full();
            self.write(&stop).await;
            if was_full {
                drained();
            }
        }
        self.write(&stop).await;
    }

    /// Writes what has gathered, now.
    pub async fn flush(&self) -> Result<()> {
        let _one_at_a_time = self.writes.lock().await;
        let steps = self.take();
        let written = self.store.record(steps.clone()).await;
        let mut buffer = self.buffer.lock();
        buffer.writing = Versions::default();
        if written.is_err() {
            // Before what came meanwhile.
            let newer_versions = std::mem::take(&mut buffer.versions);
            buffer.versions.extend(steps.iter().filter_map(version_in));
            buffer.versions.extend(newer_versions);
            let newer = std::mem::replace(&mut buffer.steps, steps);
            buffer.steps.extend(newer);
        }
        written
    }

    fn take(&self) -> Vec<Progress> {
        let mut buffer = self.buffer.lock();
        buffer.writing = std::mem::take(&mut buffer.versions);
        std::mem::take(&mut buffer.steps)
    }

    async fn write(&self, stop: &CancellationToken) {
        let _one_at_a_time = self.writes.lock().await;
        let steps = self.take();
        if steps.is_empty() {
            return;
        }
        let mut reported = false;
        while let Err(error) = self.store.record(steps.clone()).await {
            if !std::mem::replace(&mut reported, true) {
                tracing::warn!(reason = error.chain(), "could not record deliveries; they are kept and tried again");
            }
            if stop.is_cancelled() {
                tracing::warn!(steps = steps.len(), "deliveries stay unrecorded and will be repeated");
                break;
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
        self.buffer.lock().writing = Versions::default();
    }
}

/// The version that a step is about, and whose it is.
fn version_in(step: &Progress) -> Option<((OutletId, DocumentNumber), Version)> {
    match step {
        Progress::Version { outlet, number, version } | Progress::Forgotten { outlet, number, version } => {
            Some(((*outlet, *number), *version))
        }
        _ => None,
    }
}
