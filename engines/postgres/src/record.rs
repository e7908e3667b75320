//! Recording progress: many steps, folded to the last of each, in one transaction and one round trip.
//!
//! The transaction begins by asking whether this node is still the owner, and by counting itself: what was sent on a
//! connection that is given up, and comes through after all, is refused, because a later record has been counted.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use flare_core::{
    DocumentNumber, OutletId, Result, Sequence,
    delivery::{AttemptRecord, DeadLetter},
    document::{Progress, Retry, Version},
};
use flare_toolkit::rows;
use jiff::Timestamp;

use crate::{
    Inner,
    connection::Call,
    failure::Failure,
    values::{Id, Json, Number, Time, Url, bigint},
};

const BEGIN: &str = "SELECT begin_record($1, $2, $3)";
const VERSIONS: &str = "INSERT INTO versions AS v SELECT * \
    FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::numeric[], $5::boolean[]) \
    AS n (outlet, number, sequence, revision, deleted) \
    WHERE EXISTS (SELECT 1 FROM cursors c WHERE c.outlet = n.outlet) ON CONFLICT (outlet, number) DO UPDATE \
    SET sequence = excluded.sequence, revision = excluded.revision, deleted = excluded.deleted \
    WHERE v.sequence <= excluded.sequence";
const VERSIONS_BACK: &str = "INSERT INTO versions SELECT * \
    FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::numeric[], $5::boolean[]) \
    AS n (outlet, number, sequence, revision, deleted) \
    WHERE EXISTS (SELECT 1 FROM cursors c WHERE c.outlet = n.outlet) ON CONFLICT (outlet, number) DO UPDATE \
    SET sequence = excluded.sequence, revision = excluded.revision, deleted = excluded.deleted";
const CURSORS: &str = "UPDATE cursors c SET cursor = n.cursor \
    FROM unnest($1::uuid[], $2::bigint[]) AS n (outlet, cursor) WHERE c.outlet = n.outlet";
const DEMANDS: &str = "UPDATE cursors c SET demand = n.demand \
    FROM unnest($1::uuid[], $2::bigint[]) AS n (outlet, demand) WHERE c.outlet = n.outlet";
const FAILING: &str = "UPDATE cursors c SET failing_since = n.since \
    FROM unnest($1::uuid[], $2::timestamptz[]) AS n (outlet, since) WHERE c.outlet = n.outlet";
const RETRIES: &str = "INSERT INTO retries SELECT * \
    FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::integer[], $5::timestamptz[]) \
    AS n (outlet, number, url, attempts, due) \
    WHERE EXISTS (SELECT 1 FROM cursors c WHERE c.outlet = n.outlet) ON CONFLICT (outlet, number) DO UPDATE \
    SET url = excluded.url, attempts = excluded.attempts, due = excluded.due";
const SETTLED: &str = "DELETE FROM retries r USING unnest($1::uuid[], $2::bigint[]) AS n (outlet, number) \
    WHERE r.outlet = n.outlet AND r.number = n.number";
const DEAD_LETTERS: &str = "INSERT INTO dead_letters SELECT * \
    FROM unnest($1::uuid[], $2::bigint[], $3::json[]) AS n (outlet, sequence, body) \
    WHERE EXISTS (SELECT 1 FROM cursors c WHERE c.outlet = n.outlet) \
    ON CONFLICT (outlet, sequence) DO UPDATE SET body = excluded.body";
const ATTEMPTS: &str = "INSERT INTO attempts SELECT * \
    FROM unnest($1::uuid[], $2::timestamptz[], $3::bytea[]) AS n (outlet, at, body) \
    WHERE EXISTS (SELECT 1 FROM cursors c WHERE c.outlet = n.outlet) \
    ON CONFLICT (outlet, at) DO UPDATE SET body = excluded.body";

/// How often a record is sent again after its connection was lost.
const ATTEMPTS_MAX: u32 = 3;

/// What one caller records, as the owner of this epoch.
pub(crate) struct Job {
    pub epoch: u64,
    pub progress: Vec<Progress>,
}

/// Records the jobs of one batch, in order, and answers each.
pub(crate) async fn record_all(inner: &Arc<Inner>, jobs: Vec<Job>) -> Result<Vec<Result<()>>> {
    let mut answers = Vec::with_capacity(jobs.len());
    let mut jobs = jobs.into_iter().peekable();
    while let Some(first) = jobs.next() {
        let epoch = first.epoch;
        let mut steps = Steps::default();
        first.progress.into_iter().for_each(|step| steps.add(step));
        let mut count = 1;
        // What was handed in under another epoch is judged by itself.
        while let Some(next) = jobs.next_if(|next| next.epoch == epoch) {
            next.progress.into_iter().for_each(|step| steps.add(step));
            count += 1;
        }
        let outcome = record(inner, epoch, &steps).await;
        answers.extend((0..count).map(|_| outcome.clone()));
    }
    Ok(answers)
}

async fn record(inner: &Inner, epoch: u64, steps: &Steps) -> Result<()> {
    let calls = steps.calls()?;
    for attempt in 1.. {
        let number = inner.records.fetch_add(1, Ordering::Relaxed) + 1;
        let begin = Call::new(BEGIN).with(inner.writer.id).with(number).with(bigint(Sequence(epoch)));
        let outcome = transact(inner, &begin, &calls).await;
        match outcome {
            // All of it may be written twice.
            Err(failure) if attempt < ATTEMPTS_MAX && failure.is_worth_another_connection() => {}
            outcome => return inner.pool.note(outcome),
        }
    }
    Ok(())
}

async fn transact(inner: &Inner, begin: &Call, calls: &[Call]) -> Result<(), Failure> {
    let mut lease = inner.pool.lease().await?;
    lease.begin();
    let calls: Vec<&Call> = std::iter::once(begin).chain(calls).collect();
    let outcome = match lease.connection().pipeline(Some("BEGIN"), &calls, Some("COMMIT")).await {
        Ok(ran) => ran.all().map(drop),
        Err(failure) => Err(failure),
    };
    // Whether it was committed or undone, the transaction has ended.
    if outcome.as_ref().map_or_else(Failure::is_answer, |()| true) {
        lease.end();
    }
    outcome
}

/// Progress, folded to the last of each kind. The order of the keys keeps two nodes from waiting for each other.
#[derive(Default)]
struct Steps {
    versions: BTreeMap<(OutletId, DocumentNumber), Have>,
    cursors: BTreeMap<OutletId, Sequence>,
    demands: BTreeMap<OutletId, u64>,
    failing: BTreeMap<OutletId, Option<Timestamp>>,
    /// None when it is settled.
    retries: BTreeMap<(OutletId, DocumentNumber), Option<Retry>>,
    dead_letters: BTreeMap<(OutletId, Sequence), DeadLetter>,
    attempts: BTreeMap<(OutletId, Timestamp), Vec<AttemptRecord>>,
}

struct Have {
    version: Version,
    /// It may be older than what the store has.
    is_back: bool,
}

impl Steps {
    fn add(&mut self, step: Progress) {
        match step {
            Progress::Version { outlet, number, version } => {
                let have = self.versions.entry((outlet, number)).or_insert(Have { version, is_back: false });
                // Never back to an older sequence.
                if have.version.sequence <= version.sequence {
                    have.version = version;
                }
            }
            Progress::Forgotten { outlet, number, version } => {
                self.versions.insert((outlet, number), Have { version, is_back: true });
            }
            Progress::Cursor { outlet, cursor } => drop(self.cursors.insert(outlet, cursor)),
            Progress::Demand { outlet, left } => drop(self.demands.insert(outlet, left)),
            Progress::Failing { outlet, since } => drop(self.failing.insert(outlet, since)),
            Progress::Retry(retry) => drop(self.retries.insert((retry.outlet, retry.number), Some(retry))),
            Progress::Settled { outlet, number } => drop(self.retries.insert((outlet, number), None)),
            Progress::DeadLetter(letter) => {
                self.dead_letters.insert((letter.outlet, letter.sequence), letter);
            }
            Progress::Attempts { outlet, attempts } => {
                if let Some(first) = attempts.first() {
                    self.attempts.insert((outlet, first.at), attempts);
                }
            }
        }
    }

    fn calls(&self) -> Result<Vec<Call>> {
        let mut calls = Vec::new();
        calls.extend(self.version_call(VERSIONS, false));
        calls.extend(self.version_call(VERSIONS_BACK, true));
        if !self.cursors.is_empty() {
            let (outlets, cursors): (Vec<_>, Vec<_>) =
                self.cursors.iter().map(|(outlet, cursor)| (Id::from(*outlet), bigint(*cursor))).unzip();
            calls.push(Call::new(CURSORS).with(outlets).with(cursors));
        }
        if !self.demands.is_empty() {
            let (outlets, demands): (Vec<_>, Vec<_>) =
                self.demands.iter().map(|(outlet, left)| (Id::from(*outlet), bigint(Sequence(*left)))).unzip();
            calls.push(Call::new(DEMANDS).with(outlets).with(demands));
        }
        if !self.failing.is_empty() {
            let (outlets, since): (Vec<_>, Vec<_>) =
                self.failing.iter().map(|(outlet, since)| (Id::from(*outlet), since.map(Time))).unzip();
            calls.push(Call::new(FAILING).with(outlets).with(since));
        }
        calls.extend(self.retry_call());
        calls.extend(self.settled_call());
        calls.extend(self.dead_letter_call()?);
        calls.extend(self.attempt_call());
        Ok(calls)
    }

    fn version_call(&self, sql: &'static str, is_back: bool) -> Option<Call> {
        let all = || self.versions.iter().filter(|(_, have)| have.is_back == is_back);
        all().next()?;
        Some(
            Call::new(sql)
                .with(all().map(|((outlet, _), _)| Id::from(*outlet)).collect::<Vec<_>>())
                .with(all().map(|((_, number), _)| bigint(Sequence(number.0))).collect::<Vec<_>>())
                .with(all().map(|(_, have)| bigint(have.version.sequence)).collect::<Vec<_>>())
                .with(all().map(|(_, have)| Number(have.version.revision)).collect::<Vec<_>>())
                .with(all().map(|(_, have)| have.version.deleted).collect::<Vec<_>>()),
        )
    }

    fn retry_call(&self) -> Option<Call> {
        let all = || self.retries.values().flatten();
        all().next()?;
        Some(
            Call::new(RETRIES)
                .with(all().map(|retry| Id::from(retry.outlet)).collect::<Vec<_>>())
                .with(all().map(|retry| bigint(Sequence(retry.number.0))).collect::<Vec<_>>())
                .with(all().map(|retry| Url(retry.url.clone())).collect::<Vec<_>>())
                .with(all().map(|retry| i32::try_from(retry.attempts).unwrap_or(i32::MAX)).collect::<Vec<_>>())
                .with(all().map(|retry| Time(retry.due)).collect::<Vec<_>>()),
        )
    }

    fn settled_call(&self) -> Option<Call> {
        let all = || self.retries.iter().filter(|(_, retry)| retry.is_none()).map(|(place, _)| place);
        all().next()?;
        Some(
            Call::new(SETTLED)
                .with(all().map(|(outlet, _)| Id::from(*outlet)).collect::<Vec<_>>())
                .with(all().map(|(_, number)| bigint(Sequence(number.0))).collect::<Vec<_>>()),
        )
    }

    fn dead_letter_call(&self) -> Result<Option<Call>> {
        if self.dead_letters.is_empty() {
            return Ok(None);
        }
        let places = || self.dead_letters.keys();
        let bodies: Vec<Json> = self
            .dead_letters
            .values()
            .map(|letter| rows::encode_dead_letter(letter).map(Json))
            .collect::<Result<_>>()?;
        let call = Call::new(DEAD_LETTERS)
            .with(places().map(|(outlet, _)| Id::from(*outlet)).collect::<Vec<_>>())
            .with(places().map(|(_, sequence)| bigint(*sequence)).collect::<Vec<_>>())
            .with(bodies);
        Ok(Some(call))
    }

    fn attempt_call(&self) -> Option<Call> {
        if self.attempts.is_empty() {
            return None;
        }
        // The server's clock ticks in microseconds: of two rows in one tick, the later has both.
        let mut ticks: BTreeMap<(OutletId, i64), Vec<AttemptRecord>> = BTreeMap::new();
        for ((outlet, at), attempts) in &self.attempts {
            ticks.entry((*outlet, at.as_microsecond())).or_default().extend(attempts.iter().cloned());
        }
        let times = ticks.values().map(|attempts| Time(attempts[0].at)).collect::<Vec<_>>();
        let bodies = ticks.values().map(|attempts| rows::encode_attempts(attempts).to_vec()).collect::<Vec<_>>();
        let outlets = ticks.keys().map(|(outlet, _)| Id::from(*outlet)).collect::<Vec<_>>();
        Some(Call::new(ATTEMPTS).with(outlets).with(times).with(bodies))
    }
}
