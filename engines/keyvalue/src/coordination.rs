//! Rows on which nodes agree, and the owner of an epoch. One process has these tables to itself, so that agreement is a
//! matter of the one thread that writes.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use flare_core::{
    Error, Result,
    port::{AgreedRow, Agreement, Coordination},
};

use crate::{
    Durability, KeyValue, KeyValueStore, Table, keys,
    rows::damaged,
    transaction::{Transaction, read_count},
};

#[async_trait]
impl Coordination for KeyValueStore {
    async fn get(&self, key: &str) -> Result<Option<AgreedRow>> {
        let key = keys::agreed(key);
        self.writer.transact(Durability::Now, move |transaction| read(transaction, &key)).await
    }

    async fn compare_and_set(&self, key: &str, seen: Option<u64>, value: Bytes) -> Result<Agreement> {
        let key = keys::agreed(key);
        self.writer
            .transact(Durability::Now, move |transaction| {
                let found = read(transaction, &key)?;
                if found.as_ref().map(|row| row.version) != seen {
                    return Ok(Agreement::Refused(found));
                }
                let version = seen.map_or(1, |seen| seen + 1);
                let mut row = BytesMut::with_capacity(size_of::<u64>() + value.len());
                row.put_u64(version);
                row.put_slice(&value);
                transaction.put(Table::Meta, key, row.freeze());
                Ok(Agreement::Applied(version))
            })
            .await
    }
}

fn read(transaction: &mut Transaction<'_>, key: &Bytes) -> Result<Option<AgreedRow>> {
    let Some(mut row) = transaction.get(Table::Meta, key)? else { return Ok(None) };
    let version = row.try_get_u64().map_err(|error| damaged("coordination").because(error))?;
    Ok(Some(AgreedRow { value: row, version }))
}

/// The newest owner that the map knows.
pub(crate) fn read_epoch(map: &dyn KeyValue) -> Result<u64> {
    read_count(map.get(Table::Meta, keys::EPOCH)?.as_ref())
}

impl KeyValueStore {
    pub(crate) async fn seal_epoch(&self, epoch: u64) -> Result<()> {
        let seal = move |transaction: &mut Transaction<'_>| {
            let owner = read_count(transaction.get(Table::Meta, &Bytes::from_static(keys::EPOCH))?.as_ref())?;
            if epoch < owner {
                return Err(Error::conflict(format!("epoch {owner} is newer than epoch {epoch}")));
            }
            let row = Bytes::copy_from_slice(&epoch.to_be_bytes());
            transaction.put(Table::Meta, Bytes::from_static(keys::EPOCH), row);
            Ok(())
        };
        self.writer.transact(Durability::Now, seal).await?;
        self.epoch.store(epoch, Ordering::Relaxed);
        Ok(())
    }
}
