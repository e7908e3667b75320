//! What a job has done, in a collection of its own beside the target. It is there from the beginning of the job to its
//! end.

use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{ErrorKind as MongoKind, WriteFailure};
use mongodb::options::WriteConcern;
use mongodb::{Collection, Database};

use super::failure::{DUPLICATE_KEY, NAMESPACE_EXISTS, NAMESPACE_NOT_FOUND, code, failure};
use crate::error::Result;

/// The entry of the job itself.
const JOB: &str = "job";

#[derive(Clone)]
pub(super) struct Ledger {
    entries: Collection<Document>,
}

/// What the ledger says when a chunk begins to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Begun {
    First,
    /// Some of it may be there.
    Again,
    /// All of it is there.
    Done(u64),
}

impl Ledger {
    pub fn of(database: &Database, job: &str) -> Self {
        Self { entries: database.collection(&format!("flare_dump_{job}")) }
    }

    /// When the job began, in seconds, if its ledger is there.
    pub async fn began(&self) -> Result<Option<u32>> {
        let entry = self.entry(JOB).await?;
        Ok(entry.map(|entry| entry.get_i64("began").ok().and_then(|at| u32::try_from(at).ok()).unwrap_or_default()))
    }

    /// Makes the ledger, unless it is there.
    pub async fn begin(&self, at: u32) -> Result<()> {
        let entry = doc! { "_id": JOB, "began": i64::from(at) };
        match self.entries.insert_one(entry).write_concern(durable()).await {
            Err(error) if !is_duplicate(&error) => Err(failure("the ledger cannot be made", error)),
            _ => Ok(()),
        }
    }

    pub async fn done(&self, chunk: &str) -> Result<Option<u64>> {
        Ok(self.entry(&name(chunk)).await?.and_then(|entry| rows(&entry)))
    }

    /// Notes that a chunk begins to be written, before any of it is.
    pub async fn begin_chunk(&self, chunk: &str) -> Result<Begun> {
        let entry = doc! { "_id": name(chunk), "rows": Bson::Null };
        match self.entries.insert_one(entry).write_concern(durable()).await {
            Ok(_) => Ok(Begun::First),
            Err(error) if is_duplicate(&error) => Ok(match self.done(chunk).await? {
                Some(rows) => Begun::Done(rows),
                None => Begun::Again,
            }),
            Err(error) => Err(failure("the ledger cannot be written", error)),
        }
    }

    /// Notes that all of a chunk is there.
    pub async fn complete(&self, chunk: &str, rows: u64) -> Result<()> {
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        let entry = doc! { "_id": name(chunk), "rows": rows };
        let written = self.entries.replace_one(doc! { "_id": name(chunk) }, entry);
        let written = written.upsert(true).write_concern(durable()).await;
        written.map(|_| ()).map_err(|error| failure("the ledger cannot be written", error))
    }

    pub async fn remove(&self) -> Result<()> {
        match self.entries.drop().await {
            Err(error) if code(&error) != Some(NAMESPACE_NOT_FOUND) => {
                Err(failure("the ledger cannot be removed", error))
            }
            _ => Ok(()),
        }
    }

    async fn entry(&self, id: &str) -> Result<Option<Document>> {
        let entry = self.entries.find_one(doc! { "_id": id }).await;
        entry.map_err(|error| failure("the ledger cannot be read", error))
    }
}

fn name(chunk: &str) -> String {
    format!("chunk {chunk}")
}

fn rows(entry: &Document) -> Option<u64> {
    entry.get_i64("rows").ok().and_then(|rows| u64::try_from(rows).ok())
}

/// Not to be lost with one server or one loss of power.
fn durable() -> WriteConcern {
    let mut concern = WriteConcern::majority();
    concern.journal = Some(true);
    concern
}

fn is_duplicate(error: &mongodb::error::Error) -> bool {
    matches!(&*error.kind, MongoKind::Write(WriteFailure::WriteError(error)) if error.code == DUPLICATE_KEY)
}

/// Makes a collection, unless it is there.
pub(super) async fn create(database: &Database, name: &str, options: Option<Document>) -> Result<()> {
    let mut command = doc! { "create": name };
    command.extend(options.unwrap_or_default());
    match database.run_command(command).await {
        Err(error) if code(&error) != Some(NAMESPACE_EXISTS) => {
            Err(failure(&format!("the collection {name:?} cannot be made"), error))
        }
        _ => Ok(()),
    }
}
