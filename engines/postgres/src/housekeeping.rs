//! Work that nobody waits for, in small steps: the rows of what was deleted, keys past their time, room for more.

use std::{sync::Arc, time::Duration};

use flare_core::{Result, port::Idempotency};
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    Inner,
    connection::Call,
    groups::unreadable,
    partitions,
    values::{Id, Time},
};

pub(crate) const PURGE_STREAM: &str = "stream";
pub(crate) const PURGE_OUTLET: &str = "outlet";

/// How often somebody looks whether there is something to do.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often old keys and forgotten nodes are looked for.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// A node that has not written for so long is not coming back to ask what became of it.
const WRITER_RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Rows removed in one statement.
const STEP_ROWS: i64 = 2000;

const PURGES: &str = "SELECT kind, id FROM purges ORDER BY kind, id LIMIT 1";
const PURGED: &str = "DELETE FROM purges WHERE kind = $1 AND id = $2";
const CHANGES_OF: &str = "SELECT sequence FROM changes WHERE stream = $1 LIMIT $2";
const DOCUMENTS_OF: &str = "DELETE FROM documents d USING (SELECT number FROM documents WHERE stream = $1 LIMIT $2) o \
    WHERE d.number = o.number RETURNING 1";
const ROWS_OF_OUTLET: [&str; 4] = [
    "DELETE FROM versions v USING (SELECT number FROM versions WHERE outlet = $1 LIMIT $2) o \
     WHERE v.outlet = $1 AND v.number = o.number RETURNING 1",
    "DELETE FROM retries r USING (SELECT number FROM retries WHERE outlet = $1 LIMIT $2) o \
     WHERE r.outlet = $1 AND r.number = o.number RETURNING 1",
    "DELETE FROM dead_letters l USING (SELECT sequence FROM dead_letters WHERE outlet = $1 LIMIT $2) o \
     WHERE l.outlet = $1 AND l.sequence = o.sequence RETURNING 1",
    "DELETE FROM attempts a USING (SELECT at FROM attempts WHERE outlet = $1 LIMIT $2) o \
     WHERE a.outlet = $1 AND a.at = o.at RETURNING 1",
];
const EXPIRE_KEYS: &str = "DELETE FROM idempotency WHERE at < $1";
const EXPIRE_WRITERS: &str = "DELETE FROM writers WHERE seen_at < $1";
const EXPIRE_RECORDERS: &str = "DELETE FROM recorders WHERE seen_at < $1";

/// Looks after the house until it is told to stop.
pub(crate) async fn run(inner: Arc<Inner>, stop: CancellationToken) {
    let mut expired: Option<Instant> = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = inner.chores.notified() => {}
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let is_due = expired.is_none_or(|at| at.elapsed() >= EXPIRY_INTERVAL);
        let work = async {
            partitions::make_room(&inner.pool, 0).await?;
            inner.sweep_up().await?;
            while inner.purge_some().await? {}
            if is_due { inner.expire().await } else { Ok(()) }
        };
        let done = tokio::select! {
            () = stop.cancelled() => return,
            done = work => done,
        };
        match done {
            Ok(()) if is_due => expired = Some(Instant::now()),
            Ok(()) => {}
            Err(error) => {
                tracing::debug!(reason = error.chain(), "housekeeping of the store failed; it will be tried again");
            }
        }
    }
}

impl Inner {
    /// Removes some rows of a deleted stream or outlet, and the note of the deletion when none are left. True if there
    /// may be more.
    async fn purge_some(&self) -> Result<bool> {
        let rows = self.pool.query(&Call::new(PURGES)).await?;
        let Some(row) = rows.first() else { return Ok(false) };
        let (kind, id): (String, Id) = (row.try_get(0).map_err(unreadable)?, row.try_get(1).map_err(unreadable)?);
        let is_done = match kind.as_str() {
            PURGE_STREAM => self.purge_stream(id).await?,
            _ => self.purge_outlet(id).await?,
        };
        if is_done {
            self.pool.query(&Call::new(PURGED).with(kind).with(id)).await?;
        }
        Ok(true)
    }

    async fn purge_stream(&self, stream: Id) -> Result<bool> {
        let rows = self.pool.query(&Call::new(CHANGES_OF).with(stream).with(STEP_ROWS)).await?;
        if !rows.is_empty() {
            let sequences = rows.iter().map(|row| row.try_get(0).map_err(unreadable)).collect::<Result<_>>()?;
            self.remove_changes(sequences).await?;
            return Ok(false);
        }
        let removed = self.pool.query(&Call::new(DOCUMENTS_OF).with(stream).with(STEP_ROWS)).await?;
        Ok((removed.len() as i64) < STEP_ROWS)
    }

    async fn purge_outlet(&self, outlet: Id) -> Result<bool> {
        for sql in ROWS_OF_OUTLET {
            let removed = self.pool.query(&Call::new(sql).with(outlet).with(STEP_ROWS)).await?;
            if removed.len() as i64 == STEP_ROWS {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn expire(&self) -> Result<()> {
        let now = Timestamp::now();
        let calls = [
            Call::new(EXPIRE_KEYS).with(Time(now - Idempotency::RETENTION)),
            Call::new(EXPIRE_WRITERS).with(Time(now - WRITER_RETENTION)),
            Call::new(EXPIRE_RECORDERS).with(Time(now - WRITER_RETENTION)),
        ];
        self.pool.query_all(&calls.iter().collect::<Vec<_>>()).await.map(drop)
    }
}
