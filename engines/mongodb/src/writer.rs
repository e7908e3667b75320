//! Where all writes of this node go that have to be decided on: one group after another.
//!
//! Callers wait; what has gathered while a group is on its way is the next one. A group is decided on what this node knows
//! ([`crate::cache`]), which holds if the commit does: otherwise somebody else has written, and the group is decided on
//! anew. When a commit is not answered, its callers wait until it is known what became of it, and nobody else can write
//! in the meantime: they are told so at once.

mod documents;
mod entities;

use std::{sync::Arc, time::Duration};

use flare_core::{
    Error, Result, Sequence,
    document::{Change, DocumentWrite, Written},
};
use flare_toolkit::{
    batch::{BatchLimits, Batcher},
    follow::Follower,
    health::Backoff,
};
use mongodb::bson::RawDocumentBuf;
use tokio::{
    sync::{Mutex, oneshot},
    time::Instant,
};

use crate::{
    cache::Cache,
    connection::{Connection, Failure},
    log::{Group, Log, Outcome, Position},
    spawn,
};
pub(crate) use entities::{EntityWrite, made_by};

const LIMITS: BatchLimits = BatchLimits { jobs_max: 1024, weight_max: 4 << 20, waiting_max: 8192, lanes: 1 };
/// How long to wait before a group is decided on anew.
const CONFLICT_WAIT_MIN: Duration = Duration::from_millis(1);
const CONFLICT_WAIT_MAX: Duration = Duration::from_millis(50);

/// One call.
pub(crate) enum Job {
    Documents(Vec<DocumentWrite>),
    Entity(EntityWrite),
}

/// What a call comes to.
#[derive(Clone, Debug)]
pub(crate) enum Done {
    Written(Vec<Written>),
    Entity,
    /// The same request has made this before.
    MadeBefore([u8; 16]),
    /// Entities have changed since the caller looked.
    Outdated,
}

/// The answer of a call, or a promise of it while nobody knows.
enum Promise {
    Now(Done),
    Later(oneshot::Receiver<Result<Done>>),
}

/// A group, and what its callers are told once it is committed.
struct Plan {
    group: Group,
    changes: Vec<Arc<Change>>,
    answers: Vec<Result<Done>>,
    /// What becomes known by it.
    learnt: documents::Learnt,
    /// How far the sequences are, if it is time to note it.
    clock_row: Option<RawDocumentBuf>,
}

struct Unresolved {
    plan: Plan,
    callers: Vec<oneshot::Sender<Result<Done>>>,
    cause: Error,
}

#[derive(Default)]
struct State {
    /// Where the store is, if nobody else has written.
    position: Option<Position>,
    cache: Cache,
    unresolved: Option<Unresolved>,
    is_closed: bool,
}

impl State {
    fn forget(&mut self) {
        self.position = None;
        self.cache.forget_all();
    }
}

pub(crate) struct Writer {
    connection: Arc<Connection>,
    log: Arc<Log>,
    follower: Arc<Follower>,
    state: Mutex<State>,
}

/// The way into the writer.
pub(crate) struct WriteLane {
    writer: Arc<Writer>,
    batcher: Batcher<Job, Promise>,
}

impl WriteLane {
    pub fn start(connection: Arc<Connection>, log: Arc<Log>, follower: Arc<Follower>) -> Self {
        let writer = Arc::new(Writer { connection, log, follower, state: Mutex::default() });
        let running = writer.clone();
        let batcher = Batcher::start(LIMITS, move |jobs| {
            let writer = running.clone();
            async move { writer.run(jobs).await }
        });
        Self { writer, batcher }
    }

    pub async fn write(&self, job: Job) -> Result<Done> {
        let weight = job.weight();
        match self.batcher.run(job, weight).await? {
            Promise::Now(done) => Ok(done),
            Promise::Later(answer) => {
                answer.await.map_err(|_| Error::internal("a write was left without an answer"))?
            }
        }
    }

    /// Finds out what became of a group that was not answered, if there is one, and puts in its place what others have
    /// left half done.
    pub async fn repair(&self) -> Result<()> {
        let mut state = self.writer.state.lock().await;
        self.writer.settle(&mut state).await?;
        self.writer.log.recover().await.map(drop)
    }

    /// Answers those who wait for a group whose outcome is not known, as soon as it is.
    pub async fn settle(&self) -> Result<()> {
        match self.writer.state.try_lock() {
            Ok(mut state) => self.writer.settle(&mut state).await,
            // Somebody is at it.
            Err(_) => Ok(()),
        }
    }

    /// Takes no more writes. Those who wait for the outcome of their last one are told it if it can be known now.
    pub async fn close(&self) {
        let mut state = self.writer.state.lock().await;
        if let Err(error) = self.writer.settle(&mut state).await {
            tracing::warn!(reason = error.chain(), "the store is closed, and it is not known what became of a write");
        }
        state.is_closed = true;
    }
}

impl Job {
    fn weight(&self) -> usize {
        match self {
            Self::Documents(writes) => writes.iter().map(documents::weight).sum(),
            Self::Entity(_) => 1,
        }
    }
}

impl Writer {
    async fn run(&self, jobs: Vec<Job>) -> Result<Vec<Result<Promise>>> {
        let mut state = self.state.lock().await;
        if state.is_closed {
            return Err(Error::unavailable("the store is closed"));
        }
        if state.unresolved.is_some()
            && let Some(trouble) = self.connection.health.trouble()
        {
            // It is looked for in the background.
            return Err(Error::unavailable(trouble));
        }
        self.settle(&mut state).await?;
        let mut promises = Vec::with_capacity(jobs.len());
        let mut documents = Vec::new();
        for job in jobs {
            match job {
                Job::Documents(writes) => documents.push(writes),
                Job::Entity(write) => {
                    self.write_documents(&mut state, &mut documents, &mut promises).await;
                    promises.extend(self.write_group(&mut state, &Work::Entity(write)).await);
                }
            }
        }
        self.write_documents(&mut state, &mut documents, &mut promises).await;
        Ok(promises)
    }

    async fn write_documents(
        &self,
        state: &mut State,
        jobs: &mut Vec<Vec<DocumentWrite>>,
        promises: &mut Vec<Result<Promise>>,
    ) {
        if !jobs.is_empty() {
            let work = Work::Documents(std::mem::take(jobs));
            promises.extend(self.write_group(state, &work).await);
        }
    }

    /// Decides on a group and commits it, until nobody else was faster.
    async fn write_group(&self, state: &mut State, work: &Work) -> Vec<Result<Promise>> {
        let deadline = Instant::now() + self.connection.timeout;
        let mut backoff = Backoff::new(CONFLICT_WAIT_MIN, CONFLICT_WAIT_MAX);
        loop {
            match self.try_group(state, work).await {
                Ok(Some(promises)) => return promises,
                Ok(None) if Instant::now() < deadline => {
                    state.forget();
                    tokio::time::sleep(backoff.next(chance())).await;
                }
                Ok(None) => return work.fail(&Error::unavailable("other nodes write all the time; try again")),
                Err(error) => {
                    state.forget();
                    return work.fail(&error);
                }
            }
        }
    }

    /// None if somebody else has written in between.
    async fn try_group(&self, state: &mut State, work: &Work) -> Result<Option<Vec<Result<Promise>>>> {
        if state.unresolved.is_some() {
            return Err(Error::unavailable("it is not known yet what became of the last write"));
        }
        let position = match state.position {
            Some(position) => position,
            None => *state.position.insert(self.log.recover().await?),
        };
        let plan = match work {
            Work::Documents(jobs) => self.plan_documents(&mut state.cache, position, jobs).await?,
            Work::Entity(write) => self.plan_entity(position, write).await?,
        };
        if plan.group.rows.is_empty() {
            let holds = self.log.is_still(position.version).await?;
            return Ok(holds.then(|| promise(plan.answers)));
        }
        match self.commit(&plan).await {
            Ok(true) => Ok(Some(promise(self.told(state, plan)))),
            Ok(false) => Ok(None),
            Err(Failure::NotDone(error)) => Err(error),
            Err(Failure::Unknown(cause)) => {
                state.forget();
                let (callers, answers): (Vec<_>, Vec<_>) = plan.answers.iter().map(|_| oneshot::channel()).unzip();
                state.unresolved = Some(Unresolved { plan, callers, cause });
                Ok(Some(answers.into_iter().map(|answer| Ok(Promise::Later(answer))).collect()))
            }
        }
    }

    /// Once the group is committed, all failures are of the unknown kind: nobody is told that nothing was written.
    async fn commit(&self, plan: &Plan) -> Result<bool, Failure> {
        if !self.log.commit(&plan.group).await? {
            return Ok(false);
        }
        let applied = self.log.apply(&plan.group.rows).await;
        applied.map_err(|failure| Failure::Unknown(failure.into_error()))?;
        // The others learn of it from this note. Without it they would find out later.
        let (log, position) = (self.log.clone(), plan.group.position());
        spawn(async move {
            if let Err(Failure::NotDone(error) | Failure::Unknown(error)) = log.mark_applied(position).await {
                tracing::debug!(reason = error.chain(), "could not note what is applied");
            }
        });
        Ok(true)
    }

    /// The group is committed: remembers what it means, and tells the listener before the callers.
    fn told(&self, state: &mut State, plan: Plan) -> Vec<Result<Done>> {
        state.position = Some(plan.group.position());
        plan.learnt.teach(&mut state.cache);
        self.follower.committed(plan.group.base.sequence, plan.changes);
        plan.answers
    }

    /// Finds out what became of the group that was not answered. `Unavailable` while nobody knows.
    async fn settle(&self, state: &mut State) -> Result<()> {
        let Some(unresolved) = &state.unresolved else { return Ok(()) };
        let outcome = self.log.outcome(&unresolved.plan.group).await?;
        let Some(Unresolved { plan, callers, cause }) = state.unresolved.take() else { return Ok(()) };
        let answers = match outcome {
            Outcome::Committed => {
                let answers = self.told(state, plan);
                // Others may have written since.
                state.forget();
                answers
            }
            Outcome::Lost => plan.answers.into_iter().map(|answer| answer.and(Err(cause.clone()))).collect(),
            Outcome::Forgotten => {
                let unknown = Error::internal("it cannot be known any more what became of a write").because(cause);
                plan.answers.into_iter().map(|answer| answer.and(Err(unknown.clone()))).collect()
            }
        };
        for (caller, answer) in callers.into_iter().zip(answers) {
            // A caller that is gone needs no answer.
            let _gone = caller.send(answer);
        }
        Ok(())
    }
}

/// What one group is made of.
enum Work {
    Documents(Vec<Vec<DocumentWrite>>),
    Entity(EntityWrite),
}

impl Work {
    fn fail(&self, error: &Error) -> Vec<Result<Promise>> {
        let calls = match self {
            Self::Documents(jobs) => jobs.len(),
            Self::Entity(_) => 1,
        };
        (0..calls).map(|_| Err(error.clone())).collect()
    }
}

fn promise(answers: Vec<Result<Done>>) -> Vec<Result<Promise>> {
    answers.into_iter().map(|answer| answer.map(Promise::Now)).collect()
}

/// A number between 0 and 1, never the same for two nodes.
pub(crate) fn chance() -> f64 {
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}

impl Plan {
    fn new(position: Position) -> Self {
        Self {
            group: Group::new(position),
            changes: Vec::new(),
            answers: Vec::new(),
            learnt: documents::Learnt::default(),
            clock_row: None,
        }
    }

    fn next_sequence(&mut self) -> Sequence {
        self.group.sequence = self.group.sequence.next();
        self.group.sequence
    }
}

#[cfg(test)]
mod tests;
