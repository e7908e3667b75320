//! The side of a slot that faces the feed: changes are read as there is room for them, and cursors follow.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use flare_core::{
    OutletId, Result, Sequence,
    document::{Change, Progress},
    outlet::Revisions,
    port::{FeedPage, FeedQuery},
};
use futures_util::FutureExt;
use tokio::time::Instant;

use super::{Done, Slot};
use crate::delivery::{filtering::Filtering, outlet::OutletState};

/// A page of the feed from the store, for an outlet that is far behind.
const FETCH_CHANGES_MAX: usize = 64;
const FETCH_BYTES_MAX: usize = 256 << 10;
/// How long to wait before the feed is read again after it could not be read.
const FETCH_RETRY_DELAY: Duration = Duration::from_secs(1);
/// How often cursors that moved are recorded. A crash has the feed read again from there; versions tell what was done.
const CURSOR_INTERVAL: Duration = Duration::from_secs(2);

impl Slot {
    pub(super) fn fetch(&mut self, id: OutletId) {
        let Some(state) = self.outlets.get_mut(&id) else { return };
        state.fetching = true;
        let (stream, after) = (state.stream.id, state.position());
        let documents = self.shared.documents.clone();
        self.running.push(Box::pin(async move {
            let query =
                FeedQuery { after, revisions: Revisions::Last, limit: FETCH_CHANGES_MAX, bytes_max: FETCH_BYTES_MAX };
            Done::Fetched { outlet: id, page: documents.feed(stream, query).await }
        }));
    }

    pub(super) fn end_fetch(&mut self, id: OutletId, page: Result<FeedPage>) {
        let Some(state) = self.outlets.get_mut(&id) else { return };
        state.fetching = false;
        match page {
            Ok(page) => {
                let changes = page.changes.into_iter().map(Arc::new);
                take_wanted(&self.shared.filtering, state, changes, page.until);
                self.note_moved(id, Instant::now());
                self.line_up(id);
            }
            Err(error) => {
                tracing::warn!(subscription = %id, reason = error.chain(), "could not read the feed");
                self.alarms.push(Reverse((Instant::now() + FETCH_RETRY_DELAY, id)));
            }
        }
    }

    /// The cursor of the outlet may have moved.
    pub(super) fn note_moved(&mut self, id: OutletId, now: Instant) {
        if let Some(state) = self.outlets.get_mut(&id)
            && !std::mem::replace(&mut state.in_moved, true)
        {
            self.moved.push(id);
            self.cursors_due.get_or_insert(now + CURSOR_INTERVAL);
        }
    }

    pub(super) fn record_cursors(&mut self) {
        self.cursors_due = None;
        for outlet in std::mem::take(&mut self.moved) {
            let Some(state) = self.outlets.get_mut(&outlet) else { continue };
            state.in_moved = false;
            if let Some(cursor) = state.moved_cursor() {
                self.shared.recorder.record(Progress::Cursor { outlet, cursor });
            }
        }
    }
}

/// Has the outlet take up what it may want. What its filter leaves out for certain, and without a wait, costs no more
/// than that; the rest is found out by an attempt.
pub(super) fn take_wanted(
    filtering: &Filtering,
    state: &mut OutletState,
    changes: impl IntoIterator<Item = Arc<Change>>,
    mut position: Sequence,
) {
    let outlet = state.outlet().clone();
    // One who wants every revision may lack older ones than this.
    if outlet.filter.is_none() || outlet.revisions == Revisions::All {
        state.take(changes, position);
        return;
    }
    let mut wanted = Vec::new();
    for change in changes {
        position = position.max(change.sequence);
        // An outlet that has a document must know that it is gone.
        let is_out = !change.is_delete()
            && (change.is_superseded() || matches!(filtering.wants(&outlet, &change).now_or_never(), Some(Ok(false))));
        if !is_out {
            wanted.push(change);
        }
    }
    state.take(wanted, position);
}
