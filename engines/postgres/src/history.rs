//! Changes that a newer one has replaced: kept for a while, then forgotten.
//!
//! A write leaves the change that it replaces where it is. A sweep goes once through the sequences of a time span and
//! removes what is replaced. What is replaced after the sweep has passed it is removed by the [`Broom`] soon after;
//! what a crash keeps the broom from, a later sweep finds, since each change names the one that it replaced.

use flare_core::{Result, Sequence};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::{
    Inner,
    connection::Call,
    groups::unreadable,
    partitions::{self, LOCK_ROWS},
    values::{Time, bigint, sequence},
};

/// Rows that a sweep looks at in one step.
const SWEEP_ROWS: i64 = 2000;
/// Rows removed in one statement.
const REMOVE_ROWS: usize = 2000;
/// What the broom remembers at most; a later sweep finds the rest.
const BROOM_MAX: usize = 1_000_000;

const CLOCK_AT: &str = "SELECT sequence FROM clock WHERE at <= $1 ORDER BY at DESC LIMIT 1";
const SWEPT: &str = "SELECT swept_from, sequence FROM head";
const SWEEP_TO: &str = "UPDATE head SET swept_to = greatest(swept_to, $1)";
const SWEPT_TO: &str = "UPDATE head SET swept_from = greatest(swept_from, $1)";
const PASSED: &str = "SELECT c.sequence, c.replaces, d.sequence FROM changes c \
    LEFT JOIN documents d ON d.number = c.number WHERE c.sequence > $1 AND c.sequence <= $2 \
    ORDER BY c.sequence LIMIT $3";
/// The last one still tells how far the sequences were at that time.
const FORGET_CLOCK: &str = "DELETE FROM clock WHERE at < (SELECT max(at) FROM clock WHERE at < $1)";
/// The bounds leave other partitions alone.
const REMOVE: &str = "WITH gone AS (DELETE FROM changes c USING unnest($1::bigint[]) AS g (sequence) \
    WHERE c.sequence = g.sequence AND c.sequence >= $2 AND c.sequence <= $3 RETURNING c.sequence), \
    noted AS (UPDATE partitions p SET removed = p.removed + n.rows FROM (SELECT q.name, count(*) AS rows FROM gone g \
    JOIN partitions q ON g.sequence >= q.first AND g.sequence < q.past GROUP BY q.name) n WHERE p.name = n.name) \
    SELECT count(*) FROM gone";

/// Removes what was replaced behind the back of a sweep.
#[derive(Default)]
pub(crate) struct Broom {
    waiting: Mutex<Vec<i64>>,
    /// Held while it sweeps, so that who comes second finds it swept.
    sweeping: tokio::sync::Mutex<()>,
}

impl Broom {
    pub fn add(&self, sequences: Vec<i64>) {
        let mut waiting = self.waiting.lock();
        if waiting.len() + sequences.len() <= BROOM_MAX {
            waiting.extend(sequences);
        }
    }
}

impl Inner {
    /// The last sequence that was given out at this time or before, about to the minute; the first if nobody knows.
    pub(crate) async fn clock_at(&self, time: Timestamp) -> Result<Sequence> {
        let rows = self.pool.query(&Call::new(CLOCK_AT).with(Time(time))).await?;
        rows.first().map_or(Ok(Sequence::START), |row| row.try_get(0).map(sequence).map_err(unreadable))
    }

    /// Removes what waits for the broom.
    pub(crate) async fn sweep_up(&self) -> Result<()> {
        let _swept_by_one = self.broom.sweeping.lock().await;
        let taken = std::mem::take(&mut *self.broom.waiting.lock());
        let removed = self.remove_changes(taken.clone()).await;
        if removed.is_err() {
            self.broom.add(taken);
        }
        removed.map(drop)
    }

    pub(crate) async fn sweep_changes(&self, older_than: Timestamp) -> Result<u64> {
        self.sweep_up().await?;
        let rows = self.pool.query(&Call::new(SWEPT)).await?;
        let Some(row) = rows.first() else { return Ok(0) };
        let (from, head): (i64, i64) = (row.try_get(0).map_err(unreadable)?, row.try_get(1).map_err(unreadable)?);
        let to = bigint(self.clock_at(older_than).await?).min(head);
        if to <= from {
            return Ok(0);
        }
        // From here on the broom removes what is replaced up to there, so that nothing slips through.
        self.pool.query(&Call::new(SWEEP_TO).with(to)).await?;
        let (mut removed, mut after) = (0, from);
        while after < to {
            let (position, replaced) = self.replaced(after, to, from).await?;
            removed += self.remove_changes(replaced).await?;
            after = position;
        }
        self.pool.query(&Call::new(SWEPT_TO).with(to)).await?;
        self.pool.query(&Call::new(FORGET_CLOCK).with(Time(older_than))).await?;
        partitions::tidy_up(&self.pool).await?;
        Ok(removed)
    }

    /// Replaced changes after `after`, and how far they were looked for.
    async fn replaced(&self, after: i64, to: i64, swept: i64) -> Result<(i64, Vec<i64>)> {
        let rows = self.pool.query(&Call::new(PASSED).with(after).with(to).with(SWEEP_ROWS)).await?;
        let mut found = Vec::new();
        let mut position = to;
        for row in &rows {
            let sequence: i64 = row.try_get(0).map_err(unreadable)?;
            let (replaces, newest): (Option<i64>, Option<i64>) =
                (row.try_get(1).map_err(unreadable)?, row.try_get(2).map_err(unreadable)?);
            found.extend(replaces.filter(|replaces| *replaces <= swept));
            if newest != Some(sequence) {
                found.push(sequence);
            }
            if rows.len() as i64 == SWEEP_ROWS {
                position = sequence;
            }
        }
        Ok((position, found))
    }

    pub(crate) async fn remove_changes(&self, mut sequences: Vec<i64>) -> Result<u64> {
        sequences.sort_unstable();
        let mut removed = 0;
        for step in sequences.chunks(REMOVE_ROWS) {
            let (Some(first), Some(last)) = (step.first(), step.last()) else { continue };
            let call = Call::new(REMOVE).with(step.to_vec()).with(*first).with(*last);
            let rows = self.pool.query_together(&[&Call::new(LOCK_ROWS), &call]).await?;
            let count: i64 = rows[1].first().map_or(Ok(0), |row| row.try_get(0)).map_err(unreadable)?;
            removed += count.unsigned_abs();
        }
        Ok(removed)
    }
}
