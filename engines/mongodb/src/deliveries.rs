//! What outlets have, and where they stand.

use std::{collections::HashMap, sync::atomic::Ordering};

use async_trait::async_trait;
use flare_core::{
    DocumentNumber, Error, OutletId, Result, Sequence, StreamId,
    delivery::{AttemptQuery, AttemptRecord, Behind, DeadLetter},
    document::{Progress, Retry, Standing, Version},
    port::{Deliveries, Span},
    replay::Replay,
};
use flare_toolkit::{
    batch::BatchLimits,
    rows::{damaged, decode_attempts, decode_dead_letter, decode_replay, encode_replay, micros, timestamp},
};
use futures_util::TryStreamExt;
use jiff::Timestamp;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};

use crate::{
    MongoStore,
    connection::{Connection, Durability, Failure},
    record::{nanos, owner_epoch, replaced},
    rows::{
        body::{entity_json, entity_row},
        date, int, read_bytes, read_int, read_outlet_document, read_retry, read_text, read_version,
    },
    table::Table,
};

/// Progress of many outlets goes together, in order.
pub(crate) const RECORD_LIMITS: BatchLimits =
    BatchLimits { jobs_max: 512, weight_max: 5000, waiting_max: 8192, lanes: 1 };
/// Documents compared in one step.
const COMPARE_MAX: i64 = 1000;

#[async_trait]
impl Deliveries for MongoStore {
    async fn seal(&self, epoch: u64) -> Result<()> {
        let statement = rawdoc! {
            "q": { "_id": "owner", "epoch": { "$lte": int(epoch) } },
            "u": { "$set": { "epoch": int(epoch) } },
            "upsert": true,
        };
        let sealed = self.connection.update(Table::Head, &[statement], Durability::Journaled).await;
        if sealed.map_err(Failure::into_error)?.duplicates > 0 {
            return Err(replaced(owner_epoch(&self.connection).await?, epoch));
        }
        self.epoch.store(epoch, Ordering::Relaxed);
        Ok(())
    }

    async fn record(&self, progress: Vec<Progress>) -> Result<()> {
        let weight = progress.len();
        self.records.run((self.epoch.load(Ordering::Relaxed), progress), weight).await
    }

    async fn version(&self, outlet: OutletId, number: DocumentNumber) -> Result<Option<Version>> {
        self.versions.run((outlet, number), 1).await
    }

    async fn standings(&self, after: Option<OutletId>, limit: usize) -> Result<Vec<Standing>> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let filter = after.map_or_else(Document::new, |after| doc! { "_id": { "$gt": after.to_string() } });
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.connection.rows(Table::Cursors);
        let find = rows.find(filter).sort(doc! { "_id": 1 }).limit(limit);
        let read = async { find.await?.try_collect::<Vec<_>>().await };
        let cursors = self.connection.call("read cursors", read).await?;
        self.stand(&cursors).await
    }

    async fn standing(&self, outlet: OutletId) -> Result<Standing> {
        let rows = self.connection.rows(Table::Cursors);
        let find = rows.find_one(doc! { "_id": outlet.to_string() });
        let cursor = self.connection.call("read a cursor", find).await?;
        let standings = self.stand(cursor.as_slice()).await?;
        standings.into_iter().next().ok_or_else(|| Error::not_found(format!("outlet {outlet} does not exist")))
    }

    async fn missing(&self, stream: StreamId, outlet: OutletId, span: Span, limit: usize) -> Result<Vec<Behind>> {
        let mut behind = Vec::new();
        let (mut after, until) = (int(span.after.0), int(span.until.0));
        while behind.len() < limit {
            let filter = doc! { "stream": stream.to_string(), "sequence": { "$gt": after, "$lte": until } };
            let rows = self.connection.rows(Table::Documents);
            let find = rows.find(filter);
            let find = find.sort(doc! { "sequence": 1 }).limit(COMPARE_MAX);
            let read = async { find.await?.try_collect::<Vec<_>>().await };
            let rows = self.connection.call("compare documents", read).await?;
            let Some(last) = rows.last() else { break };
            after = int(read_int(last, "sequence")?);
            behind.extend(self.behind(outlet, &rows).await?);
        }
        behind.truncate(limit);
        Ok(behind)
    }

    async fn dead_letters(&self, outlet: OutletId, offset: usize, limit: usize) -> Result<(Vec<DeadLetter>, usize)> {
        let filter = doc! { "_id": of_outlet(outlet, "sequence") };
        let rows = self.connection.rows(Table::DeadLetters);
        let total = self.connection.call("count dead letters", rows.count_documents(filter.clone())).await? as usize;
        if limit == 0 || offset >= total {
            return Ok((Vec::new(), total));
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let find = rows.find(filter).sort(doc! { "_id": 1 }).skip(offset as u64).limit(limit);
        let read = async { find.await?.try_collect::<Vec<RawDocumentBuf>>().await };
        let rows = self.connection.call("read dead letters", read).await?;
        let letters: Result<_> = rows.iter().map(|row| decode_dead_letter(outlet, &entity_json(row)?)).collect();
        Ok((letters?, total))
    }

    async fn discard_dead_letters(&self, outlet: OutletId, sequences: Vec<Sequence>) -> Result<()> {
        let ids: Vec<Bson> = sequences
            .into_iter()
            .map(|sequence| doc! { "outlet": outlet.to_string(), "sequence": int(sequence.0) }.into())
            .collect();
        let rows = self.connection.rows(Table::DeadLetters);
        let delete = rows.delete_many(doc! { "_id": { "$in": ids } });
        self.connection.call("discard dead letters", delete).await.map(drop)
    }

    async fn attempts(&self, outlet: OutletId, query: AttemptQuery) -> Result<Vec<AttemptRecord>> {
        let mut range = of_outlet(outlet, "at");
        if let Some(before) = query.before {
            range.insert("$lt", doc! { "outlet": outlet.to_string(), "at": nanos(before) });
        }
        let rows = self.connection.rows(Table::Attempts);
        let read = async {
            let mut found = Vec::new();
            let mut cursor = rows.find(doc! { "_id": range }).sort(doc! { "_id": -1 }).await?;
            while found.len() < query.limit
                && let Some(row) = cursor.try_next().await?
            {
                let records = read_bytes(&row, "records").ok_or_else(|| damaged("attempts"));
                let attempts = match records.and_then(decode_attempts) {
                    Ok(attempts) => attempts,
                    Err(error) => return Ok(Err(error)),
                };
                let newest = attempts.last().map(|attempt| attempt.at);
                found.extend(attempts.into_iter().rev().filter(|attempt| query.matches(attempt)));
                if query.since.zip(newest).is_some_and(|(since, newest)| newest < since) {
                    break;
                }
            }
            found.truncate(query.limit);
            Ok(Ok(found))
        };
        self.connection.call("read attempts", read).await?
    }

    async fn forget_attempts(&self, older_than: Timestamp) -> Result<()> {
        let old = doc! { "at": { "$lt": date(older_than) } };
        crate::purge::remove_all(&self.connection, Table::Attempts, &old).await
    }

    async fn forget_dead_letters(&self, older_than: Timestamp) -> Result<()> {
        let old = doc! { "at": { "$lt": micros(older_than) } };
        crate::purge::remove_all(&self.connection, Table::DeadLetters, &old).await
    }

    async fn save_replay(&self, outlet: OutletId, replay: Option<Replay>) -> Result<()> {
        let rows = self.connection.rows(Table::Replays);
        let key = doc! { "_id": outlet.to_string() };
        match replay {
            Some(replay) => {
                let row = entity_row(key.clone(), &encode_replay(&replay)?)?;
                let replace = rows.replace_one(key, row).upsert(true);
                self.connection.call("save a replay", replace).await.map(drop)
            }
            None => self.connection.call("end a replay", rows.delete_one(key)).await.map(drop),
        }
    }

    async fn replays(&self) -> Result<Vec<Replay>> {
        let rows = self.connection.rows(Table::Replays);
        let find = rows.find(doc! {}).sort(doc! { "_id": 1 });
        let read = async { find.await?.try_collect::<Vec<_>>().await };
        let rows = self.connection.call("read replays", read).await?;
        rows.iter().map(|row| decode_replay(outlet_id(row)?, &entity_json(row)?)).collect()
    }
}

impl MongoStore {
    /// Where the outlets of these cursors stand.
    async fn stand(&self, cursors: &[RawDocumentBuf]) -> Result<Vec<Standing>> {
        let (Some(first), Some(last)) = (cursors.first(), cursors.last()) else { return Ok(Vec::new()) };
        let (first, last): (OutletId, OutletId) = (outlet_id(first)?, outlet_id(last)?);
        let range = doc! { "$gte": { "outlet": first.to_string(), "number": Bson::MinKey },
        "$lt": { "outlet": last.to_string(), "number": Bson::MaxKey } };
        let filter = doc! { "_id": range, "settledAt": { "$exists": false } };
        let rows = self.connection.rows(Table::Retries);
        let find = rows.find(filter).sort(doc! { "_id": 1 });
        let read = async { find.await?.try_collect::<Vec<_>>().await };
        let mut retries: HashMap<OutletId, Vec<Retry>> = HashMap::new();
        for row in self.connection.call("read retries", read).await? {
            let retry = read_retry(&row)?;
            retries.entry(retry.outlet).or_default().push(retry);
        }
        let range = doc! { "$gte": first.to_string(), "$lte": last.to_string() };
        let rows = self.connection.rows(Table::Demands);
        let find = rows.find(doc! { "_id": range });
        let read = async { find.await?.try_collect::<Vec<_>>().await };
        let mut demands = HashMap::new();
        for row in self.connection.call("read demands", read).await? {
            demands.insert(outlet_id(&row)?, read_int(&row, "left")?);
        }
        let standing = |row: &RawDocumentBuf| {
            let outlet = outlet_id(row)?;
            Ok(Standing {
                outlet,
                cursor: Sequence(read_int(row, "cursor")?),
                retries: retries.remove(&outlet).unwrap_or_default(),
                demand: demands.get(&outlet).copied().unwrap_or(0),
                failing_since: row.get_i64("failingSince").ok().map(timestamp).transpose()?,
            })
        };
        cursors.iter().map(standing).collect()
    }

    /// Those of the documents that the outlet does not have.
    async fn behind(&self, outlet: OutletId, documents: &[RawDocumentBuf]) -> Result<Vec<Behind>> {
        let mut heads = Vec::with_capacity(documents.len());
        for row in documents {
            heads.push((crate::rows::read_document_key(row)?.1, crate::rows::DocumentHead::read(row)?));
        }
        let keys = heads.iter().map(|(_, head)| (outlet, head.number)).collect();
        let versions = read_versions(&self.connection, keys).await?;
        let mut behind = Vec::new();
        for ((url, head), version) in heads.into_iter().zip(versions) {
            if version?.is_none_or(|version| version.sequence < head.sequence) {
                let (number, sequence, revision) = (head.number, head.sequence, head.revision);
                behind.push(Behind { number, url, sequence, revision, updated_at: head.updated_at });
            }
        }
        Ok(behind)
    }
}

/// Reads many versions at once; the answers are in the order of the keys.
pub(crate) async fn read_versions(
    connection: &Connection,
    keys: Vec<(OutletId, DocumentNumber)>,
) -> Result<Vec<Result<Option<Version>>>> {
    let ids: Vec<Bson> = keys
        .iter()
        .map(|(outlet, number)| doc! { "outlet": outlet.to_string(), "number": int(number.0) }.into())
        .collect();
    let rows = connection.rows(Table::Versions);
    let find = rows.find(doc! { "_id": { "$in": ids } });
    let read = async { find.await?.try_collect::<Vec<_>>().await };
    let mut found = HashMap::with_capacity(keys.len());
    for row in connection.call("read versions", read).await? {
        found.insert(read_outlet_document(&row)?, read_version(&row)?);
    }
    Ok(keys.into_iter().map(|key| Ok(found.get(&key).copied())).collect())
}

/// The range of keys that begin with an outlet.
pub(crate) fn of_outlet(outlet: OutletId, second: &str) -> Document {
    let outlet = outlet.to_string();
    doc! { "$gte": { "outlet": &outlet, second: Bson::MinKey }, "$lt": { "outlet": &outlet, second: Bson::MaxKey } }
}

fn outlet_id(row: &RawDocumentBuf) -> Result<OutletId> {
    read_text(row, "_id")?.parse().map_err(|error| damaged("outlet").because(error))
}
