//! Streams and outlets.

use std::sync::Arc;

use flare_core::{
    ErrorKind, OutletId, StreamId,
    outlet::Outlet,
    port::{Idempotency, Inserted, Store},
    stream::Stream,
};

use crate::{Case, cases, make};

pub(crate) const CASES: &[Case] = cases![
    a_stream_reads_back_as_it_was_written,
    a_page_of_streams_continues_where_the_last_one_ended,
    a_duplicate_stream_conflicts,
    a_deleted_stream_is_gone,
    a_stream_with_outlets_is_not_deleted,
    an_outlet_reads_back_as_it_was_written,
    an_outlet_needs_its_stream,
    an_outlet_is_replaced,
    a_deleted_outlet_is_gone,
    a_repeated_key_makes_nothing_twice,
    a_key_is_not_for_two_requests,
];

async fn all_streams(store: &Store) -> Vec<StreamId> {
    store.streams.page(None, 100).await.unwrap().iter().map(|stream| stream.id).collect()
}

async fn all_outlets(store: &Store, stream: &Stream) -> Vec<Outlet> {
    let stream = Arc::new(stream.clone());
    store.outlets.page(None, 100, &move |id| (id == stream.id).then(|| stream.clone())).await.unwrap()
}

async fn a_stream_reads_back_as_it_was_written(store: Store) {
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let read = store.streams.page(None, 10).await.unwrap();
    assert_eq!(format!("{read:?}"), format!("{:?}", vec![stream]));
}

async fn a_page_of_streams_continues_where_the_last_one_ended(store: Store) {
    let mut written = Vec::new();
    for n in 0..5 {
        written.push(make::stored_stream(&store, &format!("http://api.test/{n}/{{id}}")).await.id);
    }
    written.sort();
    let mut read = Vec::new();
    loop {
        let page = store.streams.page(read.last().copied(), 2).await.unwrap();
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        read.extend(page.iter().map(|stream| stream.id));
    }
    assert_eq!(read, written);
    assert!(store.streams.page(None, 0).await.unwrap().is_empty());
}

async fn a_duplicate_stream_conflicts(store: Store) {
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let error = store.streams.insert(&stream, None, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

async fn a_deleted_stream_is_gone(store: Store) {
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    make::write(&store, make::put(&stream, "1", 1)).await.unwrap();
    store.streams.delete(stream.id).await.unwrap();
    assert!(all_streams(&store).await.is_empty());
    assert_eq!(store.streams.delete(stream.id).await.unwrap_err().kind(), ErrorKind::NotFound);
    let error = store.documents.write(vec![make::put(&stream, "1", 2)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

async fn a_stream_with_outlets_is_not_deleted(store: Store) {
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let outlet = make::stored_outlet(&store, &stream).await;
    assert_eq!(store.streams.delete(stream.id).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(all_streams(&store).await, [stream.id]);
    store.outlets.delete(outlet.id).await.unwrap();
    store.streams.delete(stream.id).await.unwrap();
}

async fn an_outlet_reads_back_as_it_was_written(store: Store) {
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let outlet = make::stored_outlet(&store, &stream).await;
    let read = all_outlets(&store, &stream).await;
    assert_eq!(format!("{read:?}"), format!("{:?}", vec![outlet.clone()]));
    // A secret does not print itself, so it is compared apart.
    assert_eq!(read[0].signing.secret, outlet.signing.secret);
    assert_eq!(read[0].signing.previous, outlet.signing.previous);
}

async fn an_outlet_needs_its_stream(store: Store) {
    let stream = make::stream("http://api.test/users/{id}");
    let error = store.outlets.insert(&make::outlet(&stream, store.documents.head()), None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

async fn an_outlet_is_replaced(store: Store) {
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let mut outlet = make::stored_outlet(&store, &stream).await;
    outlet.name = "renamed".into();
    store.outlets.update(&outlet).await.unwrap();
    assert_eq!(all_outlets(&store, &stream).await[0].name, "renamed");
    outlet.id = OutletId::generate();
    assert_eq!(store.outlets.update(&outlet).await.unwrap_err().kind(), ErrorKind::NotFound);
}

async fn a_deleted_outlet_is_gone(store: Store) {
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let outlet = make::stored_outlet(&store, &stream).await;
    store.outlets.delete(outlet.id).await.unwrap();
    assert!(all_outlets(&store, &stream).await.is_empty());
    assert_eq!(store.outlets.delete(outlet.id).await.unwrap_err().kind(), ErrorKind::NotFound);
}

fn once(key: &str, fingerprint: u8) -> Option<Idempotency> {
    Some(Idempotency { key: key.into(), fingerprint: [fingerprint; 32], at: jiff::Timestamp::now() })
}

async fn a_repeated_key_makes_nothing_twice(store: Store) {
    let first = make::stream("http://api.test/users/{id}");
    assert_eq!(store.streams.insert(&first, once("k", 1), None).await.unwrap(), Some(Inserted::New));
    let again = make::stream("http://api.test/users/{id}");
    assert_eq!(store.streams.insert(&again, once("k", 1), None).await.unwrap(), Some(Inserted::Before(first.id)));
    assert_eq!(store.streams.made_by(&once("k", 1).unwrap()).await.unwrap(), Some(first.id));
    assert_eq!(store.streams.made_by(&once("other", 1).unwrap()).await.unwrap(), None);
    assert_eq!(all_streams(&store).await, [first.id]);

    let outlet = make::outlet(&first, store.documents.head());
    assert_eq!(store.outlets.insert(&outlet, once("o", 1)).await.unwrap(), Inserted::New);
    let again = make::outlet(&first, store.documents.head());
    assert_eq!(store.outlets.insert(&again, once("o", 1)).await.unwrap(), Inserted::Before(outlet.id));
    assert_eq!(all_outlets(&store, &first).await.len(), 1);
}

async fn a_key_is_not_for_two_requests(store: Store) {
    let stream = make::stream("http://api.test/users/{id}");
    store.streams.insert(&stream, once("k", 1), None).await.unwrap();
    let other = make::stream("http://api.test/orders/{id}");
    assert_eq!(store.streams.insert(&other, once("k", 2), None).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(store.streams.made_by(&once("k", 2).unwrap()).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(all_streams(&store).await, [stream.id]);
}
