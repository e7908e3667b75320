//! A resource as the source and the target of a copy: a database becomes a resource, and its subscribers are told.

use std::sync::Arc;

use flare_dump::contract::{Subject, check_reader, check_writer};
use flare_dump::copy::{Run, Summary, run};
use flare_dump::error::ErrorKind;
use flare_dump::event::{Progress, Silent};
use flare_dump::history::Place;
use flare_dump::job::Job;
use flare_dump::key::Range;
use flare_dump::location::Location;
use flare_dump::port::{Upper, WriteMode};
use flare_dump::row::Batch;
use flare_dump::session::Session;
use flare_dump::storage::{self, ReadOptions};
use flare_tests::{Flare, Receiver};
use futures_util::StreamExt;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{USERS, user};

fn address(flare: &Flare, endpoint: &str) -> String {
    format!("flare+http://{}/resources/{endpoint}", flare.addr())
}

async fn copy(job: Job) -> Summary {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::of_job(&folder.path().join("job.toml"));
    let session = Session::open(job).await.unwrap();
    let observer = Arc::new(Silent);
    let summary =
        run(session, place, Run::default(), observer, Progress::shared(), CancellationToken::new()).await.unwrap();
    assert!(summary.message.is_none() && summary.failed.is_empty(), "{summary:?}");
    summary
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_keeps_the_contract_of_writers() {
    let flare = Flare::start().await;
    let server = flare.addr();
    check_writer(&Subject {
        locate: Box::new(move |name| {
            let endpoint = format!("http://api.test/{name}/{{id}}");
            let options = "change=id&types=extended";
            Location::parse(&format!("flare+http://{server}/resources/{endpoint}?{options}")).unwrap()
        }),
        can_append: true,
        // The rows of the suite have no revision that would tell a newer one.
        can_upsert: false,
        can_replace: false,
        has_ledger: false,
        rejects: true,
        inexact: &["json"],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_read_once_however_they_are_cut() {
    let flare = Flare::start().await;
    flare.resource(USERS).await;
    for number in 0..23 {
        flare.put(&user(number), 1).await;
    }
    let location = Location::parse(&address(&flare, &format!("{USERS}?url=url"))).unwrap();
    let rows = check_reader(&*storage::reader(&location, &ReadOptions::default()).unwrap(), 23).await;
    assert!(rows[0].starts_with("{\"url\":\"http://api.test/users/0\","), "{}", rows[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_becomes_a_resource_whose_subscribers_are_told_once() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users.ndjson").to_str().unwrap().to_owned();
    let line = |id: usize| {
        format!("{{\"_id\": {id}, \"revision\": {}, \"tags\": [1.50]}}\n", if id == 7 { "\"x\"" } else { "1" })
    };
    std::fs::write(&file, (0..50).map(line).collect::<String>()).unwrap();
    let mut job = Job::new(&file, address(&flare, &format!("{USERS}?id=_id")));
    (job.chunksize, job.max_rejects) = (10, 1);
    let summary = copy(job.clone()).await;
    assert_eq!((summary.rows, summary.rejects), (49, 1));
    receiver.wait("all documents", |records| records.documents("/a") == 49).await;
    // Once more announces nothing; what comes after it would come after that.
    job.mode = WriteMode::Upsert;
    copy(job).await;
    flare.put(&user(49), 2).await;
    receiver.wait_revision("/a", &user(49), 2).await;
    assert_eq!(receiver.records().revisions("/a", &user(0)), [1]);
    let kept = flare.client().get_document(&user(3)).await.expect(200).text();
    assert_eq!(kept, r#"{"_id":3,"revision":1,"tags":[1.50]}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_come_and_go_meanwhile_shift_no_page() {
    let flare = Flare::start().await;
    flare.resource(USERS).await;
    let url = |number: usize| user(10_000 + number);
    let all: Vec<_> = (0..2500).map(|n| json!({ "id": url(n), "document": { "revision": 1, "n": n } })).collect();
    flare.client().post("/documents", &json!(all)).await.expect(202);
    let location = Location::parse(&address(&flare, USERS)).unwrap();
    let reader = storage::reader(&location, &ReadOptions::default()).unwrap();
    reader.describe().await.unwrap();
    let Upper::Key(upper) = reader.upper().await.unwrap() else { panic!("there are documents") };
    let mut batches = reader.read(&Range { after: None, upto: Some(upper) }, false);
    let mut found = Vec::new();
    let mut pages = 0;
    while let Some(batch) = batches.next().await {
        let Batch::Rows(batch) = batch.unwrap() else { panic!("nobody asked for raw rows") };
        let number = |row: &flare_dump::row::Row| match row.get(&batch.names, "n") {
            flare_dump::value::Value::Int(number) => *number as usize,
            other => panic!("{other:?}"),
        };
        found.extend(batch.rows.iter().map(number));
        pages += 1;
        match pages {
            // Those that were read go away, and the ones behind move up.
            1 => {
                let gone: Vec<_> = (0..700).map(|n| json!({ "id": url(n), "delete": true })).collect();
                flare.client().post("/documents", &json!(gone)).await.expect(202);
            }
            // Others come before.
            2 => {
                let came: Vec<_> = (0..1500)
                    .map(|n| json!({ "id": format!("{}-{n}", user(0)), "document": { "revision": 1, "n": 0 } }))
                    .collect();
                flare.client().post("/documents", &json!(came)).await.expect(202);
            }
            // And behind, where nobody looks any more.
            3 => flare.put(&user(99_999), 1).await,
            _ => (),
        }
    }
    assert_eq!(found, (0..2500).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_or_resource_is_told_without_the_token() {
    const TOKEN: &str = "a-token-of-more-than-sixteen-characters";
    let mut flare = Flare::configured(&format!("[security]\ntokens = [\"{TOKEN}\"]\n")).await;
    flare.resource(USERS).await;
    let addr = flare.addr();
    let describe = async |address: String| {
        let reader = storage::reader(&Location::parse(&address).unwrap(), &ReadOptions::default()).unwrap();
        reader.describe().await.map_err(|error| (error.kind(), error.chain()))
    };
    describe(format!("flare+http://{TOKEN}@{addr}/resources/{USERS}")).await.unwrap();
    let (kind, told) = describe(format!("flare+http://:wrong-{TOKEN}@{addr}/resources/{USERS}")).await.unwrap_err();
    assert_eq!(kind, ErrorKind::Invalid, "{told}");
    assert!(told.contains("401") && !told.contains(TOKEN), "{told}");
    let (kind, told) =
        describe(format!("flare+http://{addr}/resources/http://api.test/none/{{id}}")).await.unwrap_err();
    assert_eq!(kind, ErrorKind::Invalid, "{told}");
    flare.kill().await;
    let (kind, told) = describe(format!("flare+http://{addr}/resources/{USERS}")).await.unwrap_err();
    assert_eq!(kind, ErrorKind::Unavailable, "{told}");
}
