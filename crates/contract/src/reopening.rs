//! What must be there after a store was closed, or dropped without a word, and opened again.

use std::future::Future;

use flare_core::{
    DocumentNumber, Sequence,
    document::{Progress, Version},
    port::Store,
    revision::Revision,
};

use crate::make;

pub(crate) async fn check<F: Future<Output = Store>>(open: impl Fn(usize) -> F) {
    println!("  everything_is_there_after_a_close");
    everything_is_there_after(&open, 0, true).await;
    println!("  what_was_acknowledged_is_there_without_a_close");
    everything_is_there_after(&open, 1, false).await;
}

async fn everything_is_there_after<F: Future<Output = Store>>(open: &impl Fn(usize) -> F, data: usize, close: bool) {
    let store = open(data).await;
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let outlet = make::stored_outlet(&store, &stream).await.id;
    let token = make::stored_token(&store).await;
    let version = Version { sequence: Sequence(1), revision: Revision::new(1), deleted: false };
    let number = DocumentNumber(1);
    store.deliveries.record(vec![Progress::Version { outlet, number, version }]).await.unwrap();
    for revision in 1..100 {
        make::write(&store, make::put(&stream, &(revision % 10).to_string(), revision)).await.unwrap();
    }
    let head = store.documents.head();
    if close {
        store.engine.close().await.unwrap();
    }
    drop(store);

    let store = open(data).await;
    assert_eq!(store.documents.head(), head);
    assert_eq!(store.streams.page(None, 10).await.unwrap().len(), 1);
    assert_eq!(store.tokens.page(None, 10).await.unwrap(), [token]);
    for name in 0..10 {
        let read = store.documents.get(stream.id, &make::url(&name.to_string())).await.unwrap().unwrap();
        assert_eq!(read.revision, Revision::new(if name == 0 { 90 } else { 90 + name }));
    }
    assert_eq!(make::feed(&store, stream.id, Sequence::START).await.len(), 10);
    // It was recorded before a durable write.
    assert_eq!(store.deliveries.version(outlet, number).await.unwrap(), Some(version));
    let written = make::write(&store, make::put(&stream, "0", 1000)).await.unwrap();
    assert!(written.sequence > head, "a sequence was given out twice");
    store.engine.close().await.unwrap();
}
