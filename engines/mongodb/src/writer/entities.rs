//! What becomes of writes of streams, outlets and tokens.
//!
//! What was deleted leaves a row that says so, for a day: a group may be applied late, and must not bring it back.

use bytes::Bytes;
use flare_core::{Error, OutletId, Result, Sequence, StreamId, TokenId, port::Idempotency};
use flare_toolkit::rows::damaged;
use jiff::Timestamp;
use mongodb::bson::{RawDocumentBuf, doc, rawdoc};

use super::{Done, Plan, Writer};
use crate::{
    log::Position,
    rows::{binary, body::entity_row, date, int, read_bytes, read_text},
    table::Table,
};

pub(crate) enum EntityWrite {
    InsertStream { id: StreamId, body: Bytes, once: Option<Idempotency>, seen: Option<u64> },
    DeleteStream(StreamId),
    InsertOutlet { id: OutletId, stream: StreamId, body: Bytes, start: Sequence, once: Option<Idempotency> },
    UpdateOutlet { id: OutletId, body: Bytes },
    DeleteOutlet(OutletId),
    InsertToken { id: TokenId, body: Bytes },
    DeleteToken(TokenId),
}

impl Writer {
    pub(super) async fn plan_entity(&self, position: Position, write: &EntityWrite) -> Result<Plan> {
        let mut plan = Plan::new(position);
        plan.group.touches_entities = true;
        let answer = self.decide(&mut plan, write).await;
        match &answer {
            // The store could not be asked.
            Err(error) if error.kind() == flare_core::ErrorKind::Unavailable => return Err(error.clone()),
            Err(_) => plan.group.rows = Default::default(),
            Ok(_) => {}
        }
        plan.answers.push(answer);
        Ok(plan)
    }

    async fn decide(&self, plan: &mut Plan, write: &EntityWrite) -> Result<Done> {
        let version = int(plan.group.base.version + 1);
        let start = |id: String| doc! { "_id": id, "version": version };
        match write {
            EntityWrite::InsertStream { id, body, once, seen } => {
                if let Some(before) = self.made_before(plan, once.as_ref(), id.as_bytes()).await? {
                    return Ok(Done::MadeBefore(before));
                }
                if seen.is_some_and(|seen| seen != plan.group.base.entities) {
                    plan.group.rows = Default::default();
                    return Ok(Done::Outdated);
                }
                self.require_absent(Table::Streams, "stream", &id.to_string()).await?;
                plan.group.rows.put(Table::Streams, entity_row(start(id.to_string()), body)?);
                plan.learnt.forgotten = Some(*id);
            }
            EntityWrite::DeleteStream(id) => {
                self.require_present(Table::Streams, "stream", &id.to_string()).await?;
                let theirs = doc! { "stream": id.to_string(), "removedAt": { "$exists": false } };
                if self.find(Table::Outlets, theirs).await?.is_some() {
                    return Err(Error::conflict(format!("stream {id} still has outlets")));
                }
                plan.remove(Table::Streams, "stream", &id.to_string(), version);
                plan.learnt.forgotten = Some(*id);
            }
            EntityWrite::InsertOutlet { id, stream, body, start: cursor, once } => {
                self.require_present(Table::Streams, "stream", &stream.to_string()).await?;
                if let Some(before) = self.made_before(plan, once.as_ref(), id.as_bytes()).await? {
                    return Ok(Done::MadeBefore(before));
                }
                self.require_absent(Table::Outlets, "outlet", &id.to_string()).await?;
                plan.group.rows.put(Table::Outlets, entity_row(start(id.to_string()), body)?);
                let cursor = rawdoc! { "_id": id.to_string(), "cursor": int(cursor.0), "epoch": 0i64 };
                plan.group.rows.put(Table::Cursors, cursor);
            }
            EntityWrite::UpdateOutlet { id, body } => {
                self.require_present(Table::Outlets, "outlet", &id.to_string()).await?;
                plan.group.rows.put(Table::Outlets, entity_row(start(id.to_string()), body)?);
            }
            EntityWrite::DeleteOutlet(id) => {
                self.require_present(Table::Outlets, "outlet", &id.to_string()).await?;
                plan.remove(Table::Outlets, "outlet", &id.to_string(), version);
            }
            EntityWrite::InsertToken { id, body } => {
                self.require_absent(Table::Tokens, "token", &id.to_string()).await?;
                plan.group.rows.put(Table::Tokens, entity_row(start(id.to_string()), body)?);
            }
            EntityWrite::DeleteToken(id) => {
                self.require_present(Table::Tokens, "token", &id.to_string()).await?;
                plan.group.rows.put(Table::Tokens, removed(&id.to_string(), version));
            }
        }
        Ok(Done::Entity)
    }

    async fn find(&self, table: Table, filter: mongodb::bson::Document) -> Result<Option<RawDocumentBuf>> {
        let rows = self.connection.rows(table);
        let find = rows.find_one(filter);
        self.connection.call("look up an entity", find).await
    }

    async fn require_absent(&self, table: Table, what: &str, id: &str) -> Result<()> {
        match self.find(table, doc! { "_id": id }).await? {
            Some(_) => Err(Error::conflict(format!("{what} {id} exists already"))),
            None => Ok(()),
        }
    }

    async fn require_present(&self, table: Table, what: &str, id: &str) -> Result<()> {
        match self.find(table, doc! { "_id": id, "removedAt": { "$exists": false } }).await? {
            Some(_) => Ok(()),
            None => Err(Error::not_found(format!("{what} {id} does not exist"))),
        }
    }

    /// The id that the same request made before, if it did; otherwise remembers that it makes `id` now.
    async fn made_before(
        &self,
        plan: &mut Plan,
        once: Option<&Idempotency>,
        id: &[u8; 16],
    ) -> Result<Option<[u8; 16]>> {
        let Some(once) = once else { return Ok(None) };
        if let Some(row) = self.find(Table::Idempotency, doc! { "_id": &once.key }).await? {
            return made_by(once, &row).map(Some);
        }
        plan.group.rows.put(
            Table::Idempotency,
            rawdoc! {
                "_id": once.key.as_str(),
                "fingerprint": binary(&once.fingerprint),
                "made": StreamId::from_bytes(*id).to_string(),
                "at": date(once.at),
            },
        );
        Ok(None)
    }
}

/// The id in an idempotency row, if it is of the same request.
pub(crate) fn made_by(once: &Idempotency, row: &RawDocumentBuf) -> Result<[u8; 16]> {
    if read_bytes(row, "fingerprint").as_deref() != Some(&once.fingerprint[..]) {
        let reused = format!("the idempotency key {:?} was used before for another request; use a new key", once.key);
        return Err(Error::invalid(reused));
    }
    let made: StreamId = read_text(row, "made")?.parse().map_err(|error| damaged("idempotency").because(error))?;
    Ok(*made.as_bytes())
}

/// What is left of something deleted.
fn removed(id: &str, version: i64) -> RawDocumentBuf {
    rawdoc! { "_id": id, "version": version, "removedAt": date(Timestamp::now()) }
}

impl Plan {
    /// Removes an entity now, and what belongs to it in the background.
    fn remove(&mut self, table: Table, kind: &str, id: &str, version: i64) {
        self.group.rows.put(table, removed(id, version));
        self.group.rows.put(Table::Purges, rawdoc! { "_id": { "kind": kind, "id": id } });
    }
}
