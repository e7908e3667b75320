//! The partitions of `changes`: made ahead of the sequences, and tidied up behind the sweep.
//!
//! New changes go to the newest partition only, so that what a sweep removes from older ones is not filled up again.
//! When half of a partition is gone, what is left of it is copied into a new table, which takes its place; an empty one
//! is dropped. So the space on disk follows what is kept, whatever was written before, and no table grows without end.

use flare_core::{Error, Result};
use tokio_postgres::{Row, error::SqlState};

use crate::{
    connection::{Call, Connection},
    failure::Failure,
    groups::unreadable,
    pool::Pool,
};

const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('flare partitions of ' || current_schema(), 0))";
/// Rows are removed under a shared lock of this, so that none is removed from a table that is being replaced.
pub(crate) const LOCK_ROWS: &str =
    "SELECT pg_advisory_xact_lock_shared(hashtextextended('flare removals of ' || current_schema(), 0))";
const LOCK_TABLES: &str = "SELECT pg_advisory_xact_lock(hashtextextended('flare removals of ' || current_schema(), 0))";
const SPARSE: &str = "SELECT name, first, past FROM partitions \
    WHERE past <= (SELECT swept_from FROM head) + 1 AND removed * 2 >= rows ORDER BY first LIMIT 1";
const REPLACED: &str = "UPDATE partitions SET rows = $2, removed = 0 WHERE name = $1";
const DROPPED: &str = "DELETE FROM partitions WHERE name = $1";
/// Those who come after us wait no longer than this for the exchange of two tables.
const EXCHANGE_WAIT: &str = "SET LOCAL lock_timeout TO '500ms'";
const END: &str = "SELECT (SELECT sequence FROM head), coalesce((SELECT max(past) FROM partitions), 0)";
const ADD: &str = "INSERT INTO partitions (name, first, past, rows) VALUES ($1, $2, $3, $3::bigint - $2::bigint)";

/// Whether a write failed because there is no partition for it.
pub(crate) fn are_missing(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<tokio_postgres::Error>());
    cause.and_then(tokio_postgres::Error::code) == Some(&SqlState::CHECK_VIOLATION)
}

/// Makes the partitions that are due, one node at a time, with room for at least so many rows.
pub(crate) async fn make_room(pool: &Pool, wanted: usize) -> Result<()> {
    // The next partition is there before the newest is full.
    let ahead = pool.session.partition_rows + i64::try_from(wanted).unwrap_or(0);
    let (head, past) = end(pool.query(&Call::new(END)).await?.first())?;
    if past > head + ahead {
        return Ok(());
    }
    let mut lease = pool.lease().await?;
    lease.begin();
    let made = make_all(lease.connection(), ahead, pool.session.partition_rows).await;
    if made.is_ok() {
        lease.end();
    }
    pool.note(made)
}

async fn make_all(connection: &Connection, ahead: i64, rows: i64) -> Result<(), Failure> {
    let lock = Call::new(LOCK);
    connection.pipeline(Some("BEGIN"), &[&lock], None).await?.all()?;
    let (head, mut past) = end(connection.query(&Call::new(END)).await?.first())?;
    while past <= head + ahead {
        let (first, name) = (past, format!("changes_{past}"));
        past += rows;
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

/// Replaces or drops partitions of which at least half is gone.
pub(crate) async fn tidy_up(pool: &Pool) -> Result<()> {
    loop {
        let mut lease = pool.lease().await?;
        lease.begin();
        let tidied = tidy_one(lease.connection()).await;
        if tidied.is_ok() {
            lease.end();
        }
        match tidied {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            // Somebody reads there: next time.
            Err(failure) if failure.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => return Ok(()),
            Err(failure) => return pool.note(Err(failure)),
        }
    }
}

async fn tidy_one(connection: &Connection) -> Result<bool, Failure> {
    let lock = Call::new(LOCK_TABLES);
    connection.run_long("BEGIN; SET LOCAL statement_timeout TO 0; SET LOCAL enable_seqscan TO on").await?;
    connection.query_long(&lock).await?;
    let found = connection.query(&Call::new(SPARSE)).await?;
    let Some(row) = found.first() else {
        connection.run("ROLLBACK").await?;
        return Ok(false);
    };
    let (name, first, past): (String, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    // All that takes long happens before the exchange: copying, the indexes, and the proof that the rows fit.
    let copy = format!(
        "CREATE TABLE {name}_new (LIKE changes INCLUDING DEFAULTS INCLUDING STORAGE); \
         INSERT INTO {name}_new SELECT * FROM {name} ORDER BY sequence; \
         ALTER TABLE {name}_new ADD PRIMARY KEY (sequence), ADD CHECK (sequence >= {first} AND sequence < {past}); \
         CREATE INDEX ON {name}_new (stream, sequence)"
    );
    connection.run_long(&copy).await?;
    let left = connection.query_text(&format!("SELECT count(*) FROM {name}_new")).await?;
    let left: i64 = left.parse().map_err(|_| Error::internal("the rows of a partition cannot be counted"))?;
    connection.run(EXCHANGE_WAIT).await?;
    connection.run_long(&format!("ALTER TABLE changes DETACH PARTITION {name}; DROP TABLE {name}")).await?;
    if left == 0 {
        connection.run_long(&format!("DROP TABLE {name}_new")).await?;
        connection.query(&Call::new(DROPPED).with(name.clone())).await?;
    } else {
        let attach = format!(
            "ALTER TABLE changes ATTACH PARTITION {name}_new FOR VALUES FROM ({first}) TO ({past}); \
             ALTER TABLE {name}_new RENAME TO {name}"
        );
        connection.run_long(&attach).await?;
        connection.query(&Call::new(REPLACED).with(name.clone()).with(left)).await?;
    }
    connection.run_long("COMMIT").await?;
    tracing::info!(name, left, "tidied a part of the changes up");
    Ok(true)
}

fn end(row: Option<&Row>) -> Result<(i64, i64)> {
    let row = row.ok_or_else(|| Error::internal("the head of the store is gone"))?;
    Ok((row.try_get(0).map_err(unreadable)?, row.try_get(1).map_err(unreadable)?))
}
