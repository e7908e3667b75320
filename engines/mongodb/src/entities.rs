//! Streams, outlets and tokens: few rows, read whole when a node starts.

use async_trait::async_trait;
use flare_core::{
    Error, OutletId, Result, StreamId, TokenId,
    outlet::Outlet,
    port::{Idempotency, Inserted, Outlets, StreamLookup, Streams, Tokens},
    stream::Stream,
    token::Token,
};
use flare_toolkit::rows::{
    damaged, decode_outlet, decode_stream, decode_token, encode_outlet, encode_stream, encode_token, outlet_stream,
};
use futures_util::TryStreamExt;
use mongodb::bson::{RawDocumentBuf, doc};

use crate::{
    MongoStore,
    rows::{body::entity_json, read_text},
    table::Table,
    writer::{Done, EntityWrite, Job, made_by},
};

#[async_trait]
impl Streams for MongoStore {
    async fn insert(
        &self,
        stream: &Stream,
        once: Option<Idempotency>,
        seen: Option<u64>,
    ) -> Result<Option<Inserted<StreamId>>> {
        let write = EntityWrite::InsertStream { id: stream.id, body: encode_stream(stream)?, once, seen };
        match self.lane.write(Job::Entity(write)).await? {
            Done::Outdated => Ok(None),
            done => Ok(Some(inserted(&done, StreamId::from_bytes))),
        }
    }

    async fn made_by(&self, once: &Idempotency) -> Result<Option<StreamId>> {
        let rows = self.connection.rows(Table::Idempotency);
        let find = rows.find_one(doc! { "_id": &once.key });
        let row = self.connection.call("look up an idempotency key", find).await?;
        row.map(|row| made_by(once, &row).map(StreamId::from_bytes)).transpose()
    }

    async fn page(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<Stream>> {
        let rows = self.entities(Table::Streams, after.map(|id| id.to_string()), limit).await?;
        rows.iter().map(|row| decode_stream(id(row)?, &entity_json(row)?)).collect()
    }

    async fn delete(&self, id: StreamId) -> Result<()> {
        self.lane.write(Job::Entity(EntityWrite::DeleteStream(id))).await?;
        self.purge.notify_one();
        Ok(())
    }
}

#[async_trait]
impl Outlets for MongoStore {
    async fn insert(&self, outlet: &Outlet, once: Option<Idempotency>) -> Result<Inserted<OutletId>> {
        let write = EntityWrite::InsertOutlet {
            id: outlet.id,
            stream: outlet.stream,
            body: encode_outlet(outlet)?,
            start: outlet.start(),
            once,
        };
        Ok(inserted(&self.lane.write(Job::Entity(write)).await?, OutletId::from_bytes))
    }

    async fn update(&self, outlet: &Outlet) -> Result<()> {
        let write = EntityWrite::UpdateOutlet { id: outlet.id, body: encode_outlet(outlet)? };
        self.lane.write(Job::Entity(write)).await.map(drop)
    }

    async fn page(&self, after: Option<OutletId>, limit: usize, streams: &StreamLookup) -> Result<Vec<Outlet>> {
        let rows = self.entities(Table::Outlets, after.map(|id| id.to_string()), limit).await?;
        rows.iter()
            .map(|row| {
                let (id, json): (OutletId, _) = (id(row)?, entity_json(row)?);
                let stream = streams(outlet_stream(&json)?)
                    .ok_or_else(|| Error::internal(format!("the stream of outlet {id} is not in the store")))?;
                decode_outlet(id, &stream, &json)
            })
            .collect()
    }

    async fn delete(&self, id: OutletId) -> Result<()> {
        self.lane.write(Job::Entity(EntityWrite::DeleteOutlet(id))).await?;
        self.purge.notify_one();
        Ok(())
    }
}

#[async_trait]
impl Tokens for MongoStore {
    async fn insert(&self, token: &Token) -> Result<()> {
        let write = EntityWrite::InsertToken { id: token.id, body: encode_token(token)? };
        self.lane.write(Job::Entity(write)).await.map(drop)
    }

    async fn page(&self, after: Option<TokenId>, limit: usize) -> Result<Vec<Token>> {
        let rows = self.entities(Table::Tokens, after.map(|id| id.to_string()), limit).await?;
        rows.iter().map(|row| decode_token(id(row)?, &entity_json(row)?)).collect()
    }

    async fn delete(&self, id: TokenId) -> Result<()> {
        self.lane.write(Job::Entity(EntityWrite::DeleteToken(id))).await.map(drop)
    }
}

impl MongoStore {
    /// Rows that are not removed, in the order of their ids.
    async fn entities(&self, table: Table, after: Option<String>, limit: usize) -> Result<Vec<RawDocumentBuf>> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let mut filter = doc! { "removedAt": { "$exists": false } };
        if let Some(after) = after {
            filter.insert("_id", doc! { "$gt": after });
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.connection.rows(table);
        let find = rows.find(filter).sort(doc! { "_id": 1 }).limit(limit);
        let read = async { find.await?.try_collect().await };
        self.connection.call("read entities", read).await
    }
}

fn inserted<Id>(done: &Done, id: fn([u8; 16]) -> Id) -> Inserted<Id> {
    match done {
        Done::MadeBefore(before) => Inserted::Before(id(*before)),
        _ => Inserted::New,
    }
}

fn id<Id: std::str::FromStr>(row: &RawDocumentBuf) -> Result<Id> {
    read_text(row, "_id")?.parse().map_err(|_| damaged("entity"))
}
