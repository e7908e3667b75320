//! Whose turn it is to work, where several nodes can reach the data.
//!
//! A node with the role worker waits for the lease, works for as long as it keeps it, and then waits again. All the
//! while the rest of the node goes on. A node without that role only watches who works.

use std::{sync::Arc, time::Duration};

use flare_core::{Error, ErrorKind, Result};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Node;
use crate::{
    clock,
    lease::{self, Lease, Owner, Sight},
};

/// How long to wait after the store could not be asked.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// How long to wait after the work could not be begun.
const BEGIN_AGAIN: Duration = Duration::from_secs(3);

/// What this node has to do with the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// It delivers.
    Works,
    /// It takes over when the one who works is gone.
    Waits,
    /// It does not have the role worker.
    StandsBy,
}

/// Who works, as far as this node knows.
#[derive(Clone, Debug)]
pub struct Duty {
    pub work: Work,
    /// Since when `work` is so.
    pub since: Timestamp,
    /// The node that works, be it this one.
    pub worker: Option<Owner>,
    /// The last one that worked, if none does.
    pub gone: Option<Owner>,
    /// Why this node could not begin to work when it was its turn.
    pub trouble: Option<String>,
}

impl Duty {
    pub(super) fn new(work: Work) -> Self {
        Self { work, since: clock::now(), worker: None, gone: None, trouble: None }
    }

    /// Why nobody delivers at present, for people.
    pub fn absence(&self) -> String {
        match &self.gone {
            Some(gone) => format!(
                "no node works at present: the last one, {} at {}, was heard of at {}",
                gone.node, gone.address, gone.heard_at
            ),
            None => "no node with the role worker has worked on the data yet".to_owned(),
        }
    }
}

/// How a turn ended.
enum Ended {
    /// The node stops.
    Stopped,
    Lost(Error),
}

impl Node {
    pub fn duty(&self) -> Duty {
        self.duty.read().clone()
    }

    /// Notes who works.
    fn see(&self, sight: Sight) {
        let mut duty = self.duty.write();
        let before: Option<Uuid> = duty.worker.as_ref().map(|owner| owner.node);
        (duty.worker, duty.gone) = match sight {
            Sight::Nobody => (None, None),
            Sight::Works(owner) => (Some(owner), None),
            Sight::Gone(owner) => (None, Some(owner)),
        };
        let Some(owner) = &duty.worker else {
            if let (Some(_), Some(gone)) = (before, &duty.gone) {
                tracing::warn!(node = %gone.node, address = gone.address, "the node that worked is gone");
            }
            return;
        };
        if before == Some(owner.node) || owner.node == self.settings.membership.node {
            return;
        }
        let (node, address, epoch) = (owner.node, &owner.address, owner.epoch);
        match duty.work {
            Work::StandsBy => tracing::info!(%node, address, epoch, "a node works on the data"),
            Work::Works | Work::Waits => tracing::info!(
                %node, address, epoch,
                "another node works on the same data; this one waits until it is gone, and answers requests meanwhile"
            ),
        }
    }

    fn set_work(&self, work: Work, trouble: Option<String>) {
        let mut duty = self.duty.write();
        if duty.work != work {
            (duty.work, duty.since) = (work, clock::now());
        }
        duty.trouble = trouble;
    }

    /// Watches who works, for a node that never does.
    pub(super) async fn stand_by(self: Arc<Self>, stop: CancellationToken) {
        let (rows, time) = (self.store.coordination.clone(), self.settings.membership.lease);
        stop.run_until_cancelled(lease::watch(rows, time, |sight| self.see(sight))).await;
    }

    /// Waits and works in turns, until it is told to stop; then ends the work properly.
    pub(super) async fn take_turns(self: Arc<Self>, stop: CancellationToken) {
        let claim = self.settings.membership.claim();
        loop {
            let waiting = Lease::acquire(self.store.coordination.clone(), &claim, |sight| self.see(sight));
            let Some(acquired) = stop.run_until_cancelled(waiting).await else { return };
            let pause = match acquired {
                Ok(lease) => match self.work(lease, &stop).await {
                    Ended::Stopped => return,
                    Ended::Lost(error) => self.lost(&error),
                },
                Err(error) => {
                    tracing::debug!(reason = error.chain(), "could not ask whose turn it is to work");
                    ASK_AGAIN
                }
            };
            if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }

    /// Works for as long as the lease is kept.
    async fn work(self: &Arc<Self>, mut lease: Lease, stop: &CancellationToken) -> Ended {
        let (part, owner) = (self.supervisor.part(lease.deadline()), lease.owner());
        let begun = tokio::select! {
            biased;
            error = lease.keep() => Err(error),
            begun = self.begin(owner, &part) => begun,
        };
        let ended = match begun {
            Err(error) => Ended::Lost(error),
            Ok(()) => tokio::select! {
                biased;
                error = lease.keep() => Ended::Lost(error),
                () = stop.cancelled() => Ended::Stopped,
            },
        };
        let ended = match ended {
            Ended::Stopped => tokio::select! {
                biased;
                error = lease.keep() => Ended::Lost(error),
                () = self.finish_work() => Ended::Stopped,
            },
            lost @ Ended::Lost(_) => lost,
        };
        // Nothing may go on, not even what is in flight: somebody else may be at work in a moment.
        self.abandon_work(&part).await;
        if matches!(&ended, Ended::Lost(error) if error.kind() == ErrorKind::Unavailable) {
            return ended;
        }
        // The next one need not wait. Where another has taken over, this changes nothing.
        if let Err(error) = lease.release().await {
            tracing::debug!(reason = error.chain(), "could not say that this node has stopped to work");
        }
        ended
    }

    async fn begin(self: &Arc<Self>, owner: Owner, part: &crate::Supervisor) -> Result<()> {
        let epoch = owner.epoch;
        self.store.deliveries.seal(epoch).await?;
        self.start_work(part.clone()).await?;
        self.see(Sight::Works(owner));
        self.set_work(Work::Works, None);
        tracing::info!(epoch, "this node works");
        Ok(())
    }

    /// How long to wait before the next turn.
    fn lost(&self, error: &Error) -> Duration {
        let had_begun = {
            let mut duty = self.duty.write();
            duty.gone = duty.worker.take().or(duty.gone.take());
            duty.work == Work::Works
        };
        if had_begun {
            tracing::warn!(reason = error.chain(), "this node must not work any more; it waits for its turn again");
            self.set_work(Work::Waits, None);
            return Duration::ZERO;
        }
        tracing::warn!(reason = error.chain(), "this node could not begin to work; it tries again");
        self.set_work(Work::Waits, Some(error.chain()));
        BEGIN_AGAIN
    }
}
