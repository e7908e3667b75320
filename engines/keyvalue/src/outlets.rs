//! Outlets: read whole when a node starts, then served from memory.

use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{
    Error, OutletId, Result,
    outlet::Outlet,
    port::{Idempotency, Inserted, Outlets, StreamLookup},
};

use crate::{
    KeyValueStore, Table,
    housekeeping::PURGE_OUTLET,
    keys, rows,
    streams::{made_before, remember},
};

#[async_trait]
impl Outlets for KeyValueStore {
    async fn insert(&self, outlet: &Outlet, once: Option<Idempotency>) -> Result<Inserted<OutletId>> {
        let (id, stream, row) = (outlet.id, outlet.stream, rows::encode_outlet(outlet)?);
        let cursor = rows::encode_cursor(outlet.start());
        self.write_entities(move |transaction| {
            if transaction.get(Table::Meta, &keys::stream(stream))?.is_none() {
                return Err(Error::not_found(format!("stream {stream} does not exist")));
            }
            if let Some(before) = made_before(transaction, once.as_ref())? {
                return Ok(Inserted::Before(OutletId::from_bytes(before)));
            }
            remember(transaction, once.as_ref(), id.as_bytes());
            if transaction.get(Table::Meta, &keys::outlet(id))?.is_some() {
                return Err(Error::conflict(format!("outlet {id} exists already")));
            }
            transaction.put(Table::Meta, keys::outlet(id), row);
            transaction.put(Table::Cursors, Bytes::copy_from_slice(id.as_bytes()), cursor);
            Ok(Inserted::New)
        })
        .await
    }

    async fn update(&self, outlet: &Outlet) -> Result<()> {
        let (id, row) = (outlet.id, rows::encode_outlet(outlet)?);
        self.write_entities(move |transaction| {
            if transaction.get(Table::Meta, &keys::outlet(id))?.is_none() {
                return Err(missing(id));
            }
            transaction.put(Table::Meta, keys::outlet(id), row);
            Ok(())
        })
        .await
    }

    async fn page(&self, after: Option<OutletId>, limit: usize, streams: &StreamLookup) -> Result<Vec<Outlet>> {
        let rows = self.meta_page(keys::OUTLETS, after.map(keys::outlet), limit)?;
        rows.into_iter()
            .map(|(id, row)| {
                let id = OutletId::from_bytes(id);
                let stream = streams(rows::outlet_stream(&row)?)
                    .ok_or_else(|| Error::internal(format!("the stream of outlet {id} is not in the store")))?;
                rows::decode_outlet(id, &stream, &row)
            })
            .collect()
    }

    async fn delete(&self, id: OutletId) -> Result<()> {
        self.write_entities(move |transaction| {
            if transaction.get(Table::Meta, &keys::outlet(id))?.is_none() {
                return Err(missing(id));
            }
            transaction.remove(Table::Meta, keys::outlet(id));
            transaction.put(Table::Meta, keys::purge(PURGE_OUTLET, id.as_bytes()), Bytes::new());
            Ok(())
        })
        .await
    }
}

fn missing(id: OutletId) -> Error {
    Error::not_found(format!("outlet {id} does not exist"))
}
