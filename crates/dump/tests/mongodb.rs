//! MongoDB against the contract of storages, and what only it has. Needs `FLARE_TEST_MONGODB_URL`.

#![cfg(feature = "mongodb")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server;

use std::collections::BTreeSet;

use flare_dump::contract::{Subject, check_reader, check_writer};
use flare_dump::job::Job;
use flare_dump::location::Location;
use flare_dump::port::{Walk, WriteMode};
use flare_dump::storage::{self, ReadOptions};
use futures_util::TryStreamExt;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Binary, Bson, DateTime, Document, RawDocumentBuf, Regex, Timestamp, doc};
use mongodb::{Client, Database};

const REPLICA_SET: &str = "FLARE_TEST_MONGODB_URL";
const STANDALONE: &str = "FLARE_TEST_MONGODB_STANDALONE_URL";

/// A database of our own on a server.
struct Server {
    database: Database,
    url: String,
}

impl Server {
    async fn find(variable: &str, name: &str) -> Option<Self> {
        let url = server::url(variable)?;
        let database = Client::with_uri_str(&url).await.unwrap().database(&format!("flare_dump_{name}"));
        database.drop().await.unwrap();
        Some(Self { database, url })
    }

    /// The address of a collection.
    fn address(&self, collection: &str) -> String {
        let (host, options) = self.url.split_once('?').unwrap_or((&self.url, ""));
        format!("{host}{}.{collection}?{options}", self.database.name())
    }

    fn locate(&self, collection: &str) -> Location {
        Location::parse(&self.address(collection)).unwrap()
    }

    async fn insert(&self, collection: &str, documents: Vec<Document>) {
        self.database.collection(collection).insert_many(documents).await.unwrap();
    }

    /// The documents of a collection, byte for byte.
    async fn bytes(&self, collection: &str) -> BTreeSet<Vec<u8>> {
        let found = self.database.collection::<RawDocumentBuf>(collection).find(Document::new()).await.unwrap();
        found.map_ok(RawDocumentBuf::into_bytes).try_collect().await.unwrap()
    }

    /// The names of what is there.
    async fn collections(&self) -> Vec<String> {
        self.database.list_collection_names().await.unwrap()
    }
}

async fn check_contract(variable: &str, name: &str) {
    let Some(server) = Server::find(variable, name).await else { return };
    let (host, options) =
        server.url.split_once('?').map_or((server.url.clone(), ""), |(host, rest)| (host.into(), rest));
    let (options, database) = (options.to_owned(), server.database.name().to_owned());
    check_writer(&Subject {
        locate: Box::new(move |name| Location::parse(&format!("{host}{database}.{name}?{options}&id=id")).unwrap()),
        can_append: true,
        can_replace: true,
        has_ledger: true,
        can_upsert: true,
        rejects: false,
        // Text, since MongoDB has no such types; a decimal of 38 digits; microseconds; JSON is read as what it says.
        inexact: &["day", "time", "datetime", "instant", "decimal", "json"],
    })
    .await;
    let left: Vec<String> = server.collections().await.into_iter().filter(|name| name.starts_with("flare")).collect();
    // Jobs of the suite that end in the middle leave their ledgers.
    assert!(left.iter().all(|name| name.starts_with("flare_dump_") && !name.ends_with("_new")), "{left:?}");
    server.database.drop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_set_keeps_the_contract_of_writers() {
    check_contract(REPLICA_SET, "writer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_server_keeps_the_contract_of_writers() {
    check_contract(STANDALONE, "writer").await;
}

/// One of every type that can be a key, in an order that is not that of the index.
fn mixed_ids() -> Vec<Bson> {
    vec![
        Bson::String("b".into()),
        Bson::Int32(5),
        Bson::Double(f64::NAN),
        Bson::ObjectId(ObjectId::from_bytes([7; 12])),
        Bson::Int64(9_007_199_254_740_993),
        Bson::Double(9_007_199_254_740_994.0),
        Bson::Double(f64::NEG_INFINITY),
        Bson::Double(-0.5),
        Bson::Decimal128("5.5".parse().unwrap()),
        Bson::Decimal128("1E+40".parse().unwrap()),
        Bson::DateTime(DateTime::from_millis(-1)),
        Bson::DateTime(DateTime::from_millis(i64::MAX)),
        Bson::Boolean(false),
        Bson::Boolean(true),
        Bson::Null,
        Bson::MinKey,
        Bson::MaxKey,
        Bson::Timestamp(Timestamp { time: 7, increment: 1 }),
        Bson::Binary(Binary { subtype: 0.into(), bytes: vec![1, 2] }),
        Bson::Binary(Binary { subtype: 4.into(), bytes: vec![9; 16] }),
        Bson::Binary(Binary { subtype: 128.into(), bytes: vec![1] }),
        Bson::Document(doc! { "a": 1, "b": "x" }),
        Bson::Document(doc! { "b": 1, "a": { "c": [1, Bson::Null] } }),
        Bson::String(String::new()),
        Bson::String("B".into()),
        Bson::JavaScriptCode("x".into()),
        Bson::Symbol("s".into()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_all_types_are_walked_in_one_order() {
    let Some(server) = Server::find(REPLICA_SET, "reader").await else { return };
    let ids = mixed_ids();
    server.insert("mixed", ids.iter().map(|id| doc! { "_id": id.clone(), "n": 1 }).collect()).await;
    server.insert("one", vec![doc! { "_id": 1 }]).await;
    server.database.create_collection("empty").await.unwrap();
    server.insert("plain", (0..23).map(|id| doc! { "_id": ObjectId::new(), "n": id }).collect()).await;
    server.database.create_collection("seen").view_on("plain").pipeline(vec![]).await.unwrap();
    for (name, rows) in [("mixed", ids.len()), ("one", 1), ("empty", 0), ("plain", 23), ("seen", 23)] {
        for by_offset in [false, true] {
            let options = ReadOptions { by_offset, ..ReadOptions::default() };
            let reader = storage::reader(&server.locate(name), &options).unwrap();
            check_reader(&*reader, rows).await;
            let walk = reader.describe().await.unwrap().walk;
            assert_eq!(walk == Walk::Sequence, name == "seen" && !by_offset, "{name}");
        }
    }
    server.database.drop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boundary_is_found_in_the_index_alone() {
    let Some(server) = Server::find(REPLICA_SET, "covered").await else { return };
    server.insert("big", (0..500).map(|id| doc! { "_id": id, "text": "x".repeat(100) }).collect()).await;
    server.database.run_command(doc! { "profile": 2 }).await.unwrap();
    let reader = storage::reader(&server.locate("big"), &ReadOptions::default()).unwrap();
    reader.describe().await.unwrap();
    let after = flare_dump::key::Key::int(99);
    reader.boundary(Some(&after), None, 100).await.unwrap();
    server.database.run_command(doc! { "profile": 0 }).await.unwrap();
    let profile = server.database.collection::<Document>("system.profile");
    let found = profile.find_one(doc! { "command.min": { "$exists": true } }).await.unwrap().expect("the walk is seen");
    assert_eq!(found.get_i32("docsExamined").unwrap(), 0, "{found}");
    assert!(found.get_i32("keysExamined").unwrap() <= 102, "{found}");
    server.database.drop().await.unwrap();
}

/// Everything a document can have.
fn rich(id: i32) -> Document {
    doc! {
        "_id": id, "double": 5.0, "int": 5, "long": i64::MAX, "small": 7_i64, "null": Bson::Null,
        "text": "naïve\u{0} ☃",
        "decimal": Bson::Decimal128("1.10".parse().unwrap()), "date": DateTime::from_millis(-1), "yes": true,
        "bytes": Binary { subtype: 0.into(), bytes: vec![0, 255] },
        "old": Binary { subtype: 3.into(), bytes: vec![1; 16] },
        "regex": Bson::RegularExpression(Regex { pattern: "^a".try_into().unwrap(), options: "i".try_into().unwrap() }),
        "stamp": Timestamp { time: 7, increment: 8 }, "min": Bson::MinKey, "oid": ObjectId::from_bytes([1; 12]),
        "nested": { "b": [1, { "c": Bson::Null }, []], "a": {} }, "$dollar": 1, "nan": f64::NAN,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_the_same_bytes_in_another_collection() {
    let Some(server) = Server::find(REPLICA_SET, "exact").await else { return };
    server.insert("source", (0..50).map(rich).collect()).await;
    let job = Job::new(server.address("source"), server.address("raw"));
    assert_eq!(server::copy(job).await.rows, 50);
    assert_eq!(server.bytes("raw").await, server.bytes("source").await);
    assert!(!server.collections().await.iter().any(|name| name.starts_with("flare_dump_")), "the ledger is gone");
    // Through extended JSON, where 32 and 64 bits are the same.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.ndjson").to_str().unwrap().to_owned();
    server::copy(Job::new(server.address("source"), file.clone())).await;
    server::copy(Job::new(file, server.address("back"))).await;
    let normal = |bytes: BTreeSet<Vec<u8>>| -> BTreeSet<String> {
        let text = |bytes| Document::try_from(RawDocumentBuf::from_bytes(bytes).unwrap()).unwrap().to_string();
        bytes.into_iter().map(text).collect()
    };
    assert_eq!(normal(server.bytes("back").await), normal(server.bytes("source").await));
    server.database.drop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_an_index_or_a_rule_refuses_are_rejected_alone() {
    let Some(server) = Server::find(REPLICA_SET, "rejects").await else { return };
    let documents = (0..1000).map(|id| doc! { "_id": id, "mail": id % 990, "n": if id == 500 { -1 } else { 1 } });
    server.insert("source", documents.collect()).await;
    let rule = doc! { "n": { "$gt": 0 } };
    server.database.create_collection("target").validator(rule).await.unwrap();
    let index =
        doc! { "createIndexes": "target", "indexes": [{ "key": { "mail": 1 }, "name": "mail", "unique": true }] };
    server.database.run_command(index).await.unwrap();
    for mode in [WriteMode::Append, WriteMode::Upsert, WriteMode::Replace] {
        server.database.collection::<Document>("target").delete_many(Document::new()).await.unwrap();
        let mut job = Job::new(server.address("source"), server.address("target"));
        (job.mode, job.max_rejects, job.chunksize, job.workers) = (mode, 100, 2000, 1);
        let summary = server::copy(job).await;
        assert_eq!((summary.rows, summary.rejects), (989, 11), "{mode:?}");
        let count = server.database.collection::<Document>("target").count_documents(Document::new()).await.unwrap();
        assert_eq!(count, 989, "{mode:?}");
    }
    let indexes = server.database.collection::<Document>("target").list_index_names().await.unwrap();
    assert!(indexes.contains(&"mail".to_owned()), "a collection that is replaced keeps its indexes: {indexes:?}");
    server.database.drop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_without_an_id_are_there_once_when_a_chunk_is_done_again() {
    let Some(server) = Server::find(REPLICA_SET, "generated").await else { return };
    use flare_dump::contract::numbered;
    use flare_dump::port::Target;
    use flare_dump::row::Batch;
    let target = Target { job: "1".repeat(16), mode: WriteMode::Append, schema: Default::default(), is_resumed: false };
    let writer = storage::writer(&server.locate("rows")).unwrap();
    writer.prepare(&target).await.unwrap();
    // An attempt whose end nobody heard of: its rows are there, and its entry in the ledger is not complete.
    let mut open = writer.open("0").await.unwrap();
    open.attempt(numbered(0, 10)).await.unwrap();
    drop(open);
    let mut open = writer.open("0").await.unwrap();
    open.write(Batch::Rows(numbered(0, 8))).await.unwrap();
    assert_eq!(open.commit().await.unwrap().rows, 8);
    writer.finish().await.unwrap();
    let count = server.database.collection::<Document>("rows").count_documents(Document::new()).await.unwrap();
    assert_eq!(count, 8);
    server.database.drop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_is_there_is_not_overwritten_by_appending() {
    let Some(server) = Server::find(REPLICA_SET, "append").await else { return };
    server.insert("source", (0..10).map(|id| doc! { "_id": id, "n": "new" }).collect()).await;
    // The same bytes count as an earlier attempt; others do not.
    server.insert("target", vec![doc! { "_id": 3, "n": "new" }, doc! { "_id": 4, "n": "old" }]).await;
    let mut job = Job::new(server.address("source"), server.address("target"));
    (job.mode, job.max_rejects) = (WriteMode::Append, 5);
    let summary = server::copy(job).await;
    assert_eq!((summary.rows, summary.rejects), (9, 1));
    let four = server.database.collection::<Document>("target").find_one(doc! { "_id": 4 }).await.unwrap().unwrap();
    assert_eq!(four.get_str("n").unwrap(), "old");
    server.database.drop().await.unwrap();
}
