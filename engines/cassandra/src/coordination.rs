//! Rows on which nodes agree: a partition each, conditional writes and serial reads only.

use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{
    Result,
    port::{AgreedRow, Agreement, Coordination},
};
use uuid::Uuid;

use crate::{
    CassandraStore, Core,
    connection::{Connection, Decision},
    statement::Query,
};

const READ: Query = Query::serial_read("SELECT version, value, op FROM agreed WHERE key = ?");
const INSERT: Query =
    Query::conditional("INSERT INTO agreed (key, version, value, op) VALUES (?, ?, ?, ?) IF NOT EXISTS");
const UPDATE: Query =
    Query::conditional("UPDATE agreed SET version = ?, value = ?, op = ? WHERE key = ? IF version = ?");

/// How often a write whose outcome is not known is made again.
const REPEATS_MAX: usize = 3;
/// Writers of one row on this node wait for each other: Cassandra is slow when many want the same row at once.
pub(crate) const LOCKS: usize = 64;

#[async_trait]
impl Coordination for CassandraStore {
    async fn get(&self, key: &str) -> Result<Option<AgreedRow>> {
        read(&self.core.connection, key).await
    }

    async fn compare_and_set(&self, key: &str, seen: Option<u64>, value: Bytes) -> Result<Agreement> {
        self.core.set_agreed(key, seen, value).await
    }
}

pub(crate) async fn read(connection: &Connection, key: &str) -> Result<Option<AgreedRow>> {
    Ok(read_with_op(connection, key).await?.map(|(row, _)| row))
}

async fn read_with_op(connection: &Connection, key: &str) -> Result<Option<(AgreedRow, Option<Uuid>)>> {
    type Row = (Option<i64>, Option<Vec<u8>>, Option<Uuid>);
    let row: Option<Row> = connection.row(READ, (key,)).await?;
    Ok(row.and_then(|(version, value, op)| {
        let value = Bytes::from(value.unwrap_or_default());
        Some((AgreedRow { value, version: version? as u64 }, op))
    }))
}

impl Core {
    /// Writes the row if it is still the one that was seen.
    ///
    /// A write whose answer is lost is made again under the same name: one of the two can be applied, and the row says
    /// whether it was ours, as long as nobody has written it since.
    pub async fn set_agreed(&self, key: &str, seen: Option<u64>, value: Bytes) -> Result<Agreement> {
        let _turn = self.agreed_lock(key).lock().await;
        let (op, version) = (Uuid::new_v4(), seen.map_or(1, |seen| seen + 1));
        for repeat in 0..=REPEATS_MAX {
            let write: (Query, Box<dyn scylla::serialize::row::SerializeRow + Send + Sync>) = match seen {
                None => (INSERT, Box::new((key.to_owned(), version as i64, value.clone(), op))),
                Some(seen) => (UPDATE, Box::new((version as i64, value.clone(), op, key.to_owned(), seen as i64))),
            };
            match self.connection.compare_and_set(vec![write]).await {
                Decision::Applied => return Ok(Agreement::Applied(version)),
                Decision::Refused => return self.refused(key, op, version, repeat > 0).await,
                Decision::NotTried(error) if repeat == 0 => return Err(error),
                Decision::NotTried(_) | Decision::Unknown(_) => {}
            }
        }
        Ok(Agreement::Unknown)
    }

    async fn refused(&self, key: &str, op: Uuid, version: u64, was_unknown: bool) -> Result<Agreement> {
        let found = match read_with_op(&self.connection, key).await {
            Ok(found) => found,
            Err(_) if was_unknown => return Ok(Agreement::Unknown),
            Err(error) => return Err(error),
        };
        match found {
            Some((_, Some(writer))) if writer == op => Ok(Agreement::Applied(version)),
            // Ours may have been applied before the one that is there.
            Some((row, _)) if was_unknown && row.version > version => Ok(Agreement::Unknown),
            found => Ok(Agreement::Refused(found.map(|(row, _)| row))),
        }
    }
}
