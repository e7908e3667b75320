//! The partitions of `changes`: made ahead of the sequences.

use flare_core::{Error, Result};
use tokio_postgres::error::SqlState;

use crate::{
    connection::{Call, Connection},
    failure::Failure,
    pool::Pool,
};

/// Sequences of one partition. Large enough that there are few, small enough that one is cleaned up quickly.
pub(crate) const PARTITION_ROWS: i64 = 2_000_000;
/// So many sequences have their partition before they are given out.
const AHEAD_ROWS: i64 = PARTITION_ROWS;

const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('flare partitions of ' || current_schema(), 0))";
const END: &str = "SELECT (SELECT sequence FROM head), coalesce((SELECT max(past) FROM partitions), 0)";
const ADD: &str = "INSERT INTO partitions (name, first, past, rows) VALUES ($1, $2, $3, $3::bigint - $2::bigint)";

/// Whether a write failed because there is no partition for it.
pub(crate) fn are_missing(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<tokio_postgres::Error>());
    cause.and_then(tokio_postgres::Error::code) == Some(&SqlState::CHECK_VIOLATION)
}

/// Makes the partitions that are due, one node at a time.
pub(crate) async fn make_room(pool: &Pool) -> Result<()> {
    let (head, past) = end(pool.query(&Call::new(END)).await?.first())?;
    if past > head + AHEAD_ROWS {
        return Ok(());
    }
    let mut lease = pool.lease().await?;
    lease.begin();
    let made = make_all(lease.connection()).await;
    if made.is_ok() {
        lease.end();
    }
    pool.note(made)
}

async fn make_all(connection: &Connection) -> Result<(), Failure> {
    let lock = Call::new(LOCK);
    connection.pipeline(Some("BEGIN"), &[&lock], None).await?.all()?;
    let (head, mut past) = end(connection.query(&Call::new(END)).await?.first())?;
    while past <= head + AHEAD_ROWS {
        let (first, name) = (past, format!("changes_{past}"));
        past += PARTITION_ROWS;
        // Attached rather than created in place: that would keep all readers and writers away for a moment.
        let make = format!(
            "CREATE TABLE {name} (LIKE changes INCLUDING DEFAULTS INCLUDING STORAGE); \
             ALTER TABLE changes ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({past})"
        );
        connection.run(&make).await?;
        connection.query(&Call::new(ADD).with(name).with(first).with(past)).await?;
    }
    connection.run("COMMIT").await
}

fn end(row: Option<&tokio_postgres::Row>) -> Result<(i64, i64)> {
    let row = row.ok_or_else(|| Error::internal("the head of the store is gone"))?;
    let unreadable = |error| Error::internal("the head of the store cannot be read").because(error);
    Ok((row.try_get(0).map_err(unreadable)?, row.try_get(1).map_err(unreadable)?))
}
