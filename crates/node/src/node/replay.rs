//! Tells an outlet again of what it has, a page of the feed at a time.
//!
//! For each document the version that the outlet has goes back to before the change, and the document is noted as one on
//! which it may be behind. From there on it is delivered like any other: in order, at the outlet's pace, over restarts.

use std::{collections::HashMap, sync::Arc, time::Duration};

use flare_core::{
    Error, OutletId, Result, Sequence, StreamId, document::Change, outlet::Revisions, port::FeedQuery, replay::Replay,
    revision::Revision,
};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{Node, missing, worker::Worker};
use crate::{
    clock,
    delivery::mailbox::{Forget, Hint},
    supervisor::Failure,
};

const PAGE_CHANGES: usize = 128;
const PAGE_BYTES: usize = 4 << 20;
/// How often to look whether the outlet has room for more.
const ROOM_INTERVAL: Duration = Duration::from_millis(100);
const FAILURE_DELAY: Duration = Duration::from_secs(1);

/// Where a replay begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplayFrom {
    Beginning,
    Revision(Revision),
    Time(Timestamp),
}

/// The replays under way on this node.
#[derive(Default)]
pub(super) struct Replays {
    running: Mutex<HashMap<OutletId, Running>>,
}

struct Running {
    replay: Replay,
    cancel: CancellationToken,
}

impl Replays {
    /// Ends the replay of an outlet that is gone.
    pub fn drop(&self, outlet: OutletId) {
        if let Some(running) = self.running.lock().remove(&outlet) {
            running.cancel.cancel();
        }
    }
}

impl Node {
    /// Starts a replay; `Conflict` while another one of the outlet is under way.
    pub async fn start_replay(
        self: &Arc<Self>,
        stream: StreamId,
        id: OutletId,
        from: ReplayFrom,
        prefix: String,
    ) -> Result<Replay> {
        let worker = self.worker()?;
        let _one_at_a_time = self.administrate().await?;
        self.registry.outlet(stream, id).ok_or_else(|| missing(id))?;
        if self.replay(id).is_some() {
            return Err(Error::conflict(format!("a replay of subscription {id} is under way; cancel it, or wait")));
        }
        let (start, revision) = match from {
            ReplayFrom::Beginning => (Sequence::START, None),
            ReplayFrom::Revision(revision) => (Sequence::START, Some(revision)),
            ReplayFrom::Time(time) => (self.store.documents.sequence_at(time).await?, None),
        };
        let replay = Replay {
            outlet: id,
            stream,
            from: start,
            position: start,
            until: self.store.documents.head(),
            prefix,
            revision,
            documents: 0,
            started_at: clock::now(),
        };
        worker.during(self.store.deliveries.save_replay(id, Some(replay.clone()))).await?;
        self.run_replay(&worker, replay.clone());
        Ok(replay)
    }

    /// The replay under way.
    pub fn replay(&self, id: OutletId) -> Option<Replay> {
        self.worker_now()?.replays.running.lock().get(&id).map(|running| running.replay.clone())
    }

    /// Ends the replay under way; says whether there was one. What it has noted so far is still delivered.
    pub async fn cancel_replay(&self, id: OutletId) -> Result<bool> {
        let worker = self.worker()?;
        let Some(running) = worker.replays.running.lock().remove(&id) else { return Ok(false) };
        running.cancel.cancel();
        worker.during(self.store.deliveries.save_replay(id, None)).await?;
        Ok(true)
    }

    /// Goes on with what was under way when the node stopped.
    pub(super) async fn resume_replays(self: &Arc<Self>, worker: &Arc<Worker>) -> Result<()> {
        for replay in self.store.deliveries.replays().await? {
            self.run_replay(worker, replay);
        }
        Ok(())
    }

    fn run_replay(self: &Arc<Self>, worker: &Arc<Worker>, replay: Replay) {
        let cancel = worker.stop.child_token();
        let running = Running { replay: replay.clone(), cancel: cancel.clone() };
        worker.replays.running.lock().insert(replay.outlet, running);
        let (node, of) = (self.clone(), worker.clone());
        worker.supervisor.spawn("replay", Failure::IsLogged, async move {
            cancel.run_until_cancelled(node.go_through(&of, replay)).await;
        });
    }

    async fn go_through(&self, worker: &Worker, mut replay: Replay) {
        let id = replay.outlet;
        loop {
            match self.step(worker, &mut replay).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if self.registry.outlet(replay.stream, id).is_none() => {
                    tracing::debug!(subscription = %id, reason = error.chain(), "a replay ends with its subscription");
                    break;
                }
                Err(error) => {
                    tracing::warn!(subscription = %id, reason = error.chain(), "a replay waits for the store");
                    tokio::time::sleep(FAILURE_DELAY).await;
                }
            }
        }
        worker.replays.running.lock().remove(&id);
        if let Err(error) = self.store.deliveries.save_replay(id, None).await {
            tracing::warn!(subscription = %id, reason = error.chain(), "could not note the end of a replay");
        }
    }

    /// Takes the next page; false at the end.
    async fn step(&self, worker: &Worker, replay: &mut Replay) -> Result<bool> {
        if replay.position >= replay.until {
            return Ok(false);
        }
        self.wait_for_room(replay.outlet).await?;
        let query = FeedQuery {
            after: replay.position,
            revisions: Revisions::Last,
            limit: PAGE_CHANGES,
            bytes_max: PAGE_BYTES,
        };
        let page = self.store.documents.feed(replay.stream, query).await?;
        let wanted = |change: &&Change| {
            change.sequence <= replay.until
                && change.url.as_str().starts_with(&replay.prefix)
                && replay.revision.is_none_or(|least| change.revision >= least)
        };
        let hints: Vec<_> = page.changes.iter().filter(wanted).map(|change| self.told_again(replay, change)).collect();
        replay.documents += hints.len() as u64;
        replay.position = page.until.min(replay.until);
        if !hints.is_empty() {
            self.hint(replay.outlet, hints).await?;
        }
        self.store.deliveries.save_replay(replay.outlet, Some(replay.clone())).await?;
        if let Some(running) = worker.replays.running.lock().get_mut(&replay.outlet) {
            running.replay = replay.clone();
        }
        Ok(true)
    }

    /// The outlet is taken to have what was before the change, or, with every revision, before the replay's beginning.
    fn told_again(&self, replay: &Replay, change: &Change) -> Hint {
        let outlet = self.registry.outlet(replay.stream, replay.outlet);
        let is_all = outlet.is_some_and(|outlet| outlet.revisions == Revisions::All);
        let to = if is_all { replay.from } else { Sequence(change.sequence.0.saturating_sub(1)) };
        let forget = Some(Forget { change: change.sequence, to });
        Hint { number: change.number, url: change.url.clone(), forget }
    }

    async fn wait_for_room(&self, outlet: OutletId) -> Result<()> {
        while self.inspect(outlet).await?.retries > self.settings.retries_max / 2 {
            tokio::time::sleep(ROOM_INTERVAL).await;
        }
        Ok(())
    }
}
