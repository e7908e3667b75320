//! The part of a node that delivers. It is there while it is this node's turn, and goes with it: what it was doing then
//! is repeated by whoever is next.

use std::{future::Future, sync::Arc};

use flare_core::{Error, OutletId, Result, Sequence, document::Change, outlet::Outlet, port::ChangeListener};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{LOAD_PAGE, Node, follow::Difference, replay::Replays, standing_of};
use crate::{
    delivery::{Delivery, mailbox::Command},
    supervisor::{Failure, Supervisor},
    sweeper::Sweeper,
};

pub(super) struct Worker {
    pub delivery: Delivery,
    pub replays: Replays,
    /// Owns the tasks of this turn.
    pub supervisor: Supervisor,
    /// Tells the tasks besides the delivery to end.
    pub stop: CancellationToken,
}

impl Worker {
    /// Hands a command to the slot of the outlet, and waits for the answer. `NotFound` if the outlet is gone.
    pub async fn ask<T>(&self, outlet: OutletId, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T> {
        let answer = async { Ok(self.delivery.ask(outlet, command).await) };
        match self.during(answer).await? {
            Some(answer) => Ok(answer),
            // A slot that was dropped does not answer either.
            None if self.supervisor.abandoned().is_cancelled() => Err(lost()),
            None => Err(super::missing(outlet)),
        }
    }

    /// Does something for as long as it is this node's turn, and not a moment longer.
    pub async fn during<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let done = self.supervisor.abandoned().run_until_cancelled(work).await;
        done.unwrap_or_else(|| Err(lost()))
    }

    /// Takes into account what other nodes have done to outlets.
    pub fn follow(&self, difference: &Difference) {
        for (stream, outlet) in &difference.removed {
            self.delivery.remove(*stream, *outlet);
            self.replays.drop(*outlet);
        }
        difference.removed_streams.iter().for_each(|stream| self.delivery.forget_stream(*stream));
        difference.changed.iter().for_each(|outlet| self.delivery.update(outlet.clone()));
        // What is new has been with nobody else.
        difference.added.iter().for_each(|outlet| self.delivery.add(outlet.clone(), standing_of(outlet)));
    }
}

impl Node {
    /// Whether this node delivers.
    pub fn works(&self) -> bool {
        self.worker.read().is_some()
    }

    pub(super) fn worker_now(&self) -> Option<Arc<Worker>> {
        self.worker.read().clone()
    }

    pub(super) fn worker(&self) -> Result<Arc<Worker>> {
        self.worker_now().ok_or_else(|| Error::unavailable("it is not the turn of this node to work; try again"))
    }

    /// Goes on with what is due. All tasks belong to `part`.
    pub(super) async fn start_work(self: &Arc<Self>, part: Supervisor) -> Result<()> {
        let tasks = match &self.settings.tasks {
            Some(settings) => Some(Arc::new(settings.open().await?)),
            None => None,
        };
        let known = self.administrate().await?;
        let delivery = Delivery::start(&self.store, tasks, self.registry.clone(), &self.settings, &part)?;
        let (stop, replays) = (CancellationToken::new(), Replays::default());
        let worker = Arc::new(Worker { delivery, replays, supervisor: part, stop });
        self.take_up_outlets(&worker).await?;
        *self.worker.write() = Some(worker.clone());
        // From here on, what is done to outlets is told to the worker.
        drop(known);
        let sweeper = Sweeper {
            store: self.store.clone(),
            retention: self.settings.retention,
            attempts_retention: self.settings.attempts_retention,
            dead_letters_retention: self.settings.dead_letters_retention,
            interval: self.settings.sweep_interval,
        };
        let (tasks, stop) = (&worker.supervisor, &worker.stop);
        tasks.spawn("sweeper", Failure::StopsNode, sweeper.run(stop.clone()));
        tasks.spawn("outlet-keeper", Failure::StopsNode, self.clone().keep_outlets(worker.clone()));
        tasks.spawn("resync", Failure::StopsNode, self.clone().resync_all(stop.clone()));
        self.resume_replays(&worker).await
    }

    /// Hands every outlet to the delivery where it stands.
    async fn take_up_outlets(&self, worker: &Worker) -> Result<()> {
        let mut outlets = self.registry.all_outlets().into_iter().peekable();
        let new = |outlet: Arc<Outlet>| worker.delivery.add(outlet.clone(), standing_of(&outlet));
        let mut after = None;
        loop {
            let page = self.store.deliveries.standings(after, LOAD_PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.outlet);
            // Both are in id order. Cursors of deleted outlets may stand in between until they are purged.
            for standing in page {
                while let Some(outlet) = outlets.next_if(|outlet| outlet.id < standing.outlet) {
                    new(outlet);
                }
                if let Some(outlet) = outlets.next_if(|outlet| outlet.id == standing.outlet) {
                    worker.delivery.add(outlet, standing);
                }
            }
        }
        outlets.for_each(new);
        Ok(())
    }

    /// Finishes what is in flight and records it.
    pub(super) async fn finish_work(&self) {
        if let Some(worker) = self.worker_now() {
            worker.stop.cancel();
            worker.delivery.stop().await;
            worker.delivery.leave_queue().await;
        }
    }

    /// Lets go of everything at once, and records nothing more. What was in flight is repeated by whoever works next.
    pub(super) async fn abandon_work(&self, part: &Supervisor) {
        // The requests of clients that wait for the worker learn of it before anybody could take it for another one.
        part.abandon().await;
        let worker = self.worker.write().take();
        if let Some(worker) = worker {
            worker.delivery.leave_queue().await;
        }
        self.store.documents.listen(Arc::new(Nobody));
    }
}

fn lost() -> Error {
    Error::unavailable("this node has lost its turn to work; try again")
}

/// Hears of changes while this node does not work.
struct Nobody;

impl ChangeListener for Nobody {
    fn changed(&self, _: Vec<Arc<Change>>) {}

    fn missed(&self, _: Sequence) {}
}

#[cfg(test)]
mod tests;
