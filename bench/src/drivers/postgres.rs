//! One statement for a group of changes, and one for a group of versions, each a transaction.

use anyhow::Result;
use tokio_postgres::{Client, NoTls, Statement, types::Json};

use super::Change;

const TABLES: &str = "
    CREATE TABLE changes (sequence bigint PRIMARY KEY, number bigint NOT NULL, revision numeric NOT NULL,
        updated_at timestamptz NOT NULL, bytes integer NOT NULL, url text NOT NULL, content json NOT NULL);
    CREATE TABLE documents (number bigint PRIMARY KEY, url text UNIQUE NOT NULL, sequence bigint NOT NULL,
        revision numeric NOT NULL, updated_at timestamptz NOT NULL, deleted boolean NOT NULL);
    CREATE TABLE versions (outlet uuid, number bigint, sequence bigint NOT NULL, revision numeric NOT NULL,
        deleted boolean NOT NULL, PRIMARY KEY (outlet, number))";
const WRITE: &str = "
    WITH rows AS (SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::json[])
        AS r (sequence, number, revision, url, content)),
    added AS (INSERT INTO changes SELECT sequence, number, revision, now(), 1024, url, content FROM rows)
    INSERT INTO documents SELECT number, url, sequence, revision, now(), false FROM rows
    ON CONFLICT (url) DO UPDATE SET sequence = excluded.sequence, revision = excluded.revision,
        updated_at = excluded.updated_at, deleted = false";
const RECORD: &str = "
    INSERT INTO versions AS v SELECT '00000000-0000-0000-0000-000000000001'::uuid, n.number, n.sequence, n.revision, false
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS n (number, sequence, revision)
    ON CONFLICT (outlet, number) DO UPDATE SET sequence = excluded.sequence, revision = excluded.revision
    WHERE v.sequence <= excluded.sequence";

pub struct Database {
    writing: (Client, Statement),
    recording: (Client, Statement),
}

impl Database {
    pub async fn open(url: &str, namespace: &str) -> Result<Self> {
        let client = connect(url).await?;
        client.batch_execute(&format!("CREATE SCHEMA {namespace}; SET search_path TO {namespace}; {TABLES}")).await?;
        let prepared = |statement: &'static str| async move {
            let client = connect(url).await?;
            client.batch_execute(&format!("SET search_path TO {namespace}")).await?;
            let statement = client.prepare(statement).await?;
            anyhow::Ok((client, statement))
        };
        Ok(Self { writing: prepared(WRITE).await?, recording: prepared(RECORD).await? })
    }

    pub async fn write(&self, changes: &[Change]) -> Result<()> {
        let (client, statement) = &self.writing;
        let urls: Vec<&str> = changes.iter().map(|change| change.url.as_str()).collect();
        let contents = changes.iter().map(|change| serde_json::value::RawValue::from_string(change.text().to_owned()));
        let contents: Vec<_> = contents.collect::<Result<Vec<_>, _>>()?.into_iter().map(Json).collect();
        let [sequences, numbers, revisions] = columns(changes);
        client.execute(statement, &[&sequences, &numbers, &revisions, &urls, &contents]).await?;
        Ok(())
    }

    pub async fn record(&self, delivered: &[Change]) -> Result<()> {
        let (client, statement) = &self.recording;
        let [sequences, numbers, revisions] = columns(delivered);
        client.execute(statement, &[&numbers, &sequences, &revisions]).await?;
        Ok(())
    }
}

fn columns(changes: &[Change]) -> [Vec<i64>; 3] {
    let column = |field: fn(&Change) -> i64| changes.iter().map(field).collect();
    [column(|change| change.sequence), column(|change| change.number), column(|change| change.revision)]
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("postgres: {error}");
        }
    });
    Ok(client)
}

pub async fn remove(url: &str, namespace: &str) -> Result<()> {
    let client = connect(url).await?;
    Ok(client.batch_execute(&format!("DROP SCHEMA IF EXISTS {namespace} CASCADE")).await?)
}
