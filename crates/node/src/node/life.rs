//! The life of an outlet: paused and resumed, given up and tried again.

use std::sync::Arc;

use flare_core::{
    Error, OutletId, Result, Sequence, StreamId,
    delivery::{AttemptQuery, AttemptRecord, DeadLetter},
    outlet::{Outlet, Status},
    stream::Stream,
};

use super::{Node, Page, missing, worker::Worker};
use crate::{
    clock,
    delivery::{
        Tested,
        mailbox::{Command, Forget, Hint},
    },
};

/// Dead letters that are sent again or forgotten in one step.
const LETTERS_MAX: usize = 1000;

impl Node {
    /// Nothing more is sent until it is resumed; what is in flight is finished. It keeps its place in the feed.
    pub async fn pause_outlet(&self, stream: StreamId, id: OutletId) -> Result<Arc<Outlet>> {
        let pause = |present: &Status| match present {
            Status::Paused { .. } => None,
            Status::Active | Status::Disabled { .. } => Some(Status::Paused { since: clock::now() }),
        };
        self.set_status(stream, id, pause).await
    }

    /// Goes on where it stopped, whoever stopped it.
    pub async fn resume_outlet(&self, stream: StreamId, id: OutletId) -> Result<Arc<Outlet>> {
        self.set_status(stream, id, |present| (!present.is_active()).then_some(Status::Active)).await
    }

    async fn disable_outlet(&self, stream: StreamId, id: OutletId, reason: String) -> Result<Arc<Outlet>> {
        let disable = |present: &Status| {
            present.is_active().then(|| Status::Disabled { since: clock::now(), reason: reason.clone() })
        };
        self.set_status(stream, id, disable).await
    }

    /// Changes the status if `change` says so.
    async fn set_status(
        &self,
        stream: StreamId,
        id: OutletId,
        change: impl FnOnce(&Status) -> Option<Status>,
    ) -> Result<Arc<Outlet>> {
        let mut known = self.administrate().await?;
        let present = self.registry.outlet(stream, id).ok_or_else(|| missing(id))?;
        let Some(status) = change(&present.status) else { return Ok(present) };
        let outlet = Arc::new(Outlet { status, ..(*present).clone() });
        self.put_outlet(&mut known, outlet).await
    }

    /// Disables outlets that the delivery says should not be called any more.
    pub(super) async fn keep_outlets(self: Arc<Self>, worker: Arc<Worker>) {
        let Some(mut disabled) = worker.delivery.disabled() else { return };
        while let Some(Some(next)) = worker.stop.run_until_cancelled(disabled.recv()).await {
            match self.disable_outlet(next.stream, next.outlet, next.reason.clone()).await {
                Ok(_) => tracing::warn!(subscription = %next.outlet, reason = next.reason, "disabled a subscription"),
                // The next failure asks again.
                Err(error) => tracing::warn!(subscription = %next.outlet, reason = error.chain(), "could not disable"),
            }
        }
    }

    /// Calls the endpoint with a signed request that is no delivery. An error is a template that gives no valid request.
    pub async fn test_outlet(&self, outlet: &Arc<Outlet>, stream: &Stream) -> Result<Result<Tested, String>> {
        let worker = self.worker()?;
        worker.during(async { Ok(worker.delivery.test(outlet, stream).await) }).await
    }

    pub async fn dead_letters(&self, id: OutletId, offset: usize, limit: usize) -> Result<Page<DeadLetter>> {
        let (items, total) = self.store.deliveries.dead_letters(id, offset, limit).await?;
        Ok(Page { items, total })
    }

    /// Sends the newest revision of the documents again, and forgets the letters; says how many.
    pub async fn replay_dead_letters(&self, id: OutletId, chosen: Option<&[Sequence]>) -> Result<usize> {
        self.settle_dead_letters(id, chosen, true).await
    }

    /// Forgets them; says how many.
    pub async fn discard_dead_letters(&self, id: OutletId, chosen: Option<&[Sequence]>) -> Result<usize> {
        self.settle_dead_letters(id, chosen, false).await
    }

    async fn settle_dead_letters(&self, id: OutletId, chosen: Option<&[Sequence]>, again: bool) -> Result<usize> {
        let (letters, _) = self.store.deliveries.dead_letters(id, 0, LETTERS_MAX).await?;
        let is_chosen = |letter: &DeadLetter| chosen.is_none_or(|chosen| chosen.contains(&letter.sequence));
        let letters: Vec<_> = letters.into_iter().filter(is_chosen).collect();
        if again {
            // With every revision, one that was given up counts as passed; it is not sent after a newer one.
            let forget = |letter: &DeadLetter| Forget {
                change: letter.sequence,
                to: Sequence(letter.sequence.0.saturating_sub(1)),
            };
            let hint = |letter: &DeadLetter| Hint {
                number: letter.number,
                url: letter.url.clone(),
                forget: Some(forget(letter)),
            };
            let hints = letters.iter().map(hint).collect();
            self.hint(id, hints).await?;
        }
        let sequences: Vec<_> = letters.iter().map(|letter| letter.sequence).collect();
        let settled = sequences.len();
        self.store.deliveries.discard_dead_letters(id, sequences).await?;
        Ok(settled)
    }

    /// Has the outlet look at documents, durably; says how many wait then.
    pub(super) async fn hint(&self, outlet: OutletId, hints: Vec<Hint>) -> Result<usize> {
        let worker = self.worker()?;
        let waiting = worker.ask(outlet, |taken| Command::Hint { outlet, hints, taken }).await?;
        worker.during(worker.delivery.flush(&*self.store.engine)).await?;
        Ok(waiting)
    }

    pub async fn attempts(&self, id: OutletId, query: AttemptQuery) -> Result<Vec<AttemptRecord>> {
        // What was just sent is shown too. A store in trouble shows what it has.
        if let Some(worker) = self.worker_now()
            && let Err(error) = worker.during(worker.delivery.record_now()).await
        {
            tracing::debug!(reason = error.chain(), "attempts are shown without the latest");
        }
        self.store.deliveries.attempts(id, query).await
    }
}

/// The client asked for what its subscription does not do.
pub(super) fn not_passive(id: OutletId) -> Error {
    Error::conflict(format!("subscription {id} is in mode \"active\"; only a passive one is asked for messages"))
}
