//! Documents go to columns and come back the same: MongoDB → PostgreSQL → MongoDB, and the same by MariaDB.
//! Needs `FLARE_TEST_MONGODB_URL` with `FLARE_TEST_POSTGRES_URL` and `FLARE_TEST_MARIADB_URL`.

#![cfg(all(feature = "mongodb", feature = "postgres", feature = "mysql"))]
#![allow(clippy::unwrap_used, reason = "the exception for tests does not reach what tests share")]

mod server;

use std::collections::BTreeMap;

use flare_dump::job::{Job, Nulls};
use flare_dump::port::WriteMode;
use futures_util::TryStreamExt;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Binary, Bson, DateTime, Document, Regex, Timestamp, doc};
use mongodb::{Client, Database};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// A value of one type; `special` is a float that not every server has.
fn value(special: f64) -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![
        Just(Bson::Null),
        any::<bool>().prop_map(Bson::Boolean),
        any::<i64>().prop_map(int),
        any::<i16>().prop_map(|number| int(number.into())),
        prop_oneof![any::<f64>(), Just(5.0), Just(special)].prop_map(|number| Bson::Double(if number.is_nan() {
            0.5
        } else {
            number
        })),
        "[^\\x00]{0,12}".prop_map(Bson::String),
        Just(Bson::String("2024-01-31T00:00:00Z".into())),
        "-?[1-9][0-9]{0,20}(\\.[0-9]{1,10})?".prop_map(|text| Bson::Decimal128(text.parse().unwrap())),
        (-10_000_000_000_000..10_000_000_000_000_i64).prop_map(|at| Bson::DateTime(DateTime::from_millis(at))),
        any::<[u8; 12]>().prop_map(|bytes| Bson::ObjectId(ObjectId::from_bytes(bytes))),
        (prop_oneof![Just(0_u8), Just(3), Just(4), Just(128)], any::<[u8; 16]>())
            .prop_map(|(kind, bytes)| Bson::Binary(Binary { subtype: kind.into(), bytes: bytes.to_vec() })),
        any::<(u32, u32)>().prop_map(|(time, increment)| Bson::Timestamp(Timestamp { time, increment })),
        "[a-z^]{1,5}".prop_map(|text| Bson::RegularExpression(Regex {
            pattern: text.try_into().unwrap(),
            options: "i".try_into().unwrap()
        })),
        Just(Bson::MinKey),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            proptest::collection::vec(("[a-c$]{1,2}", inner), 0..4)
                .prop_map(|fields| Bson::Document(fields.into_iter().collect())),
        ]
    })
}

/// MongoDB itself compares integers of both widths as equal; so do we.
fn int(number: i64) -> Bson {
    i32::try_from(number).map_or(Bson::Int64(number), Bson::Int32)
}

/// A document with some of a few fields: the same name may have several types, or be missing.
fn document(special: f64) -> impl Strategy<Value = Document> {
    proptest::collection::btree_map("[a-e]", value(special), 0..5).prop_map(|fields| fields.into_iter().collect())
}

/// The documents by `_id`, their fields in the order of names.
async fn documents(database: &Database, name: &str) -> BTreeMap<String, BTreeMap<String, Bson>> {
    let found: Vec<Document> =
        database.collection(name).find(Document::new()).await.unwrap().try_collect().await.unwrap();
    found.into_iter().map(|document| (document["_id"].to_string(), document.into_iter().collect())).collect()
}

fn check(middle: &str, name: &str, special: f64, normal: fn(Bson) -> Bson) {
    let (Some(mongodb), Some(middle)) = (server::url("FLARE_TEST_MONGODB_URL"), server::url(middle)) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let client = runtime.block_on(Client::with_uri_str(&mongodb)).unwrap();
    let database = client.database(&format!("flare_dump_trip_{name}"));
    let (host, options) = mongodb.split_once('?').unwrap_or((&mongodb, ""));
    let collection = |name: &str| format!("{host}{}.{name}?{options}", database.name());
    let table = format!("{middle}{}table=flare_dump_trip", if middle.contains('?') { '&' } else { '?' });
    let several = proptest::collection::vec(document(special), 1..20);
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&several, |several| {
        runtime.block_on(async {
            database.drop().await.unwrap();
            let with_id = |(id, fields): (usize, Document)| {
                let mut document = doc! { "_id": int(id as i64) };
                document.extend(fields);
                document
            };
            let all: Vec<Document> = several.into_iter().enumerate().map(with_id).collect();
            database.collection("a").insert_many(all).await.unwrap();
            let there = Job { mode: WriteMode::Replace, chunksize: 7, ..Job::new(collection("a"), &table) };
            server::copy(there).await;
            let back = Job { spread: Some("_rest".into()), nulls: Nulls::Omit, ..Job::new(&table, collection("b")) };
            server::copy(back).await;
            let (before, after) = (documents(&database, "a").await, documents(&database, "b").await);
            let normalized = |all: BTreeMap<String, BTreeMap<String, Bson>>| -> Vec<_> {
                let fields = all.into_values().flat_map(BTreeMap::into_iter);
                fields.map(|(name, value)| (name, normal(value))).collect()
            };
            prop_assert_eq!(normalized(before), normalized(after));
            Ok(())
        })
    });
    runtime.block_on(async { database.drop().await }).unwrap();
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn documents_come_back_from_postgres_as_they_were() {
    check("FLARE_TEST_POSTGRES_URL", "postgres", f64::INFINITY, |value| value);
}

#[test]
fn documents_come_back_from_mariadb_as_they_were() {
    // Its decimals have thirty digits behind the point, and its floats are finite.
    check("FLARE_TEST_MARIADB_URL", "mariadb", -0.5, |value| match value {
        Bson::Decimal128(number) => {
            let text = number.to_string();
            let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
            Bson::String(text.to_owned())
        }
        other => other,
    });
}
