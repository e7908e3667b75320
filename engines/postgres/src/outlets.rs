//! Outlets: read whole when a node starts, then served from memory.

use async_trait::async_trait;
use flare_core::{
    Error, OutletId, Result, StreamId,
    outlet::Outlet,
    port::{Idempotency, Inserted, Outlets, StreamLookup},
};
use flare_toolkit::rows;

use crate::{
    PostgresStore,
    connection::Call,
    housekeeping::PURGE_OUTLET,
    streams::{STREAM, made, made_before, moved, nothing, purge, remember},
    values::{Id, Json, bigint},
    writer::Plan,
};

const OUTLET: &str = "SELECT 1 FROM outlets WHERE id = $1";
const INSERT: &str = "INSERT INTO outlets VALUES ($1, $2, $3)";
const INSERT_CURSOR: &str = "INSERT INTO cursors VALUES ($1, $2)";
const UPDATE: &str = "UPDATE outlets SET body = $2 WHERE id = $1";
const PAGE: &str = "SELECT id, body FROM outlets WHERE id > $1 ORDER BY id LIMIT $2";
const DELETE: &str = "DELETE FROM outlets WHERE id = $1";
const DELETE_CURSOR: &str = "DELETE FROM cursors WHERE outlet = $1";
const DELETE_REPLAY: &str = "DELETE FROM replays WHERE outlet = $1";

#[async_trait]
impl Outlets for PostgresStore {
    async fn insert(&self, outlet: &Outlet, once: Option<Idempotency>) -> Result<Inserted<OutletId>> {
        let (id, stream, body) = (outlet.id, outlet.stream, Json(rows::encode_outlet(outlet)?));
        let start = bigint(outlet.start());
        let reads =
            [Call::new(STREAM).with(Id::from(stream)), made(once.as_ref()), Call::new(OUTLET).with(Id::from(id))];
        self.inner
            .writer
            .turn(&reads, |_, rows| {
                if rows[0].is_empty() {
                    return Err(Error::not_found(format!("stream {stream} does not exist")));
                }
                if let Some(before) = made_before(once.as_ref(), &rows[1])? {
                    return Ok(nothing(Inserted::Before(OutletId::from_bytes(before.0))));
                }
                if !rows[2].is_empty() {
                    return Err(Error::conflict(format!("outlet {id} exists already")));
                }
                let mut calls = vec![
                    Call::new(INSERT).with(Id::from(id)).with(Id::from(stream)).with(body.clone()),
                    Call::new(INSERT_CURSOR).with(Id::from(id)).with(start),
                    moved(),
                ];
                calls.extend(remember(once.as_ref(), id.into()));
                Ok(Plan { calls, answer: Inserted::New })
            })
            .await
    }

    async fn update(&self, outlet: &Outlet) -> Result<()> {
        let (id, body) = (outlet.id, Json(rows::encode_outlet(outlet)?));
        self.change_outlet(id, || vec![Call::new(UPDATE).with(Id::from(id)).with(body.clone())]).await
    }

    async fn page(&self, after: Option<OutletId>, limit: usize, streams: &StreamLookup) -> Result<Vec<Outlet>> {
        let found = self.entities(PAGE, after.map(Id::from), limit).await?;
        found
            .into_iter()
            .map(|(id, body)| {
                let id = OutletId::from_bytes(id.0);
                let stream: StreamId = rows::outlet_stream(&body.0)?;
                let stream = streams(stream)
                    .ok_or_else(|| Error::internal(format!("the stream of outlet {id} is not in the store")))?;
                rows::decode_outlet(id, &stream, &body.0)
            })
            .collect()
    }

    async fn delete(&self, id: OutletId) -> Result<()> {
        let delete = || {
            let of_outlet = |sql| Call::new(sql).with(Id::from(id));
            vec![of_outlet(DELETE), of_outlet(DELETE_CURSOR), of_outlet(DELETE_REPLAY), purge(PURGE_OUTLET, id.into())]
        };
        self.change_outlet(id, delete).await?;
        self.inner.chores.notify_one();
        Ok(())
    }
}

impl PostgresStore {
    /// Writes what belongs to an outlet; `NotFound` if it is not there.
    async fn change_outlet(&self, id: OutletId, calls: impl Fn() -> Vec<Call> + Send) -> Result<()> {
        let reads = [Call::new(OUTLET).with(Id::from(id))];
        self.inner
            .writer
            .turn(&reads, |_, rows| {
                if rows[0].is_empty() {
                    return Err(Error::not_found(format!("outlet {id} does not exist")));
                }
                let mut calls = calls();
                calls.push(moved());
                Ok(Plan { calls, answer: () })
            })
            .await
    }
}
