//! One node at a time works on data that several nodes can reach.
//!
//! A row of the store names the owner. The owner writes a new beat into it before its time is over, and counts its time
//! from before it asked. Whoever waits takes the row when it has seen the same beat for longer than any owner's time
//! lasts, by its own clock: no clocks of two machines are compared. An owner on the same machine whose process has ended is
//! not waited for. A new owner has a new epoch, with which it seals the
//! store against what the old one may still send.

mod process;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use flare_core::{
    Error, ErrorKind, Result,
    port::{AgreedRow, Agreement, Coordination},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use process::ProcessId;

/// The row.
const KEY: &str = "worker";
/// An owner stops so long before its time is over, in parts of it.
const MARGIN_PARTS: u32 = 10;
/// Beats in the time of an owner.
const BEATS: u32 = 3;
/// Clocks may run at different speeds: a hundredth each.
const CLOCK_RATE_PARTS: u32 = 50;
const WAIT_MORE: Duration = Duration::from_millis(500);
/// How often one who waits looks, in parts of the time.
const LOOK_PARTS: u32 = 20;
const LOOK_MAX: Duration = Duration::from_secs(1);

/// What this node says about itself.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Where it can be reached, for people.
    pub address: String,
    /// How long it owns the data without being heard of.
    pub time: Duration,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Row {
    /// Drawn anew by each process.
    node: Uuid,
    address: String,
    epoch: u64,
    beat: u64,
    /// The owner has left.
    free: bool,
    /// The process of the owner, where it is known.
    process: Option<ProcessId>,
}

/// The right to work, as long as it is kept.
pub struct Lease {
    coordination: Arc<dyn Coordination>,
    row: Row,
    version: u64,
    time: Duration,
    /// On the clock of [`now`].
    deadline: Duration,
}

impl Lease {
    /// Waits until nobody else works on the data. `waits` is told once of each owner that it waits for.
    pub async fn acquire(
        coordination: Arc<dyn Coordination>,
        claim: Claim,
        mut waits: impl FnMut(&str),
    ) -> Result<Self> {
        let node = Uuid::now_v7();
        let mut seen: Option<(Row, Duration)> = None;
        loop {
            let found = read(&*coordination).await?;
            let now_at = now();
            let (epoch, version) = match &found {
                None => (1, None),
                Some((row, version)) if row.is_over() || row.node == node => (row.epoch + 1, Some(*version)),
                Some((row, version)) => {
                    let is_same = seen.as_ref().is_some_and(|(before, _)| before == row);
                    if !is_same {
                        if seen.as_ref().is_none_or(|(before, _)| before.node != row.node) {
                            waits(&row.address);
                        }
                        seen = Some((row.clone(), now_at));
                    }
                    let first_seen = seen.as_ref().map_or(now_at, |(_, at)| *at);
                    if now_at - first_seen < patience(claim.time) {
                        tokio::time::sleep((claim.time / LOOK_PARTS).min(LOOK_MAX)).await;
                        continue;
                    }
                    (row.epoch + 1, Some(*version))
                }
            };
            let address = claim.address.clone();
            let row = Row { node, address, epoch, beat: 0, free: false, process: ProcessId::own() };
            let asked_at = now();
            // What is refused or unknown is found out by reading again; one's own row is taken once more.
            if let Agreement::Applied(version) = coordination.compare_and_set(KEY, version, row.bytes()?).await? {
                let deadline = asked_at + working_time(claim.time);
                return Ok(Self { coordination, row, version, time: claim.time, deadline });
            }
        }
    }

    /// The number of this ownership: newer ones have larger ones.
    pub fn epoch(&self) -> u64 {
        self.row.epoch
    }

    /// Keeps the lease for as long as it can; returns when this node must not work any more.
    pub async fn keep(&mut self) -> Error {
        loop {
            tokio::time::sleep(self.time / BEATS).await;
            if let Err(error) = self.renew().await {
                return error;
            }
        }
    }

    async fn renew(&mut self) -> Result<()> {
        loop {
            let asked_at = now();
            if asked_at >= self.deadline {
                return Err(Error::unavailable("the store could not be told in time that this node still works"));
            }
            let beat = Row { beat: self.row.beat + 1, ..self.row.clone() };
            let left = self.deadline - asked_at;
            let call = self.coordination.compare_and_set(KEY, Some(self.version), beat.bytes()?);
            match tokio::time::timeout(left, call).await {
                Ok(Ok(Agreement::Applied(version))) => {
                    (self.row, self.version) = (beat, version);
                    self.deadline = asked_at + working_time(self.time);
                    return Ok(());
                }
                Ok(Ok(Agreement::Refused(found))) => self.adopt(found.as_ref().map(Row::of).transpose()?)?,
                Ok(Ok(Agreement::Unknown)) | Err(_) => {}
                Ok(Err(error)) if error.kind() == ErrorKind::Unavailable => {}
                Ok(Err(error)) => return Err(error),
            }
            tokio::time::sleep(Duration::from_millis(100).min(self.deadline.saturating_sub(now()))).await;
            if let Ok(found @ Some(_)) = read(&*self.coordination).await {
                self.adopt(found)?;
            }
        }
    }

    /// A beat whose answer was lost may have arrived. It does not prolong anything.
    fn adopt(&mut self, found: Option<(Row, u64)>) -> Result<()> {
        match found {
            Some((row, version)) if row.node == self.row.node && row.epoch == self.row.epoch => {
                (self.row, self.version) = (row, version);
                Ok(())
            }
            Some((row, _)) => Err(Error::conflict(format!("the node at {} has taken over", row.address))),
            None => Err(Error::conflict("the row that names the owner is gone")),
        }
    }

    /// Lets the next one work at once. This node must have stopped before.
    pub async fn release(&mut self) -> Result<()> {
        let row = Row { free: true, ..self.row.clone() };
        self.coordination.compare_and_set(KEY, Some(self.version), row.bytes()?).await.map(drop)
    }
}

impl Row {
    /// Nobody works any more, for certain.
    fn is_over(&self) -> bool {
        self.free || self.process.as_ref().is_some_and(ProcessId::has_ended)
    }

    fn bytes(&self) -> Result<Bytes> {
        serde_json::to_vec(self)
            .map(Bytes::from)
            .map_err(|error| Error::internal("could not write the owner of the data").because(error))
    }

    /// The row and its version.
    fn of(found: &AgreedRow) -> Result<(Self, u64)> {
        let row = serde_json::from_slice(&found.value)
            .map_err(|error| Error::internal("the row that names the owner of the data is damaged").because(error))?;
        Ok((row, found.version))
    }
}

async fn read(coordination: &dyn Coordination) -> Result<Option<(Row, u64)>> {
    coordination.get(KEY).await?.as_ref().map(Row::of).transpose()
}

/// How long an owner works after it has asked.
fn working_time(time: Duration) -> Duration {
    time - time / MARGIN_PARTS
}

/// How long the same beat must be seen before its owner counts as gone.
fn patience(time: Duration) -> Duration {
    time + time / CLOCK_RATE_PARTS + WAIT_MORE
}

/// Time that goes on while the machine sleeps.
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests;
