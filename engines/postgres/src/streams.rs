//! Streams: few rows, read whole when a node starts.

use async_trait::async_trait;
use flare_core::{
    Error, Result, StreamId,
    port::{Idempotency, Inserted, Streams},
    stream::Stream,
};
use flare_toolkit::rows;
use tokio_postgres::Row;

use crate::{
    PostgresStore,
    connection::Call,
    groups::unreadable,
    housekeeping::PURGE_STREAM,
    values::{Id, Json, Time},
    writer::Plan,
};

pub(crate) const STREAM: &str = "SELECT 1 FROM streams WHERE id = $1";
const INSERT: &str = "INSERT INTO streams (id, body) VALUES ($1, $2)";
const PAGE: &str = "SELECT id, body FROM streams WHERE id > $1 ORDER BY id LIMIT $2";
const OUTLET_OF: &str = "SELECT 1 FROM outlets WHERE stream = $1 LIMIT 1";
const DELETE: &str = "DELETE FROM streams WHERE id = $1";
pub(crate) const PURGE: &str = "INSERT INTO purges VALUES ($1, $2) ON CONFLICT DO NOTHING";
const MADE: &str = "SELECT fingerprint, made FROM idempotency WHERE key = $1";
const REMEMBER: &str = "INSERT INTO idempotency VALUES ($1, $2, $3, $4)";
pub(crate) const REVISION: &str = "SELECT entities_revision FROM head";
const MOVE_REVISION: &str = "UPDATE head SET entities_revision = entities_revision + 1";

#[async_trait]
impl Streams for PostgresStore {
    async fn insert(
        &self,
        stream: &Stream,
        once: Option<Idempotency>,
        seen: Option<u64>,
    ) -> Result<Option<Inserted<StreamId>>> {
        let (id, body) = (stream.id, Json(rows::encode_stream(stream)?));
        let reads = [made(once.as_ref()), Call::new(STREAM).with(Id::from(id)), Call::new(REVISION)];
        self.inner
            .writer
            .turn(&reads, |_, rows| {
                if let Some(before) = made_before(once.as_ref(), &rows[0])? {
                    return Ok(nothing(Some(Inserted::Before(StreamId::from_bytes(before.0)))));
                }
                if seen.is_some() && seen != Some(revision(&rows[2])?) {
                    return Ok(nothing(None));
                }
                if !rows[1].is_empty() {
                    return Err(Error::conflict(format!("stream {id} exists already")));
                }
                let mut calls = vec![Call::new(INSERT).with(Id::from(id)).with(body.clone()), moved()];
                calls.extend(remember(once.as_ref(), id.into()));
                Ok(Plan { calls, answer: Some(Inserted::New) })
            })
            .await
    }

    async fn made_by(&self, once: &Idempotency) -> Result<Option<StreamId>> {
        let rows = self.inner.pool.query(&made(Some(once))).await?;
        Ok(made_before(Some(once), &rows)?.map(|id| StreamId::from_bytes(id.0)))
    }

    async fn page(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<Stream>> {
        let stream = |(id, body): (Id, Json)| rows::decode_stream(StreamId::from_bytes(id.0), &body.0);
        self.entities(PAGE, after.map(Id::from), limit).await?.into_iter().map(stream).collect()
    }

    async fn delete(&self, id: StreamId) -> Result<()> {
        let reads = [Call::new(STREAM).with(Id::from(id)), Call::new(OUTLET_OF).with(Id::from(id))];
        self.inner
            .writer
            .turn(&reads, |_, rows| {
                if rows[0].is_empty() {
                    return Err(Error::not_found(format!("stream {id} does not exist")));
                }
                if !rows[1].is_empty() {
                    return Err(Error::conflict(format!("stream {id} still has outlets")));
                }
                let delete = Call::new(DELETE).with(Id::from(id));
                Ok(Plan { calls: vec![delete, purge(PURGE_STREAM, id.into()), moved()], answer: () })
            })
            .await?;
        self.inner.chores.notify_one();
        Ok(())
    }
}

impl PostgresStore {
    /// Ids and bodies of one kind after an id, in id order.
    pub(crate) async fn entities(&self, sql: &'static str, after: Option<Id>, limit: usize) -> Result<Vec<(Id, Json)>> {
        let call = Call::new(sql).with(after.unwrap_or(Id([0; 16]))).with(i64::try_from(limit).unwrap_or(i64::MAX));
        let read = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
        self.inner.pool.query(&call).await?.iter().map(|row| read(row).map_err(unreadable)).collect()
    }
}

/// The answer to [`REVISION`].
pub(crate) fn revision(rows: &[Row]) -> Result<u64> {
    let row = rows.first().ok_or_else(|| Error::internal("the head of the store is gone"))?;
    Ok(row.try_get::<_, i64>(0).map_err(unreadable)?.unsigned_abs())
}

/// A turn that writes nothing.
pub(crate) fn nothing<T>(answer: T) -> Plan<T> {
    Plan { calls: Vec::new(), answer }
}

/// Says that an entity was written.
pub(crate) fn moved() -> Call {
    Call::new(MOVE_REVISION)
}

pub(crate) fn purge(kind: &str, id: Id) -> Call {
    Call::new(PURGE).with(kind.to_owned()).with(id)
}

/// Reads what a request with this key has made. No key is the empty one, which nobody has.
pub(crate) fn made(once: Option<&Idempotency>) -> Call {
    Call::new(MADE).with(once.map_or_else(String::new, |once| once.key.clone()))
}

/// The id that the same request made before, if it did.
pub(crate) fn made_before(once: Option<&Idempotency>, rows: &[Row]) -> Result<Option<Id>> {
    let (Some(once), Some(row)) = (once, rows.first()) else { return Ok(None) };
    let fingerprint: &[u8] = row.try_get(0).map_err(unreadable)?;
    if fingerprint == once.fingerprint {
        return row.try_get(1).map(Some).map_err(unreadable);
    }
    let reused = format!("the idempotency key {:?} was used before for another request; use a new key", once.key);
    Err(Error::invalid(reused))
}

pub(crate) fn remember(once: Option<&Idempotency>, id: Id) -> Option<Call> {
    let once = once?;
    let call = Call::new(REMEMBER).with(once.key.clone()).with(once.fingerprint.to_vec()).with(id).with(Time(once.at));
    Some(call)
}
