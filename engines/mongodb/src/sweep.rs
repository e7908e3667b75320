//! Replaced changes are forgotten after a while.
//!
//! A sweep goes once through the changes of a span of time and removes those that were replaced by then. What is replaced
//! later is found by what has replaced it: each sweep also looks through the changes that have come since the last one.

use flare_core::{Result, Sequence, port::Documents};
use futures_util::TryStreamExt;
use jiff::Timestamp;
use mongodb::bson::{Bson, RawDocumentBuf, doc};

use crate::{
    MongoStore,
    rows::{date, int, read_int, read_text},
    table::Table,
};

/// Changes looked at in one step.
const STEP_MAX: i64 = 1000;

/// How far sweeps have come.
#[derive(Clone, Copy, Debug)]
struct Swept {
    /// Replaced changes up to here are removed.
    until: Sequence,
    /// Changes up to here were asked what they replaced.
    examined: Sequence,
}

impl MongoStore {
    pub(crate) async fn sweep_changes(&self, older_than: Timestamp) -> Result<u64> {
        let swept = self.swept().await?;
        let head = self.follower.head();
        let to = self.sequence_at(older_than).await?.min(head);
        let mut removed = self.remove_replaced_by(swept, head).await?;
        if to > swept.until {
            removed += self.remove_replaced(swept.until, to).await?;
        }
        self.note_swept(Swept { until: to.max(swept.until), examined: head.max(swept.examined) }).await?;
        self.forget_clock(older_than).await?;
        Ok(removed)
    }

    /// Removes what lies in the part that was swept before and was replaced since.
    async fn remove_replaced_by(&self, swept: Swept, head: Sequence) -> Result<u64> {
        let mut removed = 0;
        let mut after = swept.examined;
        while swept.until > Sequence::START && after < head {
            let rows = self.changes_after(after, head).await?;
            let Some(last) = rows.last() else { break };
            after = Sequence(read_int(last, "_id")?);
            let replaced = rows.iter().filter_map(|row| row.get_i64("replaces").ok());
            removed += self.remove_changes(replaced.filter(|old| *old <= int(swept.until.0)).collect()).await?;
        }
        Ok(removed)
    }

    /// Removes what lies in the span and is not the newest change of its document.
    async fn remove_replaced(&self, from: Sequence, to: Sequence) -> Result<u64> {
        let mut removed = 0;
        let mut after = from;
        while after < to {
            let rows = self.changes_after(after, to).await?;
            let Some(last) = rows.last() else { break };
            after = Sequence(read_int(last, "_id")?);
            let newest = self.newest(&rows).await?;
            let mut replaced = Vec::new();
            for row in &rows {
                let sequence = read_int(row, "_id")?;
                if newest.get(&read_int(row, "number")?).is_some_and(|newest| *newest > sequence) {
                    replaced.push(int(sequence));
                }
            }
            removed += self.remove_changes(replaced).await?;
        }
        Ok(removed)
    }

    async fn changes_after(&self, after: Sequence, until: Sequence) -> Result<Vec<RawDocumentBuf>> {
        let filter = doc! { "_id": { "$gt": int(after.0), "$lte": int(until.0) } };
        let members = doc! { "stream": 1, "url": 1, "number": 1, "replaces": 1 };
        let rows = self.connection.rows(Table::Changes);
        let find = rows.find(filter).projection(members);
        let find = find.sort(doc! { "_id": 1 }).limit(STEP_MAX);
        let read = async { find.await?.try_collect::<Vec<_>>().await };
        self.connection.call("look through changes", read).await
    }

    /// The newest sequences of the documents of these changes, by the documents' numbers.
    async fn newest(&self, changes: &[RawDocumentBuf]) -> Result<std::collections::HashMap<u64, u64>> {
        let mut keys: Vec<Bson> = Vec::with_capacity(changes.len());
        for row in changes {
            keys.push(doc! { "stream": read_text(row, "stream")?, "url": read_text(row, "url")? }.into());
        }
        let rows = self.connection.rows(Table::Documents);
        let find = rows.find(doc! { "_id": { "$in": keys } });
        let find = find.projection(doc! { "_id": 0, "number": 1, "sequence": 1 });
        let read = async { find.await?.try_collect::<Vec<_>>().await };
        let rows = self.connection.call("look up documents", read).await?;
        rows.iter().map(|row| Ok((read_int(row, "number")?, read_int(row, "sequence")?))).collect()
    }

    async fn remove_changes(&self, sequences: Vec<i64>) -> Result<u64> {
        if sequences.is_empty() {
            return Ok(0);
        }
        let rows = self.connection.rows(Table::Changes);
        let delete = rows.delete_many(doc! { "_id": { "$in": sequences } });
        Ok(self.connection.call("remove replaced changes", delete).await?.deleted_count)
    }

    async fn swept(&self) -> Result<Swept> {
        let rows = self.connection.rows(Table::Head);
        let find = rows.find_one(doc! { "_id": "sweep" });
        let row = self.connection.call("read how far sweeps are", find).await?;
        let Some(row) = row else { return Ok(Swept { until: Sequence::START, examined: Sequence::START }) };
        Ok(Swept { until: Sequence(read_int(&row, "until")?), examined: Sequence(read_int(&row, "examined")?) })
    }

    async fn note_swept(&self, swept: Swept) -> Result<()> {
        let change = doc! { "$max": { "until": int(swept.until.0), "examined": int(swept.examined.0) } };
        let rows = self.connection.rows(Table::Head);
        let update = rows.update_one(doc! { "_id": "sweep" }, change).upsert(true);
        self.connection.call("note how far sweeps are", update).await.map(drop)
    }

    /// The last row before still tells how far the sequences were at that time.
    async fn forget_clock(&self, before: Timestamp) -> Result<()> {
        let rows = self.connection.rows(Table::Clock);
        let find = rows.find_one(doc! { "_id": { "$lt": date(before) } }).sort(doc! { "_id": -1 });
        let Some(last) = self.connection.call("read the clock", find).await? else { return Ok(()) };
        let last = last.get_datetime("_id").map_err(|error| flare_toolkit::rows::damaged("clock").because(error))?;
        let delete = rows.delete_many(doc! { "_id": { "$lt": last } });
        self.connection.call("forget the clock", delete).await.map(drop)
    }
}
