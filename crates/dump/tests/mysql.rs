//! MariaDB against the contract of storages, and what only it has. Needs `FLARE_TEST_MARIADB_URL`, which may be the
//! address of MySQL 8 too.

#![cfg(feature = "mysql")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server;

use flare_dump::contract::{Subject, check_reader, check_writer};
use flare_dump::job::Job;
use flare_dump::key::Key;
use flare_dump::location::Location;
use flare_dump::port::{Target, Walk, WriteMode};
use flare_dump::row::{Batch, Row, RowBatch};
use flare_dump::storage::{self, ReadOptions};
use flare_dump::value::{Column, Kind, Schema, Value};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

const VARIABLE: &str = "FLARE_TEST_MARIADB_URL";

/// A database of our own on the server.
struct Server {
    connection: Conn,
    /// With `?table=` at its end.
    base: String,
    is_mariadb: bool,
}

impl Server {
    async fn find(name: &str) -> Option<Self> {
        let url = server::url(VARIABLE)?;
        let (host, _) = url.rsplit_once('/').unwrap();
        let mut connection = Conn::from_url(&url).await.unwrap();
        let name = format!("flare_dump_{name}");
        for sql in [format!("DROP DATABASE IF EXISTS {name}"), format!("CREATE DATABASE {name}"), format!("USE {name}")]
        {
            connection.query_drop(sql).await.unwrap();
        }
        connection.query_drop("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'").await.unwrap();
        let version: Option<String> = connection.query_first("SELECT VERSION()").await.unwrap();
        let is_mariadb = version.unwrap().contains("MariaDB");
        let mut server = Self { connection, base: format!("{host}/{name}?table="), is_mariadb };
        if !is_mariadb {
            server.make_sequences().await;
        }
        Some(server)
    }

    /// What MariaDB has by itself.
    async fn make_sequences(&mut self) {
        self.run(&["SET cte_max_recursion_depth = 100000"]).await;
        for last in [21, 22, 23, 20_000] {
            let numbers =
                format!("WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < {last})");
            self.run(&[&format!("CREATE TABLE seq_1_to_{last} {numbers} SELECT seq FROM n")]).await;
        }
    }

    fn address(&self, table: &str) -> String {
        format!("{}{table}", self.base)
    }

    fn locate(&self, table: &str) -> Location {
        Location::parse(&self.address(table)).unwrap()
    }

    async fn run(&mut self, statements: &[&str]) {
        for sql in statements {
            let mut sql = (*sql).to_owned();
            if !self.is_mariadb {
                sql = sql.replace(" UUID PRIMARY", " CHAR(36) PRIMARY").replace("u UUID,", "u CHAR(36),");
                sql = sql.replace("i INET6", "i VARCHAR(40)");
            }
            self.connection.query_drop(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
    }

    async fn strings(&mut self, sql: &str) -> Vec<String> {
        self.connection.query(sql).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_keeps_the_contract_of_writers() {
    let Some(mut server) = Server::find("writer").await else { return };
    let base = server.base.clone();
    check_writer(&Subject {
        locate: Box::new(move |name| Location::parse(&format!("{base}{name}")).unwrap()),
        can_append: true,
        can_replace: true,
        has_ledger: true,
        can_upsert: true,
        rejects: true,
        inexact: &[],
    })
    .await;
    let left = server.strings("SHOW TABLES LIKE 'flare_dump_%\\_new'").await;
    assert!(left.is_empty(), "{left:?}");
}

const TABLES: &[&str] = &[
    "CREATE TABLE plain (a INT, b TEXT)",
    "INSERT INTO plain SELECT seq % 3, CONCAT('x', seq) FROM seq_1_to_23",
    "CREATE TABLE composite (a VARCHAR(20), b BIGINT, c DATE, d TEXT, PRIMARY KEY (a, b, c))",
    "INSERT INTO composite SELECT seq % 4, seq % 5, DATE_ADD('2024-01-01', INTERVAL seq DAY), '' FROM seq_1_to_23",
    // Compared without case and without spaces at the end.
    "CREATE TABLE texts (k VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY)",
    "INSERT INTO texts SELECT CONCAT(IF(seq % 2, 'a', 'B'), CHAR(64 + seq), '''\\\\ é') FROM seq_1_to_21",
    "INSERT INTO texts VALUES (''), ('ß')",
    "CREATE TABLE latin (k VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_german2_ci PRIMARY KEY)",
    "INSERT INTO latin SELECT CONCAT(CHAR(64 + seq), 'é') FROM seq_1_to_23",
    "CREATE TABLE blobs (k VARBINARY(40) PRIMARY KEY)",
    "INSERT INTO blobs SELECT CONCAT(CHAR(seq * 11), CHAR(0), CHAR(255 - seq)) FROM seq_1_to_22",
    "INSERT INTO blobs VALUES ('')",
    "CREATE TABLE enums (k ENUM('z', 'y', 'b', 'a') NOT NULL, s SET('q', 'p') NOT NULL, b BIT(9) NOT NULL, \
     PRIMARY KEY (k, s, b))",
    "INSERT INTO enums SELECT 1 + seq % 4, seq % 3, seq * 20 FROM seq_1_to_23",
    "CREATE TABLE floats (k FLOAT PRIMARY KEY)",
    "INSERT INTO floats SELECT seq / 10 FROM seq_1_to_23",
    "CREATE TABLE decimals (k DECIMAL(40, 10) PRIMARY KEY)",
    "INSERT INTO decimals SELECT CONCAT('12345678901234567890.00000000', 10 + seq) FROM seq_1_to_23",
    "CREATE TABLE unsigneds (k BIGINT UNSIGNED PRIMARY KEY)",
    "INSERT INTO unsigneds SELECT 18446744073709551615 - seq FROM seq_1_to_23",
    "CREATE TABLE times (k TIME(3), d DATETIME(6), t TIMESTAMP(6), PRIMARY KEY (k, d, t))",
    "INSERT INTO times SELECT SEC_TO_TIME(seq * 1e5 - 1e6), '0000-00-00', FROM_UNIXTIME(seq) FROM seq_1_to_23",
    "CREATE TABLE uuids (k UUID PRIMARY KEY)",
    "INSERT INTO uuids SELECT UUID() FROM seq_1_to_23",
    "CREATE TABLE uniq (k INT NOT NULL, v INT, UNIQUE (k), UNIQUE (v))",
    "INSERT INTO uniq SELECT seq * seq, NULL FROM seq_1_to_23",
    "CREATE TABLE prefixed (k VARCHAR(100) NOT NULL, UNIQUE (k(5)))",
    "INSERT INTO prefixed SELECT CONCAT(1000 + seq, 'x') FROM seq_1_to_23",
    "CREATE TABLE none (k INT PRIMARY KEY)",
    "CREATE VIEW seen AS SELECT * FROM uniq",
    "CREATE TABLE `odd ``name.` (`a ``b` INT PRIMARY KEY)",
    "INSERT INTO `odd ``name.` SELECT seq FROM seq_1_to_23",
];

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_all_kinds_are_read_once_however_they_are_cut() {
    let Some(mut server) = Server::find("reader").await else { return };
    server.run(TABLES).await;
    let keyed = [
        "composite",
        "texts",
        "latin",
        "blobs",
        "enums",
        "floats",
        "decimals",
        "unsigneds",
        "times",
        "uuids",
        "uniq",
        "none",
    ];
    for table in keyed.into_iter().chain(["plain", "prefixed", "seen"]) {
        let rows = if table == "none" { 0 } else { 23 };
        for by_offset in [false, true] {
            let options = ReadOptions { by_offset, ..ReadOptions::default() };
            let reader = storage::reader(&server.locate(table), &options).unwrap();
            check_reader(&*reader, rows).await;
            let walk = reader.describe().await.unwrap().walk;
            let by_key = matches!(walk, Walk::Key(_));
            assert_eq!(by_key, keyed.contains(&table) && !by_offset, "{table} {walk:?}");
        }
    }
    let odd = Location::parse(&server.address("flare_dump_reader.odd%20%60name.")).unwrap();
    check_reader(&*storage::reader(&odd, &ReadOptions::default()).unwrap(), 23).await;
    // By columns that are not unique, rows with the same key stay together.
    let options = ReadOptions { key: vec!["b".to_owned()], ..ReadOptions::default() };
    let reader = storage::reader(&server.locate("composite"), &options).unwrap();
    reader.describe().await.unwrap();
    let at = reader.boundary(Some(&Key::int(2)), None, 1).await.unwrap();
    assert_eq!(at, flare_dump::port::Boundary::At(Key::int(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_reads_no_more_of_the_index_than_it_must() {
    let Some(mut server) = Server::find("walk").await else { return };
    server
        .run(&[
            "CREATE TABLE big (a INT, b INT, c VARCHAR(200), PRIMARY KEY (a, b))",
            "INSERT INTO big SELECT seq DIV 1000, seq, REPEAT('x', 100) FROM seq_1_to_20000",
            "FLUSH STATUS",
        ])
        .await;
    let reader = storage::reader(&server.locate("big"), &ReadOptions::default()).unwrap();
    reader.describe().await.unwrap();
    let read = |rows: Vec<(String, u64)>| rows.iter().map(|(_, count)| count).sum::<u64>();
    let status = "SHOW GLOBAL STATUS LIKE 'Handler_read_%'";
    let before = read(server.connection.query(status).await.unwrap());
    let key = |a, b| Key(vec![Value::Int(a), Value::Int(b)]);
    reader.boundary(Some(&key(10, 10_500)), Some(&key(20, 20_000)), 100).await.unwrap();
    let after = read(server.connection.query(status).await.unwrap());
    // Others of this test use the server too, but nobody reads twenty thousand rows.
    assert!(after - before < 2000, "{} rows of the index", after - before);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_every_type_come_out_and_go_in_exactly() {
    let Some(mut server) = Server::find("types").await else { return };
    server
        .run(&[
            "CREATE TABLE source (id BIGINT UNSIGNED PRIMARY KEY, tiny TINYINT, flag TINYINT(1), small SMALLINT UNSIGNED, \
             medium MEDIUMINT, whole INT UNSIGNED, number DECIMAL(65, 30), f FLOAT, d DOUBLE, bits BIT(12), all_bits BIT(64), \
             day DATE, moment DATETIME(6), stamp TIMESTAMP(6) NULL, span TIME(6), y YEAR, c CHAR(10), \
             v VARCHAR(50) CHARACTER SET latin1, t MEDIUMTEXT, bin BINARY(4), b BLOB, e ENUM('a', 'é'), s SET('x', 'y'), \
             j JSON, u UUID, p POINT, i INET6, sum INT AS (tiny + 1) STORED)",
            "INSERT INTO source VALUES (18446744073709551615, -128, 7, 65535, -8388608, 4294967295, \
             12345678901234567890123456789012345.123456789012345678901234567890, 0.1, 1.7976931348623157e308, \
             b'101010101010', 18446744073709551615, '0000-00-00', '2024-02-31 12:00:00.000001', '0000-00-00', \
             '-838:59:59.000000', 2024, 'a', 'naïve', REPEAT('é', 70000), x'00ff', x'', 'é', 'x,y', \
             '{\"b\":1.10,\"a\":[1]}', UUID(), POINT(1, 2), '::1', DEFAULT)",
            "INSERT INTO source (id, day, moment, stamp, span) VALUES (0, '1000-01-01', '9999-12-31 23:59:59.999999', \
             '1970-01-01 00:00:01', '838:59:58.999999')",
        ])
        .await;
    let mut job = Job::new(server.address("source"), server.address("copied"));
    job.max_rejects = 1;
    // The second of February 31 is not for a server that checks its dates.
    assert_eq!(server::copy(job).await.rejects, 1);
    server.run(&["UPDATE source SET moment = '2024-02-29 12:00:00.000001' WHERE id > 0", "DROP TABLE copied"]).await;
    assert_eq!(server::copy(Job::new(server.address("source"), server.address("copied"))).await.rows, 2);
    let types = "SELECT COLUMN_NAME, COLUMN_TYPE, COLLATION_NAME FROM information_schema.COLUMNS \
        WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ";
    let mut found = Vec::new();
    for table in ["'source'", "'copied'"] {
        let rows: Vec<(String, String, Option<String>)> =
            server.connection.query(format!("{types}{table} ORDER BY ORDINAL_POSITION")).await.unwrap();
        found.push(rows);
    }
    assert_eq!(found[0], found[1]);
    for (one, other) in [("source", "copied"), ("copied", "source")] {
        let differing =
            server.strings(&format!("SELECT id FROM (SELECT * FROM {one} EXCEPT SELECT * FROM {other}) x")).await;
        assert!(differing.is_empty(), "{differing:?}");
    }
    // Through documents and back.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.ndjson").to_str().unwrap().to_owned();
    server::copy(Job::new(server.address("source"), file.clone())).await;
    server.run(&["TRUNCATE copied"]).await;
    let mut back = Job::new(file, server.address("copied"));
    back.mode = WriteMode::Append;
    server::copy(back).await;
    let differing = server.strings("SELECT id FROM (SELECT * FROM source EXCEPT SELECT * FROM copied) x").await;
    assert!(differing.is_empty(), "{differing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_would_bend_to_fit_is_rejected() {
    let Some(mut server) = Server::find("bent").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.ndjson").to_str().unwrap().to_owned();
    let lines = [
        r#"{"id": 1, "n": "5", "d": "1.25", "day": "2024-02-29", "s": "abc"}"#,
        r#"{"id": 2, "n": "300", "d": "1.25", "day": "2024-02-29", "s": "abc"}"#,
        r#"{"id": 3, "n": "5", "d": "1.259", "day": "2024-02-29", "s": "abc"}"#,
        r#"{"id": 4, "n": "5", "d": "1.25", "day": "2024-02-29 10:00:00", "s": "abc"}"#,
        r#"{"id": 5, "n": "5", "d": "1.25", "day": "2024-02-29", "s": "abcd"}"#,
        r#"{"id": 6, "n": null, "d": "1.25", "day": "2024-02-29", "s": "abc"}"#,
        r#"{"id": 1, "n": "5", "d": "1.25", "day": "2024-02-29", "s": "abc"}"#,
    ];
    std::fs::write(&file, lines.join("\n")).unwrap();
    server
        .run(&["CREATE TABLE target (id INT PRIMARY KEY, n TINYINT NOT NULL, d DECIMAL(5, 2), day DATE, s VARCHAR(3))"])
        .await;
    let mut job = Job::new(file, server.address("target"));
    (job.mode, job.max_rejects) = (WriteMode::Append, 10);
    let summary = server::copy(job).await;
    assert_eq!((summary.rows, summary.rejects), (1, 6));
    assert_eq!(server.strings("SELECT id FROM target").await, ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_differ_in_case_or_spaces_stay_apart() {
    let Some(server) = Server::find("apart").await else { return };
    let mut rows = RowBatch::new(["k".into()].into());
    ["a", "A", "a ", "á", ""].iter().for_each(|key| rows.push(Row::Cells(vec![Value::text(*key)])));
    let columns = vec![Column::new("k", Kind::Text)];
    let schema = Schema { columns, key: vec!["k".into()], is_open: false };
    let target = Target { job: "1".repeat(16), mode: WriteMode::Create, schema, is_resumed: false };
    let writer = storage::writer(&server.locate("keys")).unwrap();
    writer.prepare(&target).await.unwrap();
    let mut open = writer.open("0").await.unwrap();
    open.write(Batch::Rows(rows)).await.unwrap();
    open.commit().await.unwrap();
    writer.finish().await.unwrap();
    check_reader(&*storage::reader(&server.locate("keys"), &ReadOptions::default()).unwrap(), 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_without_transactions_is_refused() {
    let Some(mut server) = Server::find("engine").await else { return };
    server
        .run(&["CREATE TABLE source (a INT PRIMARY KEY)", "CREATE TABLE target (a INT PRIMARY KEY) ENGINE=MyISAM"])
        .await;
    let mut job = Job::new(server.address("source"), server.address("target"));
    job.mode = WriteMode::Append;
    let session = flare_dump::session::Session::open(job).await.unwrap();
    let target = Target {
        job: "1".repeat(16),
        mode: WriteMode::Append,
        schema: session.mapping.schema.clone(),
        is_resumed: false,
    };
    let error = session.writer.prepare(&target).await.unwrap_err();
    assert!(error.to_string().contains("MyISAM"), "{error}");
}
