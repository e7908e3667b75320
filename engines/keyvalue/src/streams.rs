//! Streams: few rows, read whole when a node starts.

use std::ops::ControlFlow;

use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{
    Error, Result, StreamId,
    port::{Idempotency, Inserted, Streams},
    stream::Stream,
};

use crate::{KeyValueStore, Table, housekeeping::PURGE_STREAM, keys, rows, transaction::Transaction};

#[async_trait]
impl Streams for KeyValueStore {
    async fn insert(
        &self,
        stream: &Stream,
        once: Option<Idempotency>,
        seen: Option<u64>,
    ) -> Result<Option<Inserted<StreamId>>> {
        let (id, row) = (stream.id, rows::encode_stream(stream)?);
        self.write_entities(move |transaction| {
            if let Some(before) = made_before(transaction, once.as_ref())? {
                return Ok(Some(Inserted::Before(StreamId::from_bytes(before))));
            }
            if seen.is_some() && seen != Some(transaction.count(keys::ENTITIES)?) {
                return Ok(None);
            }
            remember(transaction, once.as_ref(), id.as_bytes());
            if transaction.get(Table::Meta, &keys::stream(id))?.is_some() {
                return Err(Error::conflict(format!("stream {id} exists already")));
            }
            transaction.put(Table::Meta, keys::stream(id), row);
            Ok(Some(Inserted::New))
        })
        .await
    }

    async fn made_by(&self, once: &Idempotency) -> Result<Option<StreamId>> {
        let row = self.map.get(Table::Meta, &keys::idempotency(&once.key))?;
        row.map(|row| made_by(once, &row).map(StreamId::from_bytes)).transpose()
    }

    async fn page(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<Stream>> {
        let after = after.map(keys::stream);
        self.meta_page(keys::STREAMS, after, limit)?
            .into_iter()
            .map(|(id, row)| rows::decode_stream(StreamId::from_bytes(id), &row))
            .collect()
    }

    async fn delete(&self, id: StreamId) -> Result<()> {
        let map = self.map.clone();
        self.write_entities(move |transaction| {
            if transaction.get(Table::Meta, &keys::stream(id))?.is_none() {
                return Err(Error::not_found(format!("stream {id} does not exist")));
            }
            let mut has_outlets = Ok(false);
            map.scan(Table::Meta, keys::OUTLETS, &keys::after_prefix(keys::OUTLETS), &mut |_, row| {
                has_outlets = rows::outlet_stream(&row).map(|stream| stream == id);
                if matches!(has_outlets, Ok(false)) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            if has_outlets? {
                return Err(Error::conflict(format!("stream {id} still has outlets")));
            }
            transaction.remove(Table::Meta, keys::stream(id));
            transaction.remove(Table::Meta, keys::count(id));
            transaction.put(Table::Meta, keys::purge(PURGE_STREAM, id.as_bytes()), Bytes::new());
            Ok(())
        })
        .await
    }
}

impl KeyValueStore {
    /// Ids and rows of one kind in `Meta` after a key, in key order.
    pub(crate) fn meta_page(
        &self,
        prefix: &[u8],
        after: Option<Bytes>,
        limit: usize,
    ) -> Result<Vec<([u8; 16], Bytes)>> {
        let from = after.map_or_else(|| Bytes::copy_from_slice(prefix), |key| keys::after(&key));
        let mut page = Vec::new();
        if limit == 0 {
            return Ok(page);
        }
        self.map.scan(Table::Meta, &from, &keys::after_prefix(prefix), &mut |key, row| {
            page.extend(keys::tail::<16>(&key).map(|id| (id, row)));
            if page.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(page)
    }
}

/// The id that the same request made before, if it did.
pub(crate) fn made_before(transaction: &mut Transaction<'_>, once: Option<&Idempotency>) -> Result<Option<[u8; 16]>> {
    let Some(once) = once else { return Ok(None) };
    let row = transaction.get(Table::Meta, &keys::idempotency(&once.key))?;
    row.map(|row| made_by(once, &row)).transpose()
}

/// Remembers that the request makes `id` now.
pub(crate) fn remember(transaction: &mut Transaction<'_>, once: Option<&Idempotency>, id: &[u8; 16]) {
    if let Some(once) = once {
        transaction.put(Table::Meta, keys::idempotency(&once.key), rows::encode_idempotency(once, id));
    }
}

/// The id in an idempotency row, if it is of the same request.
fn made_by(once: &Idempotency, row: &[u8]) -> Result<[u8; 16]> {
    let (fingerprint, made) = rows::decode_idempotency(row)?;
    if fingerprint == once.fingerprint {
        return Ok(made);
    }
    let reused = format!("the idempotency key {:?} was used before for another request; use a new key", once.key);
    Err(Error::invalid(reused))
}
