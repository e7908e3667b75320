//! What a copy tells while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::key::Range;

/// One notification. As JSON it is a line of `--progress json`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// A chunk is written, durably.
    Completed { worker: usize, chunk: String, range: Range, rows: u64, bytes: u64, rejects: u64, ms: u64 },
    /// A chunk failed; the others go on.
    Error { worker: usize, chunk: String, range: Range, message: String },
    /// Something did not answer and is asked again.
    Retry { chunk: String, message: String, wait_ms: u64 },
    /// A read found nothing more: the source is at its end.
    End { rows: u64, bytes: u64, rejects: u64, ms: u64 },
    /// The copy stops; the history is saved.
    Failure { message: String },
}

/// Who is told. Called from several workers at once; must be quick.
pub trait Observer: Send + Sync {
    fn notify(&self, event: &Event);
}

/// Nobody.
pub struct Silent;

impl Observer for Silent {
    fn notify(&self, _: &Event) {}
}

/// How far a copy is, for a display that looks now and then.
#[derive(Default, Debug)]
pub struct Progress {
    /// Rows that were read and written, committed or not.
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
    /// Rows of chunks that are done, in this run and before.
    pub rows_done: AtomicU64,
    pub chunks_done: AtomicU64,
    pub errors: AtomicU64,
    pub rejects: AtomicU64,
    /// Chunks on their way.
    pub busy: AtomicU64,
}

impl Progress {
    pub fn shared() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn add(counter: &AtomicU64, number: u64) {
        counter.fetch_add(number, Ordering::Relaxed);
    }

    pub fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}
