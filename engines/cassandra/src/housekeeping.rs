//! Work that nobody waits for: following other nodes, and removing what is left of deleted streams and outlets.

use std::{sync::Arc, time::Duration};

use flare_core::{Error, OutletId, Result, Sequence, StreamId, document::Change};
use flare_toolkit::{health::Backoff, rows::damaged};
use tokio_util::sync::CancellationToken;

use crate::{
    Core, apply, attempts,
    connection::all,
    entities::{self, KIND_PURGE, kind_shards},
    feed, group, history,
    layout::{self, ALL_OUTLETS, ATTEMPTS, DEAD_LETTERS, ENTITIES, FEED, HEADS, RETRIES, STANDINGS, VERSIONS},
    list, log,
    operation::{Operation, PURGE_STREAM},
    standing,
    state::Told,
    statement::{Plan, Query},
};

const REMOVE_HEADS: Query = Query::new("DELETE FROM heads WHERE stream = ? AND shard = ?");
const REMOVE_FEED: Query = Query::new("DELETE FROM feed WHERE stream = ? AND bucket = ?");
const REMOVE_VERSIONS: Query = Query::new("DELETE FROM versions WHERE outlet = ? AND bucket = ?");
const REMOVE_RETRIES: Query = Query::new("DELETE FROM retries WHERE outlet = ? AND bucket = ?");
const REMOVE_LETTERS: Query = Query::new("DELETE FROM dead_letters WHERE outlet = ? AND bucket = ?");

/// Changes of a deleted stream removed at once.
const STEP_MAX: usize = 1024;
/// Partitions removed at once.
const PARTITIONS_MAX: usize = 256;
/// How long a node that only looks leaves it to the writer to finish what it has appended.
const PATIENCE: Duration = Duration::from_millis(100);
/// How soon a purge that failed is tried again.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Follows other nodes until it is told to stop.
pub(crate) async fn follow(core: Arc<Core>, stop: CancellationToken, interval: Duration) {
    let (looking, reading) = (&core, &core);
    core.follower
        .run(
            stop,
            interval,
            || async move { looking.look().await },
            |after, limit| async move { reading.changes_after(after, limit).await },
        )
        .await;
}

impl Core {
    /// How far the tables are. Learns what other nodes have appended, and finishes what none of them has.
    async fn look(&self) -> Result<Sequence> {
        let known = self.turn();
        let is_behind = log::has_after(&self.connection, known).await?;
        if !is_behind && !self.is_unfinished() {
            return Ok(self.applied());
        }
        if is_behind && self.applied_turn().await? <= known {
            // Whoever has appended it finishes it, unless it is gone.
            tokio::time::sleep(PATIENCE).await;
        }
        let mut state = self.state.lock().await;
        self.catch_up(&mut state).await?;
        Ok(self.applied())
    }

    /// Changes after a sequence, of all streams, in order.
    async fn changes_after(&self, after: Sequence, limit: usize) -> Result<Vec<Change>> {
        let told = match self.turns_after(after, limit) {
            Some(turns) => turns,
            None => {
                // The log is remembered no further back.
                self.follower.pass_over(self.applied());
                return Ok(Vec::new());
            }
        };
        let mut reads = Vec::new();
        for turn in &told {
            reads.push(group::read_whole(&self.connection, turn.group));
        }
        let mut changes = Vec::new();
        for (turn, group) in told.iter().zip(all(reads).await?) {
            let placed =
                group.into_iter().map(|(position, entry, content)| entry.change(position, turn.first, content));
            changes.extend(placed.filter(|change| change.sequence > after));
        }
        Ok(changes)
    }

    /// The turns that follow a sequence, as many as have about so many changes. None if they are not remembered.
    fn turns_after(&self, after: Sequence, limit: usize) -> Option<Vec<Told>> {
        let turns = self.turns.lock();
        let start = turns.partition_point(|turn| turn.last <= after.0);
        let first = turns.get(start)?;
        if first.first > after.0 + 1 {
            return None;
        }
        let mut count = 0;
        let chosen = turns.iter().skip(start).take_while(|turn| {
            let fits = count == 0 || count + (turn.last - turn.first + 1) <= limit as u64;
            count += turn.last - turn.first + 1;
            fits
        });
        Some(chosen.copied().collect())
    }

    async fn purge_all(&self) -> Result<()> {
        for (id, _) in entities::read_all(&self.connection, KIND_PURGE).await? {
            let (kind, name) = id.split_first().ok_or_else(|| damaged("purge"))?;
            let name: [u8; 16] = name.try_into().map_err(|_| damaged("purge"))?;
            if *kind == PURGE_STREAM {
                self.purge_stream(StreamId::from_bytes(name)).await?;
            } else {
                self.purge_outlet(OutletId::from_bytes(name)).await?;
            }
            self.operate(&Operation::Purged(id)).await?;
        }
        Ok(())
    }

    /// Contents first, since only the feed knows where they are; then the feed and the heads.
    async fn purge_stream(&self, stream: StreamId) -> Result<()> {
        let head = self.applied().0;
        let mut after = 0;
        while after < head {
            let mut found = Vec::new();
            after = feed::walk(&self.connection, stream, after, head, |item| {
                found.push((item.head.sequence, item.head.group, item.head.position));
                Ok(found.len() < STEP_MAX)
            })
            .await?;
            let mut removals = Vec::new();
            for (sequence, group, position) in found {
                let place = Some((group, position));
                removals.push(apply::remove_change(self, layout::FOR_GOOD, stream, sequence, place));
            }
            all(removals).await?;
        }
        let id = layout::stream_uuid(stream);
        let mut plan = Plan::default();
        for shard in list::shards(self, stream).await? {
            plan.add(HEADS, &[shard.as_bytes()], REMOVE_HEADS, (id, shard.clone()), 0);
        }
        for bucket in history::feed_buckets(head) {
            plan.add(FEED, &[&bucket.to_be_bytes()], REMOVE_FEED, (id, bucket), 0);
        }
        self.connection.write(layout::FOR_GOOD, plan).await?;
        let mut plan = Plan::default();
        plan.add(ENTITIES, &[], entities::REMOVE_KIND, (kind_shards(stream),), 0);
        self.connection.write(layout::FOR_GOOD, plan).await
    }

    async fn purge_outlet(&self, outlet: OutletId) -> Result<()> {
        let id = layout::outlet_uuid(outlet);
        let last = layout::versions_bucket(self.applied().0);
        for start in (0..=last).step_by(PARTITIONS_MAX) {
            let mut plan = Plan::default();
            for bucket in start..=last.min(start + PARTITIONS_MAX as i64 - 1) {
                plan.add(VERSIONS, &[&bucket.to_be_bytes()], REMOVE_VERSIONS, (id, bucket), 0);
            }
            self.connection.write(layout::FOR_GOOD, plan).await?;
        }
        let mut plan = Plan::default();
        if let Some(left) = standing::leftover(self, outlet).await? {
            for (table, query, buckets) in [
                (RETRIES, REMOVE_RETRIES, left.retries),
                (DEAD_LETTERS, REMOVE_LETTERS, left.dead_letters),
                (ATTEMPTS, attempts::REMOVE_DAY, left.attempts),
            ] {
                for bucket in buckets {
                    plan.add(table, &[&bucket.to_be_bytes()], query, (id, bucket), 0);
                }
            }
        }
        self.connection.write(layout::FOR_GOOD, plan).await?;
        let mut plan = Plan::default();
        plan.add(STANDINGS, &[], standing::REMOVE, (ALL_OUTLETS, outlet.as_bytes().to_vec()), 0);
        self.connection.write(layout::FOR_GOOD, plan).await
    }
}

/// Removes what is left of deleted streams and outlets: at the start, when something was deleted, and again after a
/// failure.
pub(crate) async fn purge(core: Arc<Core>, stop: CancellationToken) {
    let mut backoff = Backoff::new(RETRY_MIN, RETRY_MAX);
    loop {
        let purged = tokio::select! {
            () = stop.cancelled() => return,
            purged = core.purge_all() => purged,
        };
        let wait = match purged {
            Ok(()) => {
                backoff.reset();
                None
            }
            Err(error) => Some(noted(&error, &mut backoff)),
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = core.purge.notified() => {}
            () = sleep(wait) => {}
        }
    }
}

fn noted(error: &Error, backoff: &mut Backoff) -> Duration {
    tracing::debug!(reason = error.chain(), "removing what was deleted goes on later");
    backoff.next(0.5)
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
