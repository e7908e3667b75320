//! The layout of the tables: steps that are taken once each, one node at a time.

use async_trait::async_trait;
use flare_core::{
    Error, Result,
    port::{Migration, Schema},
};
use jiff::Timestamp;
use std::sync::Arc;

use crate::{
    connection::{Call, Connection},
    failure::Failure,
    pool::Pool,
    values::Time,
};

struct Step {
    name: &'static str,
    sql: &'static str,
}

/// The first has number one. Each runs in a transaction of its own, with its mark: it is there whole or not at all.
const STEPS: &[Step] = &[Step { name: "tables", sql: include_str!("../migrations/0001_tables.sql") }];

pub(crate) struct Layout {
    pub pool: Arc<Pool>,
}

#[async_trait]
impl Schema for Layout {
    async fn status(&self) -> Result<Vec<Migration>> {
        let mut lease = self.pool.lease().await?;
        let steps = read(lease.connection(), &self.pool.session.schema).await;
        lease.note(&steps);
        self.pool.note(steps)
    }

    async fn up(&self) -> Result<Vec<Migration>> {
        let mut taken = Vec::new();
        loop {
            let mut lease = self.pool.lease().await?;
            lease.begin();
            let step = self.pool.note(take_step(lease.connection(), &self.pool.session.schema).await)?;
            lease.end();
            match step {
                Some(step) => taken.push(step),
                None => return Ok(taken),
            }
        }
    }
}

/// Takes the next step that is missing, if one is.
async fn take_step(connection: &Connection, schema: &str) -> Result<Option<Migration>, Failure> {
    const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('flare migrations of ' || $1::text, 0))";
    connection.run("BEGIN").await?;
    connection.query(&Call::new(LOCK).with(schema.to_owned())).await?;
    let missing = read(connection, schema).await?.into_iter().find(|step| step.applied_at.is_none());
    let Some(step) = missing else {
        connection.run("ROLLBACK").await?;
        return Ok(None);
    };
    if step.number == 1 {
        prepare(connection, schema).await?;
    }
    tracing::info!(number = step.number, name = step.name, schema, "changing the tables in PostgreSQL");
    connection.run_long("SET LOCAL statement_timeout TO 0").await?;
    connection.run_long(STEPS[step.number as usize - 1].sql).await?;
    let mark =
        Call::new("INSERT INTO migrations VALUES ($1, $2, now())").with(step.number as i32).with(step.name.clone());
    connection.query(&mark).await?;
    connection.run("COMMIT").await?;
    Ok(Some(Migration { applied_at: Some(Timestamp::now()), ..step }))
}

/// The schema may be there already, made by somebody who may do more than we.
async fn prepare(connection: &Connection, schema: &str) -> Result<(), Failure> {
    let found = Call::new("SELECT 1 FROM pg_namespace WHERE nspname = $1").with(schema.to_owned());
    if connection.query(&found).await?.is_empty() {
        connection.run(&format!("CREATE SCHEMA \"{schema}\"")).await?;
    }
    const MARKS: &str = "CREATE TABLE IF NOT EXISTS migrations \
                         (number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL)";
    connection.run(MARKS).await
}

/// All steps that are known, with those that were taken.
async fn read(connection: &Connection, schema: &str) -> Result<Vec<Migration>, Failure> {
    let mut steps: Vec<Migration> =
        (1..).zip(STEPS).map(|(number, step)| Migration { number, name: step.name.into(), applied_at: None }).collect();
    const IS_THERE: &str = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = $1 AND c.relname = 'migrations'";
    if connection.query(&Call::new(IS_THERE).with(schema.to_owned())).await?.is_empty() {
        return Ok(steps);
    }
    for row in connection.query(&Call::new("SELECT number, applied_at FROM migrations ORDER BY number")).await? {
        let (number, Time(at)) = (row.try_get::<_, i32>(0)?, row.try_get(1)?);
        let known = steps.len();
        match usize::try_from(number).ok().and_then(|number| steps.get_mut(number.wrapping_sub(1))) {
            Some(step) => step.applied_at = Some(at),
            None => return Err(newer(schema, number, known).into()),
        }
    }
    Ok(steps)
}

fn newer(schema: &str, found: i32, known: usize) -> Error {
    Error::invalid(format!(
        "the tables in the schema {schema:?} of PostgreSQL have layout {found}, written by a newer version of Flare; \
         this version knows layouts up to {known}: run the newer version, or choose another schema"
    ))
}
