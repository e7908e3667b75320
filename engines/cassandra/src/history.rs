//! Changes that a newer one has replaced: kept for a while, then forgotten.
//!
//! A sweep goes through the sequences of a time span once, and removes what is replaced. Two turns of the log say
//! that it begins and that it has ended: what is replaced after the first one, and up to where the sweep goes, is
//! removed by the write that replaces it. A sweep that was interrupted is made again from where the one before had
//! ended.

use flare_core::{Result, Sequence, StreamId};
use flare_toolkit::rows::damaged;
use jiff::Timestamp;
use uuid::Uuid;

use crate::{
    Core, apply,
    connection::all,
    entities::{self, KIND_CLOCK, KIND_STREAM, KIND_TRIMMED},
    feed,
    layout::{self, ENTITIES, LOG_BUCKET},
    log,
    operation::Operation,
    state::Swept,
    statement::Plan,
};

/// Changes removed at once.
const STEP_MAX: usize = 1024;
/// Turns of the log that are kept for nodes that are behind; one that is further behind reads the tables instead.
const TURNS_KEPT: u64 = 100 * LOG_BUCKET;
/// Partitions of the log removed by one sweep.
const TRIM_MAX: u64 = 1000;

impl Core {
    /// The last sequence that was given out at this time or before, about to the minute; the first if nobody knows.
    pub async fn clock_at(&self, time: Timestamp) -> Result<Sequence> {
        let until = entities::clock_id(time.as_millisecond());
        let row = entities::read_last(&self.connection, KIND_CLOCK, &until).await?;
        row.map_or(Ok(Sequence::START), |row| row.parse().map(Sequence).map_err(|_| damaged("clock")))
    }

    pub async fn sweep(&self, older_than: Timestamp) -> Result<u64> {
        let (from, turn) = {
            let mut state = self.state.lock().await;
            self.catch_up(&mut state).await?;
            (state.swept.from, state.turn)
        };
        let to = self.clock_at(older_than).await?.min(self.applied()).0;
        if to <= from {
            return Ok(0);
        }
        self.operate(&Operation::Sweep { swept: Swept { from, to }, trimmed: None }).await?;
        let mut removed = 0;
        for (id, _) in entities::read_all(&self.connection, KIND_STREAM).await? {
            let id: [u8; 16] = id[..].try_into().map_err(|_| damaged("stream"))?;
            removed += self.sweep_stream(StreamId::from_bytes(id), from, to).await?;
        }
        let trimmed = self.trim(turn).await?;
        self.operate(&Operation::Sweep { swept: Swept { from: to, to }, trimmed }).await?;
        self.forget_clock(older_than).await?;
        Ok(removed)
    }

    async fn sweep_stream(&self, stream: StreamId, from: u64, to: u64) -> Result<u64> {
        let (mut after, mut removed) = (from, 0);
        while after < to {
            let mut replaced: Vec<(u64, Uuid, i32)> = Vec::new();
            after = feed::walk(&self.connection, stream, after, to, |item| {
                if item.replaced_by.is_some() {
                    replaced.push((item.head.sequence, item.head.group, item.head.position));
                }
                Ok(replaced.len() < STEP_MAX)
            })
            .await?;
            removed += replaced.len() as u64;
            // Whoever writes such a row once more, however late, did so for an earlier turn.
            let timestamp = self.state.lock().await.turn as i64;
            let mut removals = Vec::new();
            for (sequence, group, position) in replaced {
                removals.push(apply::remove_change(self, timestamp, stream, sequence, Some((group, position))));
            }
            all(removals).await?;
        }
        Ok(removed)
    }

    /// Removes what nobody reads any more of the log. Says up to which bucket, if there was something.
    ///
    /// Rows of the log are written by conditional writes only, but these are long decided, and the heads of their
    /// buckets stay.
    async fn trim(&self, turn: u64) -> Result<Option<u64>> {
        let row = entities::read(&self.connection, KIND_TRIMMED, &[]).await?;
        let from: u64 = row.map_or(Ok(0), |row| row.parse()).map_err(|_| damaged("log"))?;
        let to = (turn.saturating_sub(TURNS_KEPT) / LOG_BUCKET).min(from + TRIM_MAX);
        for bucket in from..to {
            let range = (bucket as i64, (bucket * LOG_BUCKET) as i64, ((bucket + 1) * LOG_BUCKET) as i64);
            self.connection.execute(log::TRIM, range).await?;
        }
        Ok((to > from).then_some(to))
    }

    async fn forget_clock(&self, before: Timestamp) -> Result<()> {
        // The last one still tells how far the sequences were at that time.
        let last = entities::clock_id(before.as_millisecond().saturating_sub(1));
        let Some(id) = self.last_clock(&last).await? else { return Ok(()) };
        let timestamp = self.state.lock().await.turn as i64;
        let mut plan = Plan::default();
        plan.add(ENTITIES, &[KIND_CLOCK.as_bytes()], entities::REMOVE_BEFORE, (KIND_CLOCK, id), 0);
        self.connection.write(timestamp, plan).await
    }

    async fn last_clock(&self, until: &[u8]) -> Result<Option<Vec<u8>>> {
        let row: Option<(Vec<u8>,)> = self.connection.row(entities::LAST_ID, (KIND_CLOCK, until)).await?;
        Ok(row.map(|(id,)| id))
    }
}

/// How far back a feed goes in partitions, for whoever removes it.
pub(crate) fn feed_buckets(head: u64) -> std::ops::RangeInclusive<i64> {
    0..=layout::feed_bucket(head)
}
