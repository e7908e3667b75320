//! Rows on which nodes agree: single statements, which the server makes atomic.

use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{
    Result,
    port::{AgreedRow, Agreement, Coordination},
};
use tokio_postgres::Row;

use crate::{Inner, PostgresStore, connection::Call, failure::Failure, groups::unreadable};

const GET: &str = "SELECT version, value FROM agreed WHERE key = $1";
const CREATE: &str = "INSERT INTO agreed VALUES ($1, 1, $2) ON CONFLICT (key) DO NOTHING RETURNING version";
const REPLACE: &str = "UPDATE agreed SET version = version + 1, value = $2 WHERE key = $1 AND version = $3 \
    RETURNING version";

#[async_trait]
impl Coordination for PostgresStore {
    async fn get(&self, key: &str) -> Result<Option<AgreedRow>> {
        self.inner.agreed(key).await
    }

    async fn compare_and_set(&self, key: &str, seen: Option<u64>, value: Bytes) -> Result<Agreement> {
        let call = match seen {
            None => Call::new(CREATE).with(key.to_owned()).with(value.to_vec()),
            Some(seen) => {
                let seen = i64::try_from(seen).unwrap_or(i64::MAX);
                Call::new(REPLACE).with(key.to_owned()).with(value.to_vec()).with(seen)
            }
        };
        let rows = match self.inner.pool.query_once(&call).await {
            Ok(rows) => rows,
            // It was sent, and nobody has heard what came of it.
            Err(failure @ (Failure::Driver(_) | Failure::TimedOut)) if !failure.is_answer() => {
                let _noted = self.inner.pool.note::<()>(Err(failure));
                return Ok(Agreement::Unknown);
            }
            Err(failure) => return self.inner.pool.note(Err(failure)),
        };
        match rows.first() {
            Some(row) => Ok(Agreement::Applied(row.try_get::<_, i64>(0).map_err(unreadable)?.unsigned_abs())),
            None => Ok(Agreement::Refused(self.inner.agreed(key).await?)),
        }
    }
}

impl Inner {
    async fn agreed(&self, key: &str) -> Result<Option<AgreedRow>> {
        let read = |row: &Row| {
            let version = row.try_get::<_, i64>(0)?.unsigned_abs();
            Ok(AgreedRow { version, value: Bytes::copy_from_slice(row.try_get(1)?) })
        };
        let rows = self.pool.query(&Call::new(GET).with(key.to_owned())).await?;
        rows.first().map(|row| read(row).map_err(unreadable)).transpose()
    }
}
