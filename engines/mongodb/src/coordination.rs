//! Rows on which nodes agree: one document each, changed only by one who has seen it as it is.

use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{
    Error, Result,
    port::{AgreedRow, Agreement, Coordination},
};
use flare_toolkit::rows::damaged;
use mongodb::bson::{RawDocumentBuf, doc, raw::cstr, rawdoc};

use crate::{
    MongoStore,
    connection::{Durability, Failure},
    rows::{append_bytes, int, read_bytes, read_int},
    table::Table,
};

#[async_trait]
impl Coordination for MongoStore {
    async fn get(&self, key: &str) -> Result<Option<AgreedRow>> {
        let rows = self.connection.rows(Table::Agreed);
        let find = rows
            .find_one(doc! { "_id": key })
            .read_concern(self.connection.linearizable())
            .max_time(self.connection.timeout);
        let Some(row) = self.connection.call("read what was agreed on", find).await? else { return Ok(None) };
        let value = read_bytes(&row, "value").ok_or_else(|| damaged("agreed"))?;
        Ok(Some(AgreedRow { value, version: read_int(&row, "version")? }))
    }

    async fn compare_and_set(&self, key: &str, seen: Option<u64>, value: Bytes) -> Result<Agreement> {
        let version = seen.map_or(1, |seen| seen + 1);
        let mut row = rawdoc! { "_id": key, "version": int(version) };
        append_bytes(&mut row, cstr!("value"), &value);
        match self.write_agreed(key, seen, row).await {
            Ok(true) => Ok(Agreement::Applied(version)),
            Ok(false) => Ok(Agreement::Refused(self.get(key).await?)),
            Err(Failure::NotDone(error)) => Err(error),
            Err(Failure::Unknown(error)) => {
                tracing::debug!(key, reason = error.chain(), "nobody knows what became of an agreement");
                Ok(Agreement::Unknown)
            }
        }
    }
}

impl MongoStore {
    /// Whether the row was as it was seen, and is written. Sent once: a second time could meet its own first.
    async fn write_agreed(&self, key: &str, seen: Option<u64>, row: RawDocumentBuf) -> Result<bool, Failure> {
        match seen {
            None => {
                let reply = self.connection.insert(Table::Agreed, &[row], Durability::Journaled).await?;
                Ok(reply.duplicates == 0)
            }
            Some(seen) => {
                let Ok(seen) = i64::try_from(seen) else {
                    return Err(Failure::NotDone(Error::invalid("no row has such a version")));
                };
                let statement = rawdoc! { "q": { "_id": key, "version": seen }, "u": row };
                let reply = self.connection.update(Table::Agreed, &[statement], Durability::Journaled).await?;
                Ok(reply.matched == 1)
            }
        }
    }
}
