//! The layout of the database: steps that are taken once each.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use flare_core::{
    Error, Result,
    port::{Migration, Schema},
};
use futures_util::TryStreamExt;
use jiff::{SignedDuration, Timestamp};
use mongodb::{
    IndexModel,
    bson::{Document, doc, oid::ObjectId, rawdoc},
    options::IndexOptions,
};

use crate::{
    connection::{Connection, Durability, Failure},
    rows::date,
    table::Table,
};

/// All steps, the first is number one. A step may be taken again, as one that was interrupted is.
const STEPS: [&str; 1] = ["the head and the indexes"];
/// A node that does not end its steps is not waited for any longer.
const LOCK_DURATION: SignedDuration = SignedDuration::from_secs(60);
const LOCK_WAIT: Duration = Duration::from_millis(50);
/// What was deleted leaves its row for so long, and a client's key is remembered as long.
const DAY: Duration = Duration::from_secs(25 * 60 * 60);
/// A settled retry leaves its row for so long.
const HOUR: Duration = Duration::from_secs(60 * 60);

pub(crate) struct MongoSchema {
    connection: Arc<Connection>,
}

impl MongoSchema {
    pub fn new(connection: Arc<Connection>) -> Self {
        Self { connection }
    }

    async fn lock(&self, holder: ObjectId) -> Result<()> {
        loop {
            let (now, until) = (Timestamp::now(), Timestamp::now() + LOCK_DURATION);
            let statement = rawdoc! {
                "q": { "_id": "lock", "until": { "$lt": date(now) } },
                "u": { "$set": { "holder": holder, "until": date(until) } },
                "upsert": true,
            };
            let reply = self.connection.update(Table::Migrations, &[statement], Durability::Journaled).await;
            if reply.map_err(Failure::into_error)?.duplicates == 0 {
                return Ok(());
            }
            tokio::time::sleep(LOCK_WAIT).await;
        }
    }

    async fn unlock(&self, holder: ObjectId) -> Result<()> {
        let mine = doc! { "_id": "lock", "holder": holder };
        let rows = self.connection.rows(Table::Migrations);
        let delete = rows.delete_one(mine);
        self.connection.call("end the migration", delete).await.map(drop)
    }

    async fn take_missing(&self) -> Result<Vec<Migration>> {
        let mut taken = Vec::new();
        for migration in self.status().await?.into_iter().filter(|step| step.applied_at.is_none()) {
            tracing::info!(number = migration.number, name = migration.name, "migrating the store");
            match migration.number {
                1 => self.make_head_and_indexes().await?,
                number => return Err(Error::internal(format!("migration {number} is not known"))),
            }
            let applied_at = Timestamp::now();
            let row = doc! {
                "_id": i64::from(migration.number), "name": &migration.name, "appliedAt": date(applied_at),
            };
            let key = doc! { "_id": i64::from(migration.number) };
            let rows = self.connection.database().collection::<Document>(Table::Migrations.name());
            self.connection.call("note a migration", rows.replace_one(key, row).upsert(true)).await?;
            taken.push(Migration { applied_at: Some(applied_at), ..migration });
        }
        Ok(taken)
    }

    async fn make_head_and_indexes(&self) -> Result<()> {
        let rows = [
            rawdoc! { "_id": "head", "version": 0i64, "sequence": 0i64, "entitiesRevision": 0i64, "recent": [] },
            rawdoc! { "_id": "applied", "version": 0i64, "sequence": 0i64 },
            rawdoc! { "_id": "owner", "epoch": 0i64 },
        ];
        let made = self.connection.insert(Table::Head, &rows, Durability::Journaled).await;
        made.map_err(Failure::into_error)?;
        let plain = [
            (Table::Changes, doc! { "stream": 1, "_id": 1 }),
            (Table::Changes, doc! { "number": 1, "_id": 1 }),
            (Table::Documents, doc! { "stream": 1, "sequence": 1 }),
            (Table::Outlets, doc! { "stream": 1 }),
            (Table::Attempts, doc! { "at": 1 }),
        ];
        for (table, keys) in plain {
            self.make_index(table, keys, None).await?;
        }
        let expiring = [
            (Table::Streams, "removedAt", DAY),
            (Table::Outlets, "removedAt", DAY),
            (Table::Tokens, "removedAt", DAY),
            (Table::Idempotency, "at", DAY),
            (Table::Retries, "settledAt", HOUR),
        ];
        for (table, member, after) in expiring {
            self.make_index(table, doc! { member: 1 }, Some(after)).await?;
        }
        Ok(())
    }

    async fn make_index(&self, table: Table, keys: Document, expire_after: Option<Duration>) -> Result<()> {
        let options = IndexOptions::builder().expire_after(expire_after).build();
        let index = IndexModel::builder().keys(keys).options(options).build();
        let rows = self.connection.rows(table);
        // An index over much data takes its time.
        let make = rows.create_index(index);
        make.await.map(drop).map_err(|error| self.connection.unavailable("make an index", error))
    }
}

#[async_trait]
impl Schema for MongoSchema {
    async fn status(&self) -> Result<Vec<Migration>> {
        let rows = self.connection.rows(Table::Migrations);
        let find = rows.find(doc! { "_id": { "$ne": "lock" } });
        let find = find.read_concern(self.connection.committed());
        let read = async { find.await?.try_collect::<Vec<_>>().await };
        let rows = self.connection.call("read the migrations", read).await?;
        let mut steps: Vec<Migration> = (1u32..)
            .zip(STEPS)
            .map(|(number, name)| Migration { number, name: name.into(), applied_at: None })
            .collect();
        for row in rows {
            let number = row.get_i64("_id").unwrap_or(i64::MAX);
            let Some(step) = steps.iter_mut().find(|step| i64::from(step.number) == number) else {
                let newest = STEPS.len();
                return Err(Error::invalid(format!(
                    "the data has migration {number}, made by a newer version of Flare; this version knows \
                     migrations up to {newest}: run the newer version, or choose another database"
                )));
            };
            let at = row.get_datetime("appliedAt").ok();
            step.applied_at = at.and_then(|at| Timestamp::from_millisecond(at.timestamp_millis()).ok());
        }
        Ok(steps)
    }

    async fn up(&self) -> Result<Vec<Migration>> {
        if self.status().await?.iter().all(|step| step.applied_at.is_some()) {
            return Ok(Vec::new());
        }
        let holder = ObjectId::new();
        self.lock(holder).await?;
        let taken = self.take_missing().await;
        self.unlock(holder).await?;
        taken
    }
}
