//! Turns at the head: how everything is written that has a place in the order.
//!
//! A turn locks the one row of `head`, reads what it needs, decides, writes, and commits: two round trips. Turns of all
//! nodes follow one another, so that sequences become visible in their order and every check-then-write is serial.
//!
//! A connection that is lost between the commit and its answer leaves it open whether the turn counts. Each turn
//! therefore writes its number into the row of its writer. Who gets hold of the head after that finds the turn either
//! committed or gone for good, and reads there which.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flare_core::{Error, Result, Sequence};
use flare_toolkit::health::Backoff;
use tokio_postgres::Row;

use crate::{
    connection::Call,
    failure::Failure,
    pool::{Pool, chance, closed},
    values::{Id, Time, sequence},
};

const LOCK_HEAD: &str = "SELECT sequence, swept_to FROM head FOR UPDATE";
const MARK: &str = "INSERT INTO writers VALUES ($1, $2, now()) ON CONFLICT (id) DO UPDATE \
                    SET group_number = excluded.group_number, seen_at = excluded.seen_at";
const LAST_MARK: &str = "SELECT group_number FROM writers WHERE id = $1";
const END_BACKEND: &str =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2";

/// How often a turn is taken again after its connection was lost.
const ATTEMPTS_MAX: u32 = 3;
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(50);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(2);

/// The head, as long as a turn holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// The last sequence that was given out.
    pub sequence: Sequence,
    /// Up to here, what is replaced is not kept.
    pub swept_to: Sequence,
}

/// What a turn has decided to write, and what its caller is told once it is.
pub(crate) struct Plan<T> {
    pub calls: Vec<Call>,
    pub answer: T,
}

pub(crate) struct Writer {
    pool: Arc<Pool>,
    pub id: Id,
    /// The number of the last turn. Held during a turn: a writer has one at a time.
    turns: tokio::sync::Mutex<i64>,
    /// Nobody knows whether the last turn counts.
    is_in_doubt: AtomicBool,
}

enum Attempt<T> {
    Done(T),
    /// Nothing was written.
    Failed(Failure),
    /// The commit was sent, and its answer was lost.
    Unknown {
        answer: T,
        backend: (i32, Time),
        failure: Failure,
    },
}

impl Writer {
    pub fn new(pool: Arc<Pool>, id: Id) -> Self {
        Self { pool, id, turns: tokio::sync::Mutex::new(0), is_in_doubt: AtomicBool::new(false) }
    }

    /// Why no turn can be had now, if that is known beforehand.
    pub fn check(&self) -> Result<()> {
        if self.pool.is_closed() {
            return Err(closed());
        }
        if self.is_in_doubt.load(Ordering::Acquire) {
            let reason = self.pool.health.trouble().unwrap_or_else(|| "it does not answer".into());
            return Err(Error::unavailable(format!("the outcome of the last write is not known yet: {reason}")));
        }
        Ok(())
    }

    /// Takes a turn: `decide` sees the head and the rows of `reads`. It may be asked several times.
    pub async fn turn<T>(
        &self,
        reads: &[Call],
        mut decide: impl FnMut(Head, Vec<Vec<Row>>) -> Result<Plan<T>>,
    ) -> Result<T> {
        self.check()?;
        let waiting = tokio::time::timeout(self.pool.session.timeout, self.turns.lock());
        let Ok(mut number) = waiting.await else {
            return Err(Error::unavailable(format!("PostgreSQL at {} is busy with writes", self.pool.address.name)));
        };
        let mut attempts = 0;
        loop {
            *number += 1;
            attempts += 1;
            let failure = match self.attempt(*number, reads, &mut decide).await {
                Attempt::Done(answer) => {
                    self.pool.health.is_well();
                    return Ok(answer);
                }
                Attempt::Failed(failure) if !failure.is_worth_another_connection() => {
                    return self.pool.note(Err(failure));
                }
                Attempt::Failed(failure) => failure,
                Attempt::Unknown { answer, backend, failure } => {
                    if self.find_out(*number, backend).await? {
                        return Ok(answer);
                    }
                    failure
                }
            };
            if attempts >= ATTEMPTS_MAX {
                return self.pool.note(Err(failure));
            }
        }
    }

    async fn attempt<T>(
        &self,
        number: i64,
        reads: &[Call],
        decide: &mut impl FnMut(Head, Vec<Vec<Row>>) -> Result<Plan<T>>,
    ) -> Attempt<T> {
        let mut lease = match self.pool.lease().await {
            Ok(lease) => lease,
            Err(error) => return Attempt::Failed(Failure::Refused(error)),
        };
        lease.begin();
        let lock = Call::new(LOCK_HEAD);
        let calls: Vec<&Call> = std::iter::once(&lock).chain(reads).collect();
        let read = async {
            let mut rows = lease.connection().pipeline(Some("BEGIN"), &calls, None).await?.all()?;
            let head = rows.remove(0);
            let head = head.first().ok_or_else(|| Error::internal("the head of the store is gone"))?;
            let head = Head { sequence: sequence(head.try_get(0)?), swept_to: sequence(head.try_get(1)?) };
            Ok::<_, Failure>(decide(head, rows)?)
        };
        let plan = match read.await {
            Ok(plan) => plan,
            Err(failure) => {
                if failure.is_answer() && lease.connection().run("ROLLBACK").await.is_ok() {
                    lease.end();
                }
                return Attempt::Failed(failure);
            }
        };
        if plan.calls.is_empty() {
            if lease.connection().run("ROLLBACK").await.is_ok() {
                lease.end();
            }
            return Attempt::Done(plan.answer);
        }
        let mark = Call::new(MARK).with(self.id).with(number);
        let calls: Vec<&Call> = plan.calls.iter().chain(std::iter::once(&mark)).collect();
        let ran = match lease.connection().pipeline(None, &calls, Some("COMMIT")).await {
            Ok(ran) => ran.all(),
            Err(failure) => Err(failure),
        };
        match ran {
            Ok(_) => {
                lease.end();
                Attempt::Done(plan.answer)
            }
            // The server has said no to a statement, and so the commit has undone the rest.
            Err(failure) if failure.is_answer() => {
                // Unless it was never sent, because a statement could not be prepared.
                if lease.connection().run("ROLLBACK").await.is_ok() {
                    lease.end();
                }
                Attempt::Failed(failure)
            }
            Err(failure) => Attempt::Unknown { answer: plan.answer, backend: lease.connection().backend, failure },
        }
    }

    /// Whether the turn counts, as soon as the server can be asked.
    async fn find_out(&self, number: i64, backend: (i32, Time)) -> Result<bool> {
        let mut backoff = Backoff::new(LOOK_AGAIN_MIN, LOOK_AGAIN_MAX);
        loop {
            match self.look(number, backend).await {
                Ok(counts) => {
                    self.is_in_doubt.store(false, Ordering::Release);
                    tracing::info!(counts, "found out whether a write counts whose answer was lost");
                    return Ok(counts);
                }
                Err(error) if self.pool.is_closed() => {
                    return Err(
                        Error::internal("the store was closed before the outcome of a write was known").because(error)
                    );
                }
                Err(_) => self.is_in_doubt.store(true, Ordering::Release),
            }
            tokio::time::sleep(backoff.next(chance())).await;
        }
    }

    async fn look(&self, number: i64, (process, since): (i32, Time)) -> Result<bool> {
        let mut lease = self.pool.lease().await?;
        let connection = lease.connection();
        // The lost connection may still hold the head. It is no use to anybody; if it may not be ended, it times out.
        let _may_be_gone = connection.query(&Call::new(END_BACKEND).with(process).with(since)).await;
        let (lock, mark) = (Call::new(LOCK_HEAD), Call::new(LAST_MARK).with(self.id));
        let outcome = async {
            // Each is a transaction of its own, but the first one waits until the lost one has ended.
            let rows = connection.pipeline(None, &[&lock, &mark], None).await?.all()?;
            let last = rows[1].first().map(|row| row.try_get::<_, i64>(0)).transpose()?;
            Ok(last.is_some_and(|last| last >= number))
        };
        let outcome = outcome.await;
        lease.note(&outcome);
        self.pool.note(outcome)
    }

    /// Waits for the turn under way.
    pub async fn rest(&self) {
        drop(self.turns.lock().await);
    }
}
