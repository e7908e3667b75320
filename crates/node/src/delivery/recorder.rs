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

use super::mailbox::Forget;
use crate::fast_map::FastMap;

/// A write is started early when so much has gathered.
const STEPS_EARLY: usize = 4096;
/// Past this, no delivery is started.
const STEPS_MAX: usize = 65_536;
const RETRY_DELAY: Duration = Duration::from_millis(500);

type Place = (OutletId, DocumentNumber);
type Versions = FastMap<Place, Known>;

/// What is not yet in the store about the version of a document.
#[derive(Clone, Copy)]
enum Known {
    Has(Version),
    /// What the store has counts, less what is forgotten.
    Forgets(Forget),
}

/// Something to write.
#[derive(Clone)]
enum Step {
    Progress(Progress),
    /// Only the store knows which version the outlet has.
    Forget(Place, Forget),
}

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
    steps: Vec<Step>,
    versions: Versions,
    /// What is being written.
    writing: Versions,
}

impl Buffer {
    fn known(&self, at: Place) -> Option<Known> {
        self.versions.get(&at).or_else(|| self.writing.get(&at)).copied()
    }
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
        self.add(&mut self.buffer.lock(), Step::Progress(step));
    }

    /// The outlet is to be told of a change again.
    pub fn forget(&self, outlet: OutletId, number: DocumentNumber, forget: Forget) {
        let at = (outlet, number);
        let mut buffer = self.buffer.lock();
        match buffer.known(at) {
            Some(Known::Has(version)) => {
                let step = forget.apply(version).map(|version| Progress::Forgotten { outlet, number, version });
                step.into_iter().for_each(|step| self.add(&mut buffer, Step::Progress(step)));
            }
            Some(Known::Forgets(_)) | None => self.add(&mut buffer, Step::Forget(at, forget)),
        }
    }

    fn add(&self, buffer: &mut Buffer, step: Step) {
        if let Some((at, known)) = known_in(&step) {
            buffer.versions.insert(at, known);
        }
        buffer.steps.push(step);
        match buffer.steps.len() {
            1 => self.begun.notify_one(),
            STEPS_EARLY => self.enough.notify_one(),
            _ => {}
        }
    }

    pub fn is_full(&self) -> bool {
        self.buffer.lock().steps.len() >= STEPS_MAX
    }

    /// The version of the document that the outlet has.
    pub async fn version(&self, outlet: OutletId, number: DocumentNumber) -> Result<Option<Version>> {
        let known = self.buffer.lock().known((outlet, number));
        match known {
            Some(Known::Has(version)) => Ok(Some(version)),
            Some(Known::Forgets(forget)) => {
                // Whether it is in the store by now or not, it comes to the same.
                let version = self.store.version(outlet, number).await?;
                Ok(version.map(|version| forget.apply(version).unwrap_or(version)))
            }
            None => self.store.version(outlet, number).await,
        }
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
        let written = self.put(&steps).await;
        let mut buffer = self.buffer.lock();
        buffer.writing = Versions::default();
        if written.is_err() {
            // Before what came meanwhile.
            let newer_versions = std::mem::take(&mut buffer.versions);
            buffer.versions.extend(steps.iter().filter_map(known_in));
            buffer.versions.extend(newer_versions);
            let newer = std::mem::replace(&mut buffer.steps, steps);
            buffer.steps.extend(newer);
        }
        written
    }

    async fn put(&self, steps: &[Step]) -> Result<()> {
        let mut progress = Vec::with_capacity(steps.len());
        let mut forgotten = FastMap::<Place, Version>::default();
        for step in steps {
            match step {
                Step::Progress(step) => progress.push(step.clone()),
                Step::Forget(at @ (outlet, number), forget) => {
                    let has = match forgotten.get(at) {
                        Some(version) => Some(*version),
                        None => self.store.version(*outlet, *number).await?,
                    };
                    if let Some(version) = has.and_then(|has| forget.apply(has)) {
                        forgotten.insert(*at, version);
                        progress.push(Progress::Forgotten { outlet: *outlet, number: *number, version });
                    }
                }
            }
        }
        self.store.record(progress).await
    }

    fn take(&self) -> Vec<Step> {
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
        while let Err(error) = self.put(&steps).await {
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

/// What a step says about the version of a document.
fn known_in(step: &Step) -> Option<(Place, Known)> {
    match step {
        Step::Progress(
            Progress::Version { outlet, number, version } | Progress::Forgotten { outlet, number, version },
        ) => Some(((*outlet, *number), Known::Has(*version))),
        Step::Progress(_) => None,
        Step::Forget(at, forget) => Some((*at, Known::Forgets(*forget))),
    }
}

#[cfg(test)]
mod tests;
