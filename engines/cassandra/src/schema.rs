//! The tables, and the steps that lead to them.
//!
//! Steps are taken by one node at a time: it holds a row of the table of steps and moves its beat. A holder whose beat
//! stands still is gone, and another one takes the row over; no clocks are compared.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use flare_core::{
    Error, Result,
    port::{Migration, Schema},
};
use jiff::Timestamp;
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use crate::{
    connection::{Connection, Decision},
    options::{Options, Replication},
    statement::Query,
};

/// A step: its name, and the statements that it runs. Each may be run again.
struct Step {
    name: &'static str,
    statements: &'static [&'static str],
}

const STEPS: &[Step] = &[Step { name: "tables", statements: TABLES }];

/// `log` and `agreed` are written by conditional writes only. All others carry timestamps that the engine chose:
/// editing them by hand sets timestamps that no later write beats.
const TABLES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS log (bucket bigint, turn bigint, head bigint STATIC, group_id uuid, kind text, \
     last bigint, counts frozen<map<uuid, bigint>>, at timestamp, PRIMARY KEY (bucket, turn))",
    "CREATE TABLE IF NOT EXISTS changes (group_id uuid, position int, stream uuid, url text, number bigint, \
     revision varint, updated_at bigint, deleted boolean, replaces bigint, bytes int, trace_parent text, \
     trace_state text, content blob, kind text, id blob, row text, PRIMARY KEY (group_id, position))",
    "CREATE TABLE IF NOT EXISTS heads (stream uuid, shard text, url text, number bigint, sequence bigint, \
     revision varint, updated_at bigint, deleted boolean, replaces bigint, bytes int, group_id uuid, position int, \
     PRIMARY KEY ((stream, shard), url))",
    "CREATE TABLE IF NOT EXISTS feed (stream uuid, bucket bigint, sequence bigint, number bigint, url text, \
     revision varint, updated_at bigint, deleted boolean, replaces bigint, bytes int, group_id uuid, position int, \
     replaced_by bigint, PRIMARY KEY ((stream, bucket), sequence))",
    "CREATE TABLE IF NOT EXISTS entities (kind text, id blob, row text, PRIMARY KEY (kind, id))",
    "CREATE TABLE IF NOT EXISTS state (name text PRIMARY KEY, turn bigint, sequence bigint, entities bigint, \
     swept_from bigint, swept_to bigint)",
    "CREATE TABLE IF NOT EXISTS agreed (key text PRIMARY KEY, version bigint, value blob, op uuid)",
    "CREATE TABLE IF NOT EXISTS standings (part text, outlet blob, start bigint, cursor bigint, demand bigint, \
     failing_since bigint, retries set<int>, dead_letters set<int>, attempts set<int>, PRIMARY KEY (part, outlet))",
    "CREATE TABLE IF NOT EXISTS versions (outlet uuid, bucket bigint, number bigint, sequence bigint, revision varint, \
     deleted boolean, PRIMARY KEY ((outlet, bucket), number))",
    "CREATE TABLE IF NOT EXISTS retries (outlet uuid, bucket int, number bigint, url text, attempts int, due bigint, \
     PRIMARY KEY ((outlet, bucket), number)) WITH gc_grace_seconds = 14400",
    "CREATE TABLE IF NOT EXISTS dead_letters (outlet uuid, bucket int, sequence bigint, letter text, \
     PRIMARY KEY ((outlet, bucket), sequence))",
    "CREATE TABLE IF NOT EXISTS attempts (outlet uuid, day int, at bigint, attempts blob, \
     PRIMARY KEY ((outlet, day), at)) WITH CLUSTERING ORDER BY (at DESC) AND default_time_to_live = 7776000 \
     AND gc_grace_seconds = 14400 AND compaction = {'class': 'TimeWindowCompactionStrategy', \
     'compaction_window_unit': 'DAYS', 'compaction_window_size': 1}",
];

const CREATE_STEPS: &str = "CREATE TABLE IF NOT EXISTS migrations (number int PRIMARY KEY, name text, \
                            applied_at timestamp, owner uuid, beat bigint)";

/// The row of the table of steps that is held by whoever takes them.
const LOCK: i32 = 0;
const BEAT: Duration = Duration::from_millis(500);
/// A holder that has not moved for so long is gone.
const BEATS_MISSED_MAX: u32 = 30;
const LOOK: Duration = Duration::from_millis(100);
const USE_TRIES: u32 = 30;

const KEYSPACE: Query = Query::new("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?");
const APPLIED: Query = Query::new("SELECT number, name, applied_at FROM migrations");
const INSERT: Query =
    Query::conditional("INSERT INTO migrations (number, name, applied_at) VALUES (?, ?, ?) IF NOT EXISTS");
const HOLDER: Query = Query::serial_read("SELECT owner, beat FROM migrations WHERE number = ?");
const HOLD: Query =
    Query::conditional("UPDATE migrations SET owner = ?, beat = ? WHERE number = ? IF owner = ? AND beat = ?");

/// Makes the keyspace unless it is there.
pub(crate) async fn prepare_keyspace(connection: &Connection, options: &Options) -> Result<()> {
    let keyspace = &options.keyspace;
    let replication = options.with_replication.clone().unwrap_or(Replication::Simple(1));
    if options.with_replication.is_none() && connection.nodes() > 1 {
        tracing::warn!(
            nodes = connection.nodes(),
            "the keyspace keeps one copy of everything unless `with-replication` says otherwise: a node that is lost \
             takes its part of the data along"
        );
    }
    // Whoever may use only this keyspace may not ask for it to be made, not even if it is there.
    if connection.row::<(String,)>(KEYSPACE, (keyspace,)).await?.is_none() {
        let replication = replication.to_cql();
        let create = format!(r#"CREATE KEYSPACE IF NOT EXISTS "{keyspace}" WITH REPLICATION = {replication}"#);
        connection.define(&create).await?;
    }
    use_keyspace(connection, keyspace).await?;
    connection.define(CREATE_STEPS).await
}

/// The server lists a keyspace that another node makes a moment before it can be used.
async fn use_keyspace(connection: &Connection, keyspace: &str) -> Result<()> {
    for _ in 0..USE_TRIES {
        if connection.use_keyspace(keyspace).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
    connection.use_keyspace(keyspace).await
}

pub(crate) struct Migrations {
    pub connection: Arc<Connection>,
}

#[async_trait]
impl Schema for Migrations {
    async fn status(&self) -> Result<Vec<Migration>> {
        let applied: Vec<(i32, Option<String>, Option<CqlTimestamp>)> = self.connection.rows(APPLIED, ()).await?;
        let newest = applied.iter().map(|(number, ..)| *number).max().unwrap_or(0);
        if newest as usize > STEPS.len() {
            return Err(Error::invalid(format!(
                "the data in Cassandra has layout {newest}, written by a newer version of Flare; this version knows \
                 layouts up to {}: run the newer version, or choose another keyspace",
                STEPS.len()
            )));
        }
        let at = |number: i32| applied.iter().find(|(applied, ..)| *applied == number)?.2;
        Ok((1..)
            .zip(STEPS)
            .map(|(number, step)| Migration {
                number,
                name: step.name.into(),
                applied_at: at(number as i32).and_then(|at| Timestamp::from_millisecond(at.0).ok()),
            })
            .collect())
    }

    async fn up(&self) -> Result<Vec<Migration>> {
        if self.status().await?.iter().all(|step| step.applied_at.is_some()) {
            return Ok(Vec::new());
        }
        let lock = self.hold().await?;
        let taken = tokio::select! {
            taken = self.take_steps() => taken,
            lost = self.keep(&lock) => Err(lost),
        };
        self.release(&lock).await;
        taken
    }
}

struct Lock {
    owner: Uuid,
    beat: std::sync::atomic::AtomicI64,
}

impl Migrations {
    async fn take_steps(&self) -> Result<Vec<Migration>> {
        let mut taken = Vec::new();
        let missing = self.status().await?.into_iter().filter(|step| step.applied_at.is_none());
        for step in missing {
            tracing::info!(number = step.number, name = step.name, "changing the layout of the data in Cassandra");
            for statement in STEPS[step.number as usize - 1].statements {
                self.connection.define(statement).await?;
            }
            let at = Timestamp::now();
            let row = (step.number as i32, step.name.clone(), CqlTimestamp(at.as_millisecond()));
            match self.connection.compare_and_set(vec![(INSERT, Box::new(row))]).await {
                // A step that was noted before is as good.
                Decision::Applied | Decision::Refused => {}
                Decision::NotTried(error) | Decision::Unknown(error) => return Err(error),
            }
            taken.push(Migration { applied_at: Some(at), ..step });
        }
        Ok(taken)
    }

    /// Waits for the row, and takes it over from a holder that is gone.
    async fn hold(&self) -> Result<Lock> {
        let owner = Uuid::new_v4();
        let patience = BEAT.as_millis() as u32 * BEATS_MISSED_MAX / LOOK.as_millis() as u32;
        let (mut seen, mut unmoved) = (None, 0);
        loop {
            let row: Option<(Option<Uuid>, Option<i64>)> = self.connection.row(HOLDER, (LOCK,)).await?;
            let (holder, beat) = row.unwrap_or_default();
            if holder == Some(owner) {
                return Ok(Lock { owner, beat: beat.unwrap_or_default().into() });
            }
            unmoved = if seen == Some((holder, beat)) { unmoved + 1 } else { 0 };
            seen = Some((holder, beat));
            if holder.is_none() || unmoved > patience {
                let next = beat.unwrap_or_default() + 1;
                let take = Box::new((owner, next, LOCK, holder, beat));
                // Whatever came of it, the next look tells.
                if let Decision::NotTried(error) = self.connection.compare_and_set(vec![(HOLD, take)]).await {
                    return Err(error);
                }
                continue;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Moves the beat; ends with an error when the row is lost.
    async fn keep(&self, lock: &Lock) -> Error {
        loop {
            tokio::time::sleep(BEAT).await;
            let beat = lock.beat.load(std::sync::atomic::Ordering::Relaxed);
            let row = Box::new((lock.owner, beat + 1, LOCK, lock.owner, beat));
            match self.connection.compare_and_set(vec![(HOLD, row)]).await {
                Decision::Applied => lock.beat.store(beat + 1, std::sync::atomic::Ordering::Relaxed),
                Decision::Refused => return Error::unavailable("another node changes the layout of the data"),
                Decision::NotTried(error) | Decision::Unknown(error) => return error,
            }
        }
    }

    async fn release(&self, lock: &Lock) {
        let beat = lock.beat.load(std::sync::atomic::Ordering::Relaxed);
        let row = Box::new((None::<Uuid>, beat, LOCK, lock.owner, beat));
        // If it is not released, the others take it over after a while.
        let _released = self.connection.compare_and_set(vec![(HOLD, row)]).await;
    }
}
