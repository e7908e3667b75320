//! Reading a chunk ahead of the one who writes it.

use std::sync::Arc;

use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Shared;
use crate::error::{Error, ErrorKind, Result};
use crate::key::Range;
use crate::patience::answered;
use crate::port::Batches;
use crate::row::Batch;

/// How many batches of a chunk wait to be written.
const BATCHES_AHEAD: usize = 2;

/// The rows of a chunk, which may be on their way already.
pub(super) enum Ahead {
    /// Nothing has been read.
    Waiting(Batches),
    Begun(Reading),
}

impl Ahead {
    /// Reads, if that has not begun.
    pub fn begin(self, shared: &Arc<Shared>) -> Reading {
        match self {
            Self::Waiting(batches) => Reading::begin(Arc::clone(shared), batches),
            Self::Begun(reading) => reading,
        }
    }
}

/// A task that reads. It ends when this is dropped.
pub(super) struct Reading {
    batches: mpsc::Receiver<Result<Batch>>,
    _task: JoinSet<()>,
}

impl Reading {
    fn begin(shared: Arc<Shared>, batches: Batches) -> Self {
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let mut task = JoinSet::new();
        task.spawn(read(shared, batches, sender));
        Self { batches: receiver, _task: task }
    }

    /// Nothing after the first error.
    pub async fn next(&mut self) -> Option<Result<Batch>> {
        self.batches.recv().await
    }
}

async fn read(shared: Arc<Shared>, mut batches: Batches, sender: mpsc::Sender<Result<Batch>>) {
    loop {
        let next = async { batches.next().await.transpose() };
        let next = answered(shared.read_limit(), "source", next).await.transpose();
        let Some(batch) = next.map(|batch| batch.map_err(|error| shared.at_source(error))) else { return };
        let is_error = batch.is_err();
        if sender.send(batch).await.is_err() || is_error {
            return;
        }
    }
}

impl Shared {
    /// The rows of a range. Sources with one cursor serve ranges in the order of these calls.
    pub(super) fn read(&self, range: &Range, is_raw: bool) -> Ahead {
        Ahead::Waiting(self.session.reader.read(range, is_raw))
    }

    fn at_source(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::Rejected {
            error
        } else {
            error.within(format_args!("source {}", self.session.source))
        }
    }
}
