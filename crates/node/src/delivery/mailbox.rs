//! What a slot is told, from any thread, without waiting.

use std::sync::Arc;

use flare_core::{
    DocumentNumber, OutletId, Sequence, StreamId,
    document::{Standing, Version},
    outlet::Outlet,
    stream::Stream,
    url::DocumentUrl,
};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::slot::pull::{Pull, ReceiptError, Settle};

pub(crate) enum Command {
    Add {
        outlet: Arc<Outlet>,
        stream: Arc<Stream>,
        standing: Standing,
    },
    Update(Arc<Outlet>),
    Remove(OutletId),
    /// The outlet may be behind on these documents.
    Hint {
        outlet: OutletId,
        hints: Vec<Hint>,
        taken: oneshot::Sender<usize>,
    },
    Demand {
        outlet: OutletId,
        quantity: u64,
        max: u64,
        left: oneshot::Sender<Result<u64, u64>>,
    },
    Pull {
        outlet: OutletId,
        pull: Pull,
    },
    Settle {
        outlet: OutletId,
        receipts: Vec<String>,
        how: Settle,
        results: oneshot::Sender<Vec<Result<(), ReceiptError>>>,
    },
    Inspect {
        outlet: OutletId,
        seen: oneshot::Sender<Inspection>,
    },
}

/// A document on which an outlet may be behind.
pub(crate) struct Hint {
    pub number: DocumentNumber,
    pub url: DocumentUrl,
    /// Tell it again: what the outlet has of it is forgotten.
    pub forget: Option<Forget>,
}

/// The outlet is to be told again of a change, unless it has a newer one by now.
#[derive(Clone, Copy)]
pub(crate) struct Forget {
    pub change: Sequence,
    /// What it is taken to have from now on.
    pub to: Sequence,
}

impl Forget {
    /// What an outlet that has this version is taken to have; none if it stays as it is.
    pub fn apply(self, has: Version) -> Option<Version> {
        (has.sequence > self.to && has.sequence <= self.change).then_some(Version { sequence: self.to, ..has })
    }
}

/// What an outlet is doing.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Everything up to here was taken up.
    pub position: Sequence,
    pub retries: usize,
    pub next_retry: Option<Timestamp>,
    /// Messages that a passive client still asks for.
    pub demand: u64,
}

/// Commands are bounded by the writes to outlets, which wait for the store; nudges merge.
#[derive(Default)]
pub(crate) struct Mailbox {
    mail: Mutex<Mail>,
    notify: Notify,
}

#[derive(Default)]
pub(crate) struct Mail {
    pub commands: Vec<Command>,
    /// Streams with changes.
    pub changed: Vec<StreamId>,
    /// Any stream may have changes.
    pub all_changed: bool,
}

impl Mailbox {
    pub fn send(&self, command: Command) {
        self.mail.lock().commands.push(command);
        self.notify.notify_one();
    }

    /// The stream has changes.
    pub fn nudge(&self, stream: StreamId) {
        let mut mail = self.mail.lock();
        if !mail.changed.contains(&stream) {
            mail.changed.push(stream);
        }
        drop(mail);
        self.notify.notify_one();
    }

    pub fn nudge_all(&self) {
        self.mail.lock().all_changed = true;
        self.notify.notify_one();
    }

    pub fn wake(&self) {
        self.notify.notify_one();
    }

    pub fn take(&self) -> Mail {
        std::mem::take(&mut self.mail.lock())
    }

    pub async fn arrival(&self) {
        self.notify.notified().await;
    }
}
