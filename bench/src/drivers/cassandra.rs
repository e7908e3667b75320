//! A group of changes: their contents, one row of a log by a compare, heads and feed. A group of versions: one batch and
//! the cursor. Consistency is that of the configuration given to Flare.

use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Result, ensure};
use scylla::{
    client::{execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder},
    serialize::row::SerializeRow,
    statement::{
        Consistency,
        batch::{Batch, BatchType},
        prepared::PreparedStatement,
    },
};
use uuid::Uuid;

use super::Change;

const STREAM: Uuid = Uuid::from_u128(1);
/// Groups in a partition of the log.
const BUCKET_GROUPS: i64 = 1000;
const BATCH_BYTES: usize = 32 * 1024;
const TABLES: [&str; 6] = [
    "CREATE TABLE changes (group_id uuid, position int, stream uuid, url text, number bigint, revision bigint, \
     updated_at bigint, deleted boolean, bytes int, content blob, PRIMARY KEY (group_id, position))",
    "CREATE TABLE log (bucket bigint, turn bigint, head bigint STATIC, group_id uuid, last bigint, \
     PRIMARY KEY (bucket, turn))",
    "CREATE TABLE heads (stream uuid, shard bigint, url text, number bigint, sequence bigint, revision bigint, \
     group_id uuid, position int, PRIMARY KEY ((stream, shard), url))",
    "CREATE TABLE feed (stream uuid, bucket bigint, sequence bigint, number bigint, url text, revision bigint, \
     group_id uuid, position int, PRIMARY KEY ((stream, bucket), sequence))",
    "CREATE TABLE versions (outlet uuid, bucket bigint, number bigint, sequence bigint, revision bigint, \
     deleted boolean, PRIMARY KEY ((outlet, bucket), number))",
    "CREATE TABLE standings (outlet uuid PRIMARY KEY, cursor bigint)",
];

pub struct Database {
    session: Session,
    content: PreparedStatement,
    append: PreparedStatement,
    row: PreparedStatement,
    head: PreparedStatement,
    feed: PreparedStatement,
    version: PreparedStatement,
    cursor: PreparedStatement,
    turn: AtomicI64,
}

impl Database {
    pub async fn open(url: &str, namespace: &str) -> Result<Self> {
        let session = connect(url).await?;
        let keyspace = "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
        session.query_unpaged(format!("CREATE KEYSPACE {namespace} {keyspace}"), ()).await?;
        session.use_keyspace(namespace, true).await?;
        for table in TABLES {
            session.query_unpaged(table, ()).await?;
        }
        let prepare = |text: &'static str| session.prepare(text);
        Ok(Self {
            content: prepare(
                "INSERT INTO changes (group_id, position, stream, url, number, revision, updated_at, deleted, bytes, \
                 content) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )
            .await?,
            append: prepare("UPDATE log SET head = ? WHERE bucket = ? IF head = ?").await?,
            row: prepare("INSERT INTO log (bucket, turn, group_id, last) VALUES (?, ?, ?, ?)").await?,
            head: prepare(
                "INSERT INTO heads (stream, shard, url, number, sequence, revision, group_id, position) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            )
            .await?,
            feed: prepare(
                "INSERT INTO feed (stream, bucket, sequence, number, url, revision, group_id, position) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            )
            .await?,
            version: prepare(
                "INSERT INTO versions (outlet, bucket, number, sequence, revision, deleted) VALUES (?, ?, ?, ?, ?, ?)",
            )
            .await?,
            cursor: prepare("UPDATE standings SET cursor = ? WHERE outlet = ?").await?,
            turn: AtomicI64::new(0),
            session,
        })
    }

    pub async fn write(&self, changes: &[Change]) -> Result<()> {
        let group = Uuid::new_v4();
        let contents: Vec<_> = (0..)
            .zip(changes)
            .map(|(position, change): (i32, _)| {
                let Change { number, revision, url, content, .. } = change;
                (group, position, STREAM, url, number, revision, 1i64, false, 1024i32, content.to_vec())
            })
            .collect();
        self.in_batches(&self.content, &contents, 1024).await?;
        self.append(group, changes.last().map_or(0, |change| change.sequence)).await?;
        let (mut heads, mut feed) = (Vec::new(), Vec::new());
        for (position, change) in (0i32..).zip(changes) {
            let Change { sequence, number, revision, url, .. } = change;
            heads.push((STREAM, 0i64, url, number, sequence, revision, group, position));
            feed.push((STREAM, sequence >> 14, sequence, number, url, revision, group, position));
        }
        tokio::try_join!(self.in_batches(&self.head, &heads, 100), self.in_batches(&self.feed, &feed, 100))?;
        Ok(())
    }

    /// The group is in the order from here on, whoever else writes.
    async fn append(&self, group: Uuid, last: i64) -> Result<()> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let before = (turn % BUCKET_GROUPS != 0).then_some(turn);
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.append_statement(self.append.clone());
        batch.append_statement(self.row.clone());
        let bucket = turn / BUCKET_GROUPS;
        let values = ((turn + 1, bucket, before), (bucket, turn + 1, group, last));
        let answer = self.session.batch(&batch, values).await?.into_rows_result()?;
        let applied = answer.rows::<scylla::value::Row>()?.next().transpose()?;
        let applied = applied.and_then(|row| row.columns.into_iter().next().flatten()?.as_boolean());
        ensure!(applied == Some(true), "the log is not where this loop left it");
        Ok(())
    }

    pub async fn record(&self, delivered: &[Change]) -> Result<()> {
        let rows: Vec<_> = delivered
            .iter()
            .map(|change| (STREAM, change.number >> 14, change.number, change.sequence, change.revision, false))
            .collect();
        let cursor = delivered.last().map_or(0, |change| change.sequence);
        self.in_batches(&self.version, &rows, 100).await?;
        self.session.execute_unpaged(&self.cursor, (cursor, STREAM)).await?;
        Ok(())
    }

    /// All rows at the same time, in batches that the server takes.
    async fn in_batches<R: SerializeRow>(
        &self,
        statement: &PreparedStatement,
        rows: &[R],
        row_bytes: usize,
    ) -> Result<()> {
        let batches = rows.chunks(BATCH_BYTES / row_bytes).map(|rows| async move {
            let mut batch = Batch::new(BatchType::Unlogged);
            rows.iter().for_each(|_| batch.append_statement(statement.clone()));
            self.session.batch(&batch, rows).await
        });
        futures_util::future::try_join_all(batches).await?;
        Ok(())
    }
}

async fn connect(url: &str) -> Result<Session> {
    let address = Address::read(url);
    let profile = ExecutionProfile::builder().consistency(Consistency::One).build();
    let mut builder =
        SessionBuilder::new().known_node(address.host).default_execution_profile_handle(profile.into_handle());
    if let Some((user, password)) = address.login {
        builder = builder.user(user, password);
    }
    Ok(builder.build().await?)
}

struct Address<'a> {
    host: &'a str,
    login: Option<(&'a str, &'a str)>,
}

impl<'a> Address<'a> {
    /// `cassandra://[user:password@]host:port`
    fn read(url: &'a str) -> Self {
        let rest = url.trim_start_matches("cassandra://").trim_end_matches('/');
        match rest.rsplit_once('@') {
            Some((login, host)) => Self { host, login: login.split_once(':') },
            None => Self { host: rest, login: None },
        }
    }
}

/// Consistency ONE, because the server under test is one.
pub fn config(url: &str, namespace: &str) -> String {
    let Address { host, login } = Address::read(url);
    let login = login.map(|(user, password)| format!("username = \"{user}\"\npassword = \"{password}\"\n"));
    format!(
        "[repository]\nengine = \"cassandra\"\naddrs = [\"{host}\"]\nkeyspace = \"{namespace}\"\n\
         consistency = \"ONE\"\n{}",
        login.unwrap_or_default()
    )
}

pub async fn remove(url: &str, namespace: &str) -> Result<()> {
    connect(url).await?.query_unpaged(format!("DROP KEYSPACE IF EXISTS {namespace}"), ()).await?;
    Ok(())
}
