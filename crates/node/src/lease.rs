//! One node at a time works on data that several nodes can reach.
//!
//! A row of the store names the owner. The owner writes a new beat into it before its time is over, and counts its time
//! from before it asked. Whoever waits takes the row when it has seen the same beat for longer than any owner's time
//! lasts, by its own clock: no clocks of two machines are compared. An owner on the same machine whose process has ended
//! is not waited for. A new owner has a new epoch, with which it seals the store against what the old one may still send.

mod process;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use flare_core::{
    Error, ErrorKind, Result,
    port::{AgreedRow, Agreement, Coordination},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock;
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
    /// Drawn anew by each process.
    pub node: Uuid,
    /// The URL under which other nodes reach it.
    pub address: String,
    /// What other nodes show when they send a request on.
    pub secret: Password,
    /// How long it owns the data without being heard of.
    pub time: Duration,
}

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Password(String);

impl Password {
    /// One that nobody can guess.
    pub fn generate() -> Result<Self> {
        let mut random = [0; 32];
        getrandom::fill(&mut random)
            .map_err(|error| Error::internal("the system gave no random bytes for a secret").because(error))?;
        Ok(Self(random.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether the text is this one; how long that takes does not tell how much of it is right.
    pub fn is(&self, text: &[u8]) -> bool {
        !self.0.is_empty() && aws_lc_rs::constant_time::verify_slices_are_equal(self.0.as_bytes(), text).is_ok()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// The node that works, as it says itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    pub node: Uuid,
    pub address: String,
    pub secret: Password,
    pub epoch: u64,
    /// Its last beat, by its own clock.
    pub heard_at: Timestamp,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Row {
    node: Uuid,
    address: String,
    #[serde(default)]
    secret: Password,
    epoch: u64,
    beat: u64,
    /// How long it may be silent, as it was told.
    #[serde(default)]
    time_ms: u64,
    /// When it beat, for people: nobody reckons with it.
    #[serde(default)]
    at_ms: i64,
    /// The owner has left.
    free: bool,
    /// The process of the owner, where it is known.
    process: Option<ProcessId>,
}

/// What one who does not work sees of the one who does.
#[derive(Clone, Debug)]
pub enum Sight {
    /// Nobody has ever worked.
    Nobody,
    Works(Owner),
    /// It has left, has ended, or was not heard of for too long.
    Gone(Owner),
}

/// The right to work, as long as it is kept.
pub struct Lease {
    coordination: Arc<dyn Coordination>,
    row: Row,
    version: u64,
    time: Duration,
    /// On the clock of [`now`].
    deadline: Duration,
    shared_deadline: Deadline,
}

/// Until when an owner may work, for all who work for it: a process that was suspended learns of it here first.
#[derive(Clone, Debug)]
pub(crate) struct Deadline(Arc<AtomicU64>);

impl Deadline {
    /// Of one who has the data to itself.
    pub fn never() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }

    fn set(&self, at: Duration) {
        self.0.store(u64::try_from(at.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
    }

    #[cfg(test)]
    pub fn pass(&self) {
        self.set(now());
    }

    pub fn is_over(&self) -> bool {
        match self.0.load(Ordering::Acquire) {
            u64::MAX => false,
            at => now() >= Duration::from_millis(at),
        }
    }
}

impl Default for Deadline {
    fn default() -> Self {
        Self::never()
    }
}

/// Looks at the row, and remembers since when it is as it is.
struct Watch {
    coordination: Arc<dyn Coordination>,
    time: Duration,
    seen: Option<(Row, Duration)>,
}

impl Watch {
    fn new(coordination: Arc<dyn Coordination>, time: Duration) -> Self {
        Self { coordination, time, seen: None }
    }

    /// What is there, and the version of the row.
    async fn look(&mut self) -> Result<(Sight, Option<u64>)> {
        let Some((row, version)) = read(&*self.coordination).await? else { return Ok((Sight::Nobody, None)) };
        let now_at = now();
        if self.seen.as_ref().is_none_or(|(before, _)| *before != row) {
            self.seen = Some((row.clone(), now_at));
        }
        let first_seen = self.seen.as_ref().map_or(now_at, |(_, at)| *at);
        // One who was told another time than this node is not followed too early.
        let time = self.time.max(Duration::from_millis(row.time_ms));
        let is_gone = row.is_over() || now_at - first_seen >= patience(time);
        let owner = row.owner();
        Ok((if is_gone { Sight::Gone(owner) } else { Sight::Works(owner) }, Some(version)))
    }

    async fn pause(&self) {
        tokio::time::sleep((self.time / LOOK_PARTS).min(LOOK_MAX)).await;
    }
}

/// Tells `sees` of the one who works, again and again, for one who never does. While the store cannot be asked, nothing
/// is told.
pub async fn watch(coordination: Arc<dyn Coordination>, time: Duration, mut sees: impl FnMut(Sight)) {
    let mut watch = Watch::new(coordination, time);
    loop {
        if let Ok((sight, _)) = watch.look().await {
            sees(sight);
        }
        watch.pause().await;
    }
}

impl Lease {
    /// Waits until nobody else works on the data. `sees` is told of the one who does, again and again.
    pub async fn acquire(
        coordination: Arc<dyn Coordination>,
        claim: &Claim,
        mut sees: impl FnMut(Sight),
    ) -> Result<Self> {
        let mut watch = Watch::new(coordination.clone(), claim.time);
        loop {
            let (sight, version) = watch.look().await?;
            let epoch = match &sight {
                Sight::Nobody => 1,
                Sight::Works(owner) if owner.node != claim.node => {
                    sees(sight);
                    watch.pause().await;
                    continue;
                }
                Sight::Works(owner) | Sight::Gone(owner) => owner.epoch + 1,
            };
            sees(sight);
            let asked_at = now();
            let row = Row {
                node: claim.node,
                address: claim.address.clone(),
                secret: claim.secret.clone(),
                epoch,
                beat: 0,
                time_ms: u64::try_from(claim.time.as_millis()).unwrap_or(u64::MAX),
                at_ms: clock::now().as_millisecond(),
                free: false,
                process: ProcessId::own(),
            };
            // What is refused or unknown is found out by reading again; one's own row is taken once more.
            if let Agreement::Applied(version) = coordination.compare_and_set(KEY, version, row.bytes()?).await? {
                let (deadline, shared_deadline) = (asked_at + working_time(claim.time), Deadline::never());
                shared_deadline.set(deadline);
                return Ok(Self { coordination, row, version, time: claim.time, deadline, shared_deadline });
            }
        }
    }

    /// The number of this ownership: newer ones have larger ones.
    pub fn epoch(&self) -> u64 {
        self.row.epoch
    }

    pub fn owner(&self) -> Owner {
        self.row.owner()
    }

    /// Moves on with every beat.
    pub(crate) fn deadline(&self) -> Deadline {
        self.shared_deadline.clone()
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
            let beat = Row { beat: self.row.beat + 1, at_ms: clock::now().as_millisecond(), ..self.row.clone() };
            let left = self.deadline - asked_at;
            let call = self.coordination.compare_and_set(KEY, Some(self.version), beat.bytes()?);
            match tokio::time::timeout(left, call).await {
                Ok(Ok(Agreement::Applied(version))) => {
                    (self.row, self.version) = (beat, version);
                    self.deadline = asked_at + working_time(self.time);
                    self.shared_deadline.set(self.deadline);
                    return Ok(());
                }
                Ok(Ok(Agreement::Refused(found))) => self.adopt(found.as_ref().map(Row::of).transpose()?)?,
                Ok(Ok(Agreement::Unknown)) | Err(_) => {}
                Ok(Err(error)) if error.kind() == ErrorKind::Unavailable => {}
                Ok(Err(error)) => return Err(error),
            }
            tokio::time::sleep(Duration::from_millis(100).min(self.deadline.saturating_sub(now()))).await;
            let left = self.deadline.saturating_sub(now());
            if let Ok(Ok(found @ Some(_))) = tokio::time::timeout(left, read(&*self.coordination)).await {
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
        let row = Row { free: true, at_ms: clock::now().as_millisecond(), ..self.row.clone() };
        self.coordination.compare_and_set(KEY, Some(self.version), row.bytes()?).await.map(drop)
    }
}

impl Row {
    fn owner(&self) -> Owner {
        Owner {
            node: self.node,
            address: self.address.clone(),
            secret: self.secret.clone(),
            epoch: self.epoch,
            heard_at: Timestamp::from_millisecond(self.at_ms).unwrap_or_default(),
        }
    }

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
