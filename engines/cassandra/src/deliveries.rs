//! What outlets have, and where they stand: the port.

use async_trait::async_trait;
use flare_core::{
    DocumentNumber, Error, OutletId, Result, Sequence, StreamId,
    delivery::{AttemptQuery, AttemptRecord, Behind, DeadLetter},
    document::{Progress, Retry, Standing, Version},
    port::{Deliveries, Span},
    replay::Replay,
};
use flare_toolkit::rows::{damaged, decode_replay, encode_replay, timestamp};
use jiff::Timestamp;
use scylla::value::CqlVarint;

use crate::{
    CassandraStore, Core, attempts,
    connection::all,
    entities::{self, KIND_REPLAY},
    layout::{self, ALL_OUTLETS, outlet_uuid},
    letters, missing,
    operation::Operation,
    ports::text,
    statement::Query,
};

const READ_VERSION: Query =
    Query::new("SELECT sequence, revision, deleted FROM versions WHERE outlet = ? AND bucket = ? AND number = ?");
const READ_STANDING: Query =
    Query::new("SELECT start, cursor, demand, failing_since, retries FROM standings WHERE part = ? AND outlet = ?");
const READ_STANDINGS: Query = Query::new(
    "SELECT outlet, start, cursor, demand, failing_since, retries FROM standings WHERE part = ? AND outlet > ?",
);
const READ_RETRIES: Query =
    Query::new("SELECT number, url, attempts, due FROM retries WHERE outlet = ? AND bucket = ?");

#[async_trait]
impl Deliveries for CassandraStore {
    async fn seal(&self, epoch: u64) -> Result<()> {
        self.core.seal(epoch).await
    }

    async fn record(&self, progress: Vec<Progress>) -> Result<()> {
        self.core.record(progress).await
    }

    async fn version(&self, outlet: OutletId, number: DocumentNumber) -> Result<Option<Version>> {
        // One read of one partition: many of them at once share the connections, and each goes straight to a replica.
        let key = (outlet_uuid(outlet), layout::versions_bucket(number.0), number.0 as i64);
        let row: Option<(Option<i64>, Option<CqlVarint>, Option<bool>)> =
            self.core.connection.row(READ_VERSION, key).await?;
        let Some((Some(sequence), Some(revision), Some(deleted))) = row else { return Ok(None) };
        Ok(Some(Version { sequence: Sequence(sequence as u64), revision: layout::revision(&revision)?, deleted }))
    }

    async fn standings(&self, after: Option<OutletId>, limit: usize) -> Result<Vec<Standing>> {
        let after = after.map_or_else(Vec::new, |id| id.as_bytes().to_vec());
        let mut standings: Vec<(Standing, Vec<i32>)> = Vec::new();
        if limit == 0 {
            return Ok(Vec::new());
        }
        type Row = (Vec<u8>, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<Vec<i32>>);
        let mut rows = self.core.connection.stream::<Row>(READ_STANDINGS, (ALL_OUTLETS, after)).await?;
        while let Some((id, start, cursor, demand, failing, retries)) = rows.next().await? {
            let id = OutletId::from_bytes(id.try_into().map_err(|_| damaged("standing"))?);
            standings.extend(standing(id, (start, cursor, demand, failing, retries)));
            if standings.len() >= limit {
                break;
            }
        }
        let mut reads = Vec::new();
        for (standing, buckets) in standings {
            reads.push(self.core.with_retries(standing, buckets));
        }
        all(reads).await
    }

    async fn standing(&self, outlet: OutletId) -> Result<Standing> {
        let key = (ALL_OUTLETS, &outlet.as_bytes()[..]);
        let row: Option<StandingRow> = self.core.connection.row(READ_STANDING, key).await?;
        match row.and_then(|row| standing(outlet, row)) {
            Some((standing, buckets)) => self.core.with_retries(standing, buckets).await,
            None => Err(Error::not_found(format!("outlet {outlet} does not exist"))),
        }
    }

    async fn missing(&self, stream: StreamId, outlet: OutletId, span: Span, limit: usize) -> Result<Vec<Behind>> {
        missing::find(&self.core, stream, outlet, span, limit).await
    }

    async fn dead_letters(&self, outlet: OutletId, offset: usize, limit: usize) -> Result<(Vec<DeadLetter>, usize)> {
        letters::page(&self.core, outlet, offset, limit).await
    }

    async fn discard_dead_letters(&self, outlet: OutletId, sequences: Vec<Sequence>) -> Result<()> {
        letters::discard(&self.core, outlet, sequences).await
    }

    async fn attempts(&self, outlet: OutletId, query: AttemptQuery) -> Result<Vec<AttemptRecord>> {
        attempts::find(&self.core, outlet, &query).await
    }

    async fn forget_attempts(&self, older_than: Timestamp) -> Result<()> {
        attempts::forget(&self.core, older_than).await
    }

    async fn forget_dead_letters(&self, older_than: Timestamp) -> Result<()> {
        letters::forget(&self.core, older_than).await
    }

    async fn save_replay(&self, outlet: OutletId, replay: Option<Replay>) -> Result<()> {
        let row = replay.map(|replay| encode_replay(&replay)).transpose()?;
        let row = row.map(|row| text(&row)).transpose()?;
        self.core.operate(&Operation::SaveReplay { outlet, row }).await.map(drop)
    }

    async fn replays(&self) -> Result<Vec<Replay>> {
        let rows = entities::read_all(&self.core.connection, KIND_REPLAY).await?;
        let replay = |(id, row): (Vec<u8>, String)| {
            let id = OutletId::from_bytes(id.try_into().map_err(|_| damaged("replay"))?);
            decode_replay(id, row.as_bytes())
        };
        rows.into_iter().map(replay).collect()
    }
}

type StandingRow = (Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<Vec<i32>>);

/// Without a start, it is what is left of a deleted outlet.
fn standing(outlet: OutletId, (start, cursor, demand, failing, retries): StandingRow) -> Option<(Standing, Vec<i32>)> {
    let start = start?;
    let standing = Standing {
        outlet,
        cursor: Sequence(cursor.unwrap_or(start) as u64),
        retries: Vec::new(),
        demand: demand.unwrap_or_default() as u64,
        failing_since: failing.and_then(|since| timestamp(since).ok()),
    };
    Some((standing, retries.unwrap_or_default()))
}

impl Core {
    async fn with_retries(&self, mut standing: Standing, mut buckets: Vec<i32>) -> Result<Standing> {
        buckets.sort_unstable();
        for bucket in buckets {
            type Row = (i64, Option<String>, Option<i32>, Option<i64>);
            let key = (outlet_uuid(standing.outlet), bucket);
            let mut rows = self.connection.stream::<Row>(READ_RETRIES, key).await?;
            while let Some((number, url, attempts, due)) = rows.next().await? {
                let (Some(url), Some(attempts), Some(due)) = (url, attempts, due) else { continue };
                standing.retries.push(Retry {
                    outlet: standing.outlet,
                    number: DocumentNumber(number as u64),
                    url: layout::url(&url)?,
                    attempts: attempts as u32,
                    due: timestamp(due)?,
                });
            }
        }
        Ok(standing)
    }
}
