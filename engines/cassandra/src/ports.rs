//! Streams, outlets and tokens: few rows, read whole when a node starts.

use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{
    Error, OutletId, Result, StreamId, TokenId,
    outlet::Outlet,
    port::{Idempotency, Inserted, Outlets, StreamLookup, Streams, Tokens},
    stream::Stream,
    token::Token,
};
use flare_toolkit::rows::{self, damaged};

use crate::{
    CassandraStore,
    entities::{self, KIND_OUTLET, KIND_STREAM, KIND_TOKEN},
    operation::{self, Operation, Outcome},
};

#[async_trait]
impl Streams for CassandraStore {
    async fn insert(
        &self,
        stream: &Stream,
        once: Option<Idempotency>,
        seen: Option<u64>,
    ) -> Result<Option<Inserted<StreamId>>> {
        let row = text(&rows::encode_stream(stream)?)?;
        match self.core.operate(&Operation::InsertStream { id: stream.id, row, once, seen }).await? {
            Outcome::Outdated => Ok(None),
            outcome => Ok(Some(inserted(outcome, StreamId::from_bytes))),
        }
    }

    async fn made_by(&self, once: &Idempotency) -> Result<Option<StreamId>> {
        Ok(operation::made_by(&self.core.connection, once).await?.map(StreamId::from_bytes))
    }

    async fn page(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<Stream>> {
        let rows = self.page_of(KIND_STREAM, after.as_ref().map(StreamId::as_bytes), limit).await?;
        rows.iter().map(|(id, row)| rows::decode_stream(StreamId::from_bytes(*id), row.as_bytes())).collect()
    }

    async fn delete(&self, id: StreamId) -> Result<()> {
        self.core.operate(&Operation::DeleteStream(id)).await?;
        self.core.purge.notify_one();
        Ok(())
    }
}

#[async_trait]
impl Outlets for CassandraStore {
    async fn insert(&self, outlet: &Outlet, once: Option<Idempotency>) -> Result<Inserted<OutletId>> {
        let row = text(&rows::encode_outlet(outlet)?)?;
        let (id, stream, start) = (outlet.id, outlet.stream, outlet.start().0);
        let outcome = self.core.operate(&Operation::InsertOutlet { id, stream, row, start, once }).await?;
        Ok(inserted(outcome, OutletId::from_bytes))
    }

    async fn update(&self, outlet: &Outlet) -> Result<()> {
        let row = text(&rows::encode_outlet(outlet)?)?;
        self.core.operate(&Operation::UpdateOutlet { id: outlet.id, row }).await.map(drop)
    }

    async fn page(&self, after: Option<OutletId>, limit: usize, streams: &StreamLookup) -> Result<Vec<Outlet>> {
        let rows = self.page_of(KIND_OUTLET, after.as_ref().map(OutletId::as_bytes), limit).await?;
        rows.iter()
            .map(|(id, row)| {
                let id = OutletId::from_bytes(*id);
                let stream = streams(rows::outlet_stream(row.as_bytes())?)
                    .ok_or_else(|| Error::internal(format!("the stream of outlet {id} is not in the store")))?;
                rows::decode_outlet(id, &stream, row.as_bytes())
            })
            .collect()
    }

    async fn delete(&self, id: OutletId) -> Result<()> {
        self.core.operate(&Operation::DeleteOutlet(id)).await?;
        self.core.purge.notify_one();
        Ok(())
    }
}

#[async_trait]
impl Tokens for CassandraStore {
    async fn insert(&self, token: &Token) -> Result<()> {
        let row = text(&rows::encode_token(token)?)?;
        self.core.operate(&Operation::InsertToken { id: token.id, row }).await.map(drop)
    }

    async fn page(&self, after: Option<TokenId>, limit: usize) -> Result<Vec<Token>> {
        let rows = self.page_of(KIND_TOKEN, after.as_ref().map(TokenId::as_bytes), limit).await?;
        rows.iter().map(|(id, row)| rows::decode_token(TokenId::from_bytes(*id), row.as_bytes())).collect()
    }

    async fn delete(&self, id: TokenId) -> Result<()> {
        self.core.operate(&Operation::DeleteToken(id)).await.map(drop)
    }
}

impl CassandraStore {
    async fn page_of(&self, kind: &str, after: Option<&[u8; 16]>, limit: usize) -> Result<Vec<([u8; 16], String)>> {
        let after = after.map_or(&[][..], |id| &id[..]);
        let rows = entities::read_page(&self.core.connection, kind, after, limit).await?;
        rows.into_iter()
            .map(|(id, row)| <[u8; 16]>::try_from(id).map(|id| (id, row)).map_err(|_| damaged(kind)))
            .collect()
    }
}

fn inserted<Id>(outcome: Outcome, id: fn([u8; 16]) -> Id) -> Inserted<Id> {
    match outcome {
        Outcome::Done | Outcome::Outdated => Inserted::New,
        Outcome::Before(before) => Inserted::Before(id(before)),
    }
}

/// Rows of entities are JSON.
pub(crate) fn text(row: &Bytes) -> Result<String> {
    String::from_utf8(row.to_vec()).map_err(|error| Error::internal("could not encode a row").because(error))
}
