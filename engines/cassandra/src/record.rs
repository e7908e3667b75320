//! Progress, written down.

use std::collections::BTreeSet;

use flare_core::{
    DocumentNumber, OutletId, Result, Sequence,
    delivery::{AttemptRecord, DeadLetter},
    document::{Progress, Retry, Version},
};
use flare_toolkit::rows::{encode_attempts, encode_dead_letter, micros};
use jiff::Timestamp;
use rustc_hash::FxHashMap;

use crate::{
    Core,
    layout::{self, ALL_OUTLETS, ATTEMPTS, DEAD_LETTERS, RETRIES, STANDINGS, VERSIONS, outlet_uuid},
    ports::text,
    statement::{Plan, Query},
};

const PUT_VERSION: Query =
    Query::new("INSERT INTO versions (outlet, bucket, number, sequence, revision, deleted) VALUES (?, ?, ?, ?, ?, ?)");
const PUT_CURSOR: Query = Query::new("UPDATE standings SET cursor = ? WHERE part = ? AND outlet = ?");
const PUT_DEMAND: Query = Query::new("UPDATE standings SET demand = ? WHERE part = ? AND outlet = ?");
const PUT_FAILING: Query = Query::new("UPDATE standings SET failing_since = ? WHERE part = ? AND outlet = ?");
const ADD_RETRIES: Query = Query::new("UPDATE standings SET retries = retries + ? WHERE part = ? AND outlet = ?");
const ADD_LETTERS: Query =
    Query::new("UPDATE standings SET dead_letters = dead_letters + ? WHERE part = ? AND outlet = ?");
const ADD_ATTEMPTS: Query = Query::new("UPDATE standings SET attempts = attempts + ? WHERE part = ? AND outlet = ?");
const PUT_RETRY: Query =
    Query::new("INSERT INTO retries (outlet, bucket, number, url, attempts, due) VALUES (?, ?, ?, ?, ?, ?)");
const REMOVE_RETRY: Query = Query::new("DELETE FROM retries WHERE outlet = ? AND bucket = ? AND number = ?");
const PUT_LETTER: Query = Query::new("INSERT INTO dead_letters (outlet, bucket, sequence, letter) VALUES (?, ?, ?, ?)");
const PUT_ATTEMPTS: Query = Query::new("INSERT INTO attempts (outlet, day, at, attempts) VALUES (?, ?, ?, ?)");

/// Tables of an outlet whose partitions are listed in its standing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Listed {
    Retries,
    DeadLetters,
    Attempts,
}

/// The last of each kind, by its key.
#[derive(Default)]
struct Folded {
    versions: FxHashMap<(OutletId, DocumentNumber), Version>,
    cursors: FxHashMap<OutletId, Sequence>,
    demands: FxHashMap<OutletId, u64>,
    failing: FxHashMap<OutletId, Option<Timestamp>>,
    /// None when it is settled.
    retries: FxHashMap<(OutletId, DocumentNumber), Option<Retry>>,
    letters: FxHashMap<(OutletId, Sequence), DeadLetter>,
    attempts: Vec<(OutletId, Vec<AttemptRecord>)>,
}

fn fold(progress: Vec<Progress>) -> Folded {
    let mut folded = Folded::default();
    for step in progress {
        match step {
            Progress::Version { outlet, number, version } | Progress::Forgotten { outlet, number, version } => {
                folded.versions.insert((outlet, number), version);
            }
            Progress::Cursor { outlet, cursor } => drop(folded.cursors.insert(outlet, cursor)),
            Progress::Demand { outlet, left } => drop(folded.demands.insert(outlet, left)),
            Progress::Failing { outlet, since } => drop(folded.failing.insert(outlet, since)),
            Progress::Retry(retry) => drop(folded.retries.insert((retry.outlet, retry.number), Some(retry))),
            Progress::Settled { outlet, number } => drop(folded.retries.insert((outlet, number), None)),
            Progress::DeadLetter(letter) => {
                folded.letters.insert((letter.outlet, letter.sequence), letter);
            }
            Progress::Attempts { outlet, attempts } => folded.attempts.push((outlet, attempts)),
        }
    }
    folded
}

impl Core {
    pub async fn record(&self, progress: Vec<Progress>) -> Result<()> {
        if progress.is_empty() {
            return Ok(());
        }
        let timestamp = self.next_record().await?;
        let folded = fold(progress);
        let mut plan = Plan::default();
        let mut lists: FxHashMap<(OutletId, Listed), BTreeSet<i32>> = FxHashMap::default();
        let mut list = |outlet, listed, bucket| {
            if !self.is_listed(outlet, listed, bucket) {
                lists.entry((outlet, listed)).or_default().insert(bucket);
            }
        };
        plan_versions(&mut plan, &folded);
        plan_standings(&mut plan, &folded);
        for ((outlet, number), retry) in folded.retries {
            let bucket = layout::retries_bucket(number.0);
            if retry.is_some() {
                list(outlet, Listed::Retries, bucket);
            }
            plan_retry(&mut plan, outlet, number, bucket, retry);
        }
        for ((outlet, sequence), letter) in folded.letters {
            let bucket = layout::retries_bucket(sequence.0);
            list(outlet, Listed::DeadLetters, bucket);
            let row = text(&encode_dead_letter(&letter)?)?;
            let (bytes, row) = (row.len(), (outlet_uuid(outlet), bucket, sequence.0 as i64, row));
            plan.add(DEAD_LETTERS, &[outlet.as_bytes(), &bucket.to_be_bytes()], PUT_LETTER, row, bytes);
        }
        for (outlet, attempts) in folded.attempts {
            if let Some(first) = attempts.first() {
                let day = layout::day(first.at);
                list(outlet, Listed::Attempts, day);
                let row = encode_attempts(&attempts);
                let (bytes, row) = (row.len(), (outlet_uuid(outlet), day, layout::nanos(first.at), row));
                plan.add(ATTEMPTS, &[outlet.as_bytes(), &day.to_be_bytes()], PUT_ATTEMPTS, row, bytes);
            }
        }
        self.write_lists(timestamp, lists).await?;
        self.connection.write(timestamp, plan).await
    }

    /// Partitions are listed before they have rows, so that every row is found.
    async fn write_lists(&self, timestamp: i64, lists: FxHashMap<(OutletId, Listed), BTreeSet<i32>>) -> Result<()> {
        if lists.is_empty() {
            return Ok(());
        }
        let mut plan = Plan::default();
        for ((outlet, listed), buckets) in &lists {
            let query = match listed {
                Listed::Retries => ADD_RETRIES,
                Listed::DeadLetters => ADD_LETTERS,
                Listed::Attempts => ADD_ATTEMPTS,
            };
            plan.add(STANDINGS, &[], query, (buckets.clone(), ALL_OUTLETS, outlet.as_bytes().to_vec()), 0);
        }
        self.connection.write(timestamp, plan).await?;
        let mut known = self.listed.lock();
        for ((outlet, listed), buckets) in lists {
            buckets.into_iter().for_each(|bucket| known.insert((outlet, listed, bucket), ()));
        }
        Ok(())
    }

    fn is_listed(&self, outlet: OutletId, listed: Listed, bucket: i32) -> bool {
        self.listed.lock().get(&(outlet, listed, bucket)).is_some()
    }
}

fn plan_versions(plan: &mut Plan, folded: &Folded) {
    const ROW_BYTES: usize = 60;
    for ((outlet, number), version) in &folded.versions {
        let bucket = layout::versions_bucket(number.0);
        let revision = layout::revision_value(version.revision);
        let row = (outlet_uuid(*outlet), bucket, number.0 as i64, version.sequence.0 as i64, revision, version.deleted);
        plan.add(VERSIONS, &[outlet.as_bytes(), &bucket.to_be_bytes()], PUT_VERSION, row, ROW_BYTES);
    }
}

fn plan_standings(plan: &mut Plan, folded: &Folded) {
    const ROW_BYTES: usize = 40;
    let numbers = folded.cursors.iter().map(|(outlet, cursor)| (PUT_CURSOR, outlet, cursor.0));
    let numbers = numbers.chain(folded.demands.iter().map(|(outlet, left)| (PUT_DEMAND, outlet, *left)));
    for (query, outlet, number) in numbers {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        plan.add(STANDINGS, &[], query, (number, ALL_OUTLETS, outlet.as_bytes().to_vec()), ROW_BYTES);
    }
    for (outlet, since) in &folded.failing {
        let row = (since.map(micros), ALL_OUTLETS, outlet.as_bytes().to_vec());
        plan.add(STANDINGS, &[], PUT_FAILING, row, ROW_BYTES);
    }
}

fn plan_retry(plan: &mut Plan, outlet: OutletId, number: DocumentNumber, bucket: i32, retry: Option<Retry>) {
    const ROW_BYTES: usize = 60;
    let id = outlet_uuid(outlet);
    let partition: &[&[u8]] = &[outlet.as_bytes(), &bucket.to_be_bytes()];
    match retry {
        Some(retry) => {
            let url = retry.url.as_str().to_owned();
            let bytes = ROW_BYTES + url.len();
            let row = (id, bucket, number.0 as i64, url, retry.attempts as i32, micros(retry.due));
            plan.add(RETRIES, partition, PUT_RETRY, row, bytes);
        }
        None => plan.add(RETRIES, partition, REMOVE_RETRY, (id, bucket, number.0 as i64), ROW_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use flare_core::revision::Revision;

    use super::*;

    #[test]
    fn the_last_of_each_key_is_kept() {
        let outlet = OutletId::generate();
        let number = DocumentNumber(3);
        let version = |sequence| Version { sequence: Sequence(sequence), revision: Revision::new(1), deleted: false };
        let folded = fold(vec![
            Progress::Version { outlet, number, version: version(1) },
            Progress::Forgotten { outlet, number, version: version(0) },
            Progress::Cursor { outlet, cursor: Sequence(5) },
            Progress::Settled { outlet, number },
            Progress::Cursor { outlet, cursor: Sequence(4) },
        ]);
        assert_eq!(folded.versions[&(outlet, number)], version(0));
        assert_eq!(folded.cursors[&outlet], Sequence(4));
        assert_eq!(folded.retries[&(outlet, number)], None);
    }
}
