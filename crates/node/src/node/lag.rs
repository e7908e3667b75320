//! On which documents an outlet is behind, and how it catches up.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use flare_core::{
    DocumentNumber, OutletId, Result, Sequence, StreamId,
    delivery::Behind,
    document::Change,
    outlet::{Outlet, Revisions},
    port::{FeedQuery, Span},
};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::{Node, missing};
use crate::delivery::mailbox::{Command, Hint, Inspection};

/// Documents that a count looks at; past it the count is a lower bound.
const COUNT_MAX: usize = 100_000;
/// Documents that one resync takes up.
const RESYNC_MAX: usize = 10_000;
/// Lets others have the store between two outlets.
const RESYNC_PAUSE: Duration = Duration::from_millis(10);
/// Nobody waits for it: of so many parts of the time it takes one.
const RESYNC_SHARE: u32 = 10;
const PAGE_CHANGES: usize = 1000;
const PAGE_BYTES: usize = 4 << 20;

/// How far an outlet is behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lag {
    pub documents: usize,
    /// There may be more documents than were counted.
    pub is_lower_bound: bool,
    /// When the oldest of them changed.
    pub oldest: Option<Timestamp>,
    /// How many of them wait for another attempt.
    pub retries: usize,
    pub next_retry: Option<Timestamp>,
}

/// What a resync found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resync {
    /// Documents that the outlet should have and does not; it is told of them now.
    pub repaired: usize,
    /// There may be more: resync again.
    pub has_more: bool,
}

impl Node {
    pub(super) async fn inspect(&self, outlet: OutletId) -> Result<Inspection> {
        self.worker()?.ask(outlet, |seen| Command::Inspect { outlet, seen }).await
    }

    pub async fn lag(&self, stream: StreamId, id: OutletId) -> Result<Lag> {
        let outlet = self.registry.outlet(stream, id).ok_or_else(|| missing(id))?;
        let seen = self.inspect(id).await?;
        let behind = self.behind(&outlet, COUNT_MAX).await?;
        Ok(Lag {
            documents: behind.len(),
            is_lower_bound: behind.len() >= COUNT_MAX,
            oldest: behind.iter().map(|document| document.updated_at).min(),
            retries: seen.retries,
            next_retry: seen.next_retry,
        })
    }

    /// The documents on which the outlet is behind: those that wait for another attempt, then those further on in the
    /// feed.
    pub async fn documents_behind(
        &self,
        stream: StreamId,
        id: OutletId,
        offset: usize,
        limit: usize,
    ) -> Result<Vec<Behind>> {
        let outlet = self.registry.outlet(stream, id).ok_or_else(|| missing(id))?;
        let mut behind = self.behind(&outlet, offset.saturating_add(limit).min(COUNT_MAX)).await?;
        Ok(behind.drain(offset.min(behind.len())..).collect())
    }

    async fn behind(&self, outlet: &Outlet, limit: usize) -> Result<Vec<Behind>> {
        // Memory knows what the store will learn in a moment.
        let worker = self.worker()?;
        worker.during(worker.delivery.record_now()).await?;
        let standing = self.store.deliveries.standing(outlet.id).await?;
        let mut behind = Vec::new();
        let mut listed = HashSet::new();
        for retry in standing.retries.iter().take(limit) {
            if let Some(change) = self.store.documents.get(outlet.stream, &retry.url).await?
                && self.is_behind(outlet.id, &change).await?
            {
                listed.insert(change.number);
                behind.push(of(&change));
            }
        }
        let mut after = standing.cursor;
        let head = self.store.documents.head();
        while behind.len() < limit && after < head {
            let query = FeedQuery { after, revisions: Revisions::Last, limit: PAGE_CHANGES, bytes_max: PAGE_BYTES };
            let page = self.store.documents.feed(outlet.stream, query).await?;
            for change in &page.changes {
                if behind.len() < limit && !listed.contains(&change.number) && self.is_behind(outlet.id, change).await?
                {
                    behind.push(of(change));
                }
            }
            after = page.until;
        }
        Ok(behind)
    }

    async fn is_behind(&self, outlet: OutletId, change: &Change) -> Result<bool> {
        let version = self.worker()?.delivery.version(outlet, change.number).await?;
        Ok(version.is_none_or(|version| version.sequence < change.sequence))
    }

    /// Compares what the outlet has with what there is, and has it told of what it lacks although it passed it: nothing,
    /// unless a record was lost.
    pub async fn resync(&self, stream: StreamId, id: OutletId) -> Result<Resync> {
        let outlet = self.registry.outlet(stream, id).ok_or_else(|| missing(id))?;
        let worker = self.worker()?;
        worker.during(worker.delivery.record_now()).await?;
        let standing = self.store.deliveries.standing(id).await?;
        let span = Span { after: outlet.start(), until: standing.cursor };
        let behind = self.store.deliveries.missing(stream, id, span, RESYNC_MAX).await?;
        let has_more = behind.len() >= RESYNC_MAX;
        let known = self.known_to_be_behind(id, standing.retries.iter().map(|retry| retry.number)).await?;
        let lacking = |document: &Behind| !known.contains(&document.number);
        let hints: Vec<_> = behind.into_iter().filter(lacking).map(hint).collect();
        let repaired = hints.len();
        if repaired > 0 {
            self.hint(id, hints).await?;
        }
        Ok(Resync { repaired, has_more })
    }

    /// Compares and repairs all outlets, at long intervals.
    pub(super) async fn resync_all(self: Arc<Self>, stop: CancellationToken) {
        let interval = self.settings.resync_interval;
        if interval.is_zero() {
            return;
        }
        while stop.run_until_cancelled(tokio::time::sleep(interval)).await.is_some() {
            for (stream, outlet) in self.registry.outlet_ids() {
                if stop.is_cancelled() {
                    return;
                }
                let start = Instant::now();
                match self.resync(stream, outlet).await {
                    Ok(Resync { repaired: 0, .. }) => {}
                    Ok(Resync { repaired, .. }) => {
                        tracing::warn!(subscription = %outlet, repaired, "a subscription lacked documents");
                    }
                    // It may have been deleted since; anything else is tried again.
                    Err(error) => tracing::debug!(subscription = %outlet, reason = error.chain(), "could not resync"),
                }
                tokio::time::sleep(RESYNC_PAUSE.max(start.elapsed() * RESYNC_SHARE)).await;
            }
        }
    }

    /// Documents that wait for another attempt, or were given up: somebody knows of them.
    async fn known_to_be_behind(
        &self,
        outlet: OutletId,
        retries: impl Iterator<Item = DocumentNumber>,
    ) -> Result<HashSet<DocumentNumber>> {
        let (letters, _) = self.store.deliveries.dead_letters(outlet, 0, usize::MAX).await?;
        Ok(retries.chain(letters.iter().map(|letter| letter.number)).collect())
    }

    /// How far the outlet has come with what was there before it; none if it has no snapshot, or has come through.
    pub async fn snapshot_position(&self, outlet: &Outlet) -> Option<Sequence> {
        if !outlet.snapshot {
            return None;
        }
        let position = self.inspect(outlet.id).await.ok()?.position;
        (position < outlet.since).then_some(position)
    }
}

fn of(change: &Change) -> Behind {
    Behind {
        number: change.number,
        url: change.url.clone(),
        sequence: change.sequence,
        revision: change.revision,
        updated_at: change.updated_at,
    }
}

fn hint(document: Behind) -> Hint {
    Hint { number: document.number, url: document.url, forget: None }
}
