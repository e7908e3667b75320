//! What belonged to deleted streams and outlets is removed in the background, in small steps. A row of `purges` says that
//! there is something to do, so that a restart goes on with it.

use flare_core::Result;
use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};

use crate::{
    connection::Connection,
    rows::{read_part, read_text},
    table::Table,
};

/// Rows removed in one step.
const STEP_MAX: i64 = 1000;
/// Deletions read at once.
const PURGES_MAX: i64 = 100;

/// Removes everything that belongs to what was deleted.
pub(crate) async fn run(connection: &Connection) -> Result<()> {
    loop {
        let rows = connection.rows(Table::Purges);
        let find = rows.find(doc! {}).limit(PURGES_MAX);
        let read = async { find.await?.try_collect::<Vec<_>>().await };
        let purges = connection.call("read what to purge", read).await?;
        if purges.is_empty() {
            return Ok(());
        }
        for purge in purges {
            let key = read_part(&purge, "_id")?;
            let (kind, id) = (read_text(key, "kind")?, read_text(key, "id")?);
            for (table, filter) in belongings(kind, id) {
                remove_all(connection, table, &filter).await?;
            }
            let done = doc! { "_id": { "kind": kind, "id": id } };
            connection.call("end a purge", connection.rows(Table::Purges).delete_one(done)).await?;
        }
    }
}

fn belongings(kind: &str, id: &str) -> Vec<(Table, Document)> {
    let own = || doc! { "_id": id };
    let keyed = |first: &str, second: &str| {
        let (from, to) = (doc! { first: id, second: Bson::MinKey }, doc! { first: id, second: Bson::MaxKey });
        doc! { "_id": { "$gte": from, "$lt": to } }
    };
    match kind {
        "stream" => vec![(Table::Documents, keyed("stream", "url")), (Table::Changes, doc! { "stream": id })],
        // Without a cursor the outlet is gone for those who deliver.
        _ => vec![
            (Table::Cursors, own()),
            (Table::Demands, own()),
            (Table::Replays, own()),
            (Table::Retries, keyed("outlet", "number")),
            (Table::Versions, keyed("outlet", "number")),
            (Table::DeadLetters, keyed("outlet", "sequence")),
            (Table::Attempts, keyed("outlet", "at")),
        ],
    }
}

/// Removes all rows that match, step by step.
pub(crate) async fn remove_all(connection: &Connection, table: Table, filter: &Document) -> Result<()> {
    let rows = connection.rows(table);
    loop {
        let find = rows.find(filter.clone()).projection(doc! { "_id": 1 }).limit(STEP_MAX);
        let read = async { find.await?.try_collect::<Vec<_>>().await };
        let mut ids = Vec::new();
        for row in connection.call("look for rows to remove", read).await? {
            if let Ok(Some(id)) = row.get("_id")
                && let Ok(id) = Bson::try_from(id)
            {
                ids.push(id);
            }
        }
        if ids.is_empty() {
            return Ok(());
        }
        let delete = rows.delete_many(doc! { "_id": { "$in": ids } });
        connection.call("remove rows", delete).await?;
    }
}
