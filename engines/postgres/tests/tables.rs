//! Tables stay as large as what is kept in them, and are found as the documentation says.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use std::time::Duration;

use flare_contract::make;
use flare_core::{
    ErrorKind, Sequence,
    document::{DocumentWrite, WriteBody},
    port::DocumentQuery,
    url::DocumentUrl,
};
use flare_postgres::Options;
use server::Server;

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_made_ahead_and_tidied_up_behind_the_sweep() {
    let Some(server) = Server::find() else { return };
    let options = Options { partition_rows: 100, ..server.options("parts") };
    let store = flare_postgres::open(&options).await.unwrap();
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    // One document of ten stays as it is, nine are replaced all the time; more at once than there is room for.
    for round in 0..20i64 {
        let name =
            |number: i64| if number % 10 == 0 { format!("still-{round}-{number}") } else { format!("{}", number % 10) };
        let writes = (0..100).map(|number| DocumentWrite {
            at: make::at(round * 60),
            ..make::put(&stream, &name(number), i128::from(round * 100 + number))
        });
        store.documents.write(writes.collect()).await.unwrap();
    }
    let raw = server.raw().await;
    let tables = async || {
        let count = "SELECT count(*), coalesce(sum(pg_relation_size(inhrelid)), 0)::bigint FROM pg_inherits \
                     WHERE inhparent = ($1::text || '.changes')::regclass";
        let row = raw.query_one(count, &[&options.schema]).await.unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1))
    };
    let (before, bytes_before) = tables().await;
    assert!(before >= 20, "{before}");
    // The last minutes stay.
    let swept = store.documents.sweep(make::at(18 * 60)).await.unwrap();
    assert!(swept > 1500, "{swept}");
    let (_, bytes_after) = tables().await;
    assert!(bytes_after * 2 < bytes_before, "{bytes_before} bytes before, {bytes_after} after");
    for round in 0..20 {
        let read = store.documents.get(stream.id, &make::url(&format!("still-{round}-50"))).await.unwrap().unwrap();
        assert_eq!(read.revision.value(), round * 100 + 50);
    }
    assert_eq!(make::feed(&store, stream.id, Sequence::START).await.len(), 200 + 9);

    // When also these are gone, so are their tables.
    let gone = (0..20).flat_map(|round| (0..10).map(move |number| format!("still-{round}-{}", number * 10)));
    let deletes = gone.map(|name| DocumentWrite { at: make::at(30 * 60), ..make::delete(&stream, &name, None) });
    store.documents.write(deletes.collect()).await.unwrap();
    store
        .documents
        .write(vec![DocumentWrite { at: make::at(40 * 60), ..make::put(&stream, "1", 10_000) }])
        .await
        .unwrap();
    store.documents.sweep(make::at(40 * 60)).await.unwrap();
    let (after, _) = tables().await;
    assert!(after <= 7, "{after} tables of {before} are left");
    assert_eq!(store.documents.get(stream.id, &make::url("1")).await.unwrap().unwrap().revision.value(), 10_000);
    store.engine.close().await.unwrap();
    server.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_cannot_keep_hurts_nobody_else() {
    let Some(server) = Server::find() else { return };
    let store = server.open("poison").await;
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let with = |name: &str, content: &'static [u8]| {
        let write = make::put(&stream, name, 1);
        let WriteBody::Put { revision, .. } = write.body else { unreachable!() };
        DocumentWrite { body: WriteBody::Put { revision, content: content.into() }, ..write }
    };
    // Kept byte for byte, also what `jsonb` would refuse or rewrite.
    let odd: &[u8] = br#" { "b":1.0, "a" : "\u0000\ud800", "a":1e400 , "b":2 }"#;
    let (bad, good, worse) = tokio::join!(
        store.documents.write(vec![with("bad", b"{not json")]),
        store.documents.write(vec![with("good", odd)]),
        store.documents.write(vec![with("worse", b"{\"a\":\"\xff\"}")]),
    );
    assert_eq!(bad.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(worse.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(good.unwrap().len(), 1);
    let read = store.documents.get(stream.id, &make::url("good")).await.unwrap().unwrap();
    assert_eq!(read.content.as_deref(), Some(odd));
    assert_eq!(store.documents.head(), Sequence(1));
    store.engine.close().await.unwrap();
    server.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn urls_that_no_index_takes_are_documents_like_others() {
    let Some(server) = Server::find() else { return };
    let store = server.open("long").await;
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    // No two bytes repeat in a way that could be compressed.
    let mut noise = 1u64;
    let tail: String = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b"abcdefghijklmnopqrstuvwxyz0123456789-_~."[(noise >> 33) as usize % 40])
    })
    .take(4000)
    .collect();
    let url = |last: &str| DocumentUrl::parse(&format!("http://api.test/users/{tail}{last}")).unwrap();
    for last in ["c", "a", "b"] {
        let write = DocumentWrite { url: url(last), ..make::put(&stream, "x", 1) };
        store.documents.write(vec![write]).await.unwrap();
    }
    let query = DocumentQuery { prefix: url("").as_str().into(), limit: 10, ..DocumentQuery::default() };
    let page = store.documents.page(stream.id, &query).await.unwrap();
    let found: Vec<_> = page.documents.iter().map(|change| change.url.clone()).collect();
    assert_eq!((found, page.total), (vec![url("a"), url("b"), url("c")], 3));
    assert!(store.documents.get(stream.id, &url("b")).await.unwrap().is_some());
    assert!(store.documents.get(stream.id, &url("d")).await.unwrap().is_none());
    store.engine.close().await.unwrap();
    server.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_a_newer_version_are_refused() {
    let Some(server) = Server::find() else { return };
    let options = server.options("newer");
    let layout = flare_postgres::schema(&options).await.unwrap();
    assert!(layout.status().await.unwrap().iter().all(|step| step.applied_at.is_none()));
    assert!(!layout.up().await.unwrap().is_empty());
    assert!(layout.up().await.unwrap().is_empty());
    assert!(layout.status().await.unwrap().iter().all(|step| step.applied_at.is_some()));
    let mark = format!("INSERT INTO {}.migrations VALUES (99, 'later', now())", options.schema);
    server.raw().await.batch_execute(&mark).await.unwrap();
    let error = flare_postgres::open(&options).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("layout 99") && error.to_string().contains("up to 1"), "{error}");
    server.clean_up().await;
}

/// A node that stops in the middle of a turn, with the head locked, does not stop the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_nobody_gives_back_times_out() {
    let Some(server) = Server::find() else { return };
    let options = Options { timeout: Duration::from_secs(1), ..server.options("stuck") };
    let store = flare_postgres::open(&options).await.unwrap();
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let raw = server.raw().await;
    raw.batch_execute("SET idle_in_transaction_session_timeout TO 2000").await.unwrap();
    raw.batch_execute(&format!("BEGIN; SELECT * FROM {}.head FOR UPDATE", options.schema)).await.unwrap();
    let error = store.documents.write(vec![make::put(&stream, "1", 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    make::write(&store, make::put(&stream, "1", 1)).await.unwrap();
    store.engine.close().await.unwrap();
    server.clean_up().await;
}
