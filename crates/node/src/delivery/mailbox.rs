//! What a slot is told, from any thread, without waiting.

use std::sync::Arc;

use flare_core::{OutletId, Sequence, StreamId, document::Retry, outlet::Outlet, stream::Stream};
use parking_lot::Mutex;
use tokio::sync::Notify;

pub(crate) enum Command {
    Add { outlet: Arc<Outlet>, stream: Arc<Stream>, cursor: Sequence, retries: Vec<Retry> },
    Update(Arc<Outlet>),
    Remove(OutletId),
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
