//! What goes there and back is the same: PostgreSQL → NDJSON → PostgreSQL, with rows of every type.
//! Needs `FLARE_TEST_POSTGRES_URL`.

#![allow(clippy::unwrap_used, reason = "the exception for tests does not reach what tests share")]

mod server;

use flare_dump::job::Job;
use flare_dump::port::WriteMode;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// A value of each column as SQL, or null.
fn row() -> impl Strategy<Value = String> {
    let or_null = |value: BoxedStrategy<String>| prop_oneof![1 => Just("NULL".to_owned()), 5 => value];
    let text = |pattern: &'static str| {
        let quoted = |text: String| format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
        proptest::string::string_regex(pattern).unwrap().prop_map(quoted)
    };
    let special = |kind: &'static str| {
        let all = ["'NaN'", "'Infinity'", "'-Infinity'"].map(|text| format!("{text}::{kind}"));
        proptest::sample::select(all.to_vec())
    };
    (
        or_null(any::<bool>().prop_map(|value| value.to_string()).boxed()),
        or_null(any::<i64>().prop_map(|value| format!("'{value}'::bigint")).boxed()),
        or_null(prop_oneof!["-?[1-9][0-9]{0,40}(\\.[0-9]{1,30})?", special("numeric")].boxed()),
        or_null(prop_oneof![any::<f64>().prop_map(|n| format!("'{n:?}'::float8")), special("float8")].boxed()),
        or_null(any::<f32>().prop_map(|n| format!("'{n:?}'::real")).boxed()),
        or_null(text("[^\\x00]{0,40}").boxed()),
        or_null(proptest::collection::vec(any::<u8>(), 0..40).prop_map(|b| format!("'\\x{}'::bytea", hex(&b))).boxed()),
        or_null((-700_000..2_900_000_i32).prop_map(|days| format!("'2000-01-01'::date + {days}")).boxed()),
        or_null((0..86_400_000_000_i64).prop_map(|us| format!("'0:0'::time + {us} * interval '1 us'")).boxed()),
        or_null((i64::from(i32::MIN)..i64::from(i32::MAX)).prop_map(|s| format!("to_timestamp({s}.000001)")).boxed()),
        (
            or_null(
                (i64::from(i32::MIN)..4_000_000_000)
                    .prop_map(|s| format!("'2000-01-01'::timestamp + {s} * interval '1 s'"))
                    .boxed(),
            ),
            or_null(any::<u128>().prop_map(|n| format!("'{n:032x}'::uuid")).boxed()),
            or_null(text("\\{\"[a-z$]{0,4}\":(1\\.50|1e5|12345678901234567890|null|\"\\$x\")\\}").boxed()),
            or_null((0..1000_i64).prop_map(|n| format!("{n} * interval '1 day 3 s'")).boxed()),
        ),
    )
        .prop_map(|(a, b, c, d, e, f, g, h, i, j, (k, l, m, n))| [a, b, c, d, e, f, g, h, i, j, k, l, m, n].join(", "))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const TABLE: &str = "(id bigserial PRIMARY KEY, a bool, b bigint, c numeric, d float8, e real, f text, \
    g bytea, h date, i time, j timestamptz, k timestamp, l uuid, m json, n interval)";

async fn copy(from: &str, to: &str, mode: WriteMode) {
    server::copy(Job { mode, chunksize: 7, ..Job::new(from, to) }).await;
}

#[test]
fn rows_of_postgres_come_back_from_ndjson_as_they_were() {
    let Some(url) = server::url("FLARE_TEST_POSTGRES_URL") else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let client = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(connection);
        tasks.detach_all();
        client.batch_execute("DROP SCHEMA IF EXISTS dump_trip CASCADE; CREATE SCHEMA dump_trip").await.unwrap();
        client
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.ndjson.zst").to_str().unwrap().to_owned();
    let table = |name: &str| format!("{url}{}table=dump_trip.{name}", if url.contains('?') { '&' } else { '?' });
    let rows = proptest::collection::vec(row(), 1..30);
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&rows, |rows| {
        runtime.block_on(async {
            let list: Vec<String> = rows.iter().map(|row| format!("({row})")).collect();
            let sql = format!(
                "DROP TABLE IF EXISTS dump_trip.a, dump_trip.b, dump_trip.c; CREATE TABLE dump_trip.a {TABLE};
                 CREATE TABLE dump_trip.b {TABLE};
                 INSERT INTO dump_trip.a (a, b, c, d, e, f, g, h, i, j, k, l, m, n) VALUES {}",
                list.join(", ")
            );
            client.batch_execute(&sql).await.unwrap();
            let _ = std::fs::remove_file(&file);
            copy(&table("a"), &file, WriteMode::Create).await;
            copy(&file, &table("b"), WriteMode::Append).await;
            copy(&table("b"), &table("c"), WriteMode::Create).await;
            for (one, other) in [("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")] {
                let sql =
                    format!("SELECT t::text FROM dump_trip.{one} t EXCEPT ALL SELECT t::text FROM dump_trip.{other} t");
                let differing = client.query(&sql, &[]).await.unwrap();
                let first: Option<String> = differing.first().map(|row| row.get(0));
                prop_assert_eq!(first, None, "rows of {} that {} has not", one, other);
            }
            Ok(())
        })
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
