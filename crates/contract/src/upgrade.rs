//! A data set of everything that a store keeps. Engines hold a copy of it in every layout that they ever had, so that a version
//! of Flare is known to read what older ones have written.

use flare_core::{
    DocumentNumber, Sequence,
    delivery::{DeadLetter, DeathCause},
    document::{Progress, Retry, Version},
    port::{Store, StreamLookup},
    revision::Revision,
};
use std::sync::Arc;

use crate::make;

const NAMES: i128 = 10;
const REVISIONS: i128 = 3;

/// Writes the data set into an empty store.
pub async fn fill(store: &Store) {
    let stream = make::stored_stream(store, "http://api.test/users/{id}").await;
    let outlet = make::stored_outlet(store, &stream).await.id;
    make::stored_token(store).await;
    for revision in 1..=REVISIONS {
        for name in 0..NAMES {
            make::write(store, make::put(&stream, &name.to_string(), revision)).await.unwrap();
        }
    }
    make::write(store, make::delete(&stream, "9", Some(REVISIONS + 1))).await.unwrap();
    let version = Version { sequence: Sequence(11), revision: Revision::new(2), deleted: false };
    let (number, url) = (DocumentNumber(2), make::url("1"));
    let letter = DeadLetter {
        outlet,
        number,
        url: url.clone(),
        sequence: Sequence(12),
        revision: Revision::new(2),
        attempts: 5,
        cause: DeathCause::Exhausted,
        detail: "the endpoint answered 500".to_owned(),
        at: make::at(7),
    };
    let steps = vec![
        Progress::Version { outlet, number: DocumentNumber(1), version },
        Progress::Retry(Retry { outlet, number, url, attempts: 2, due: make::at(60) }),
        Progress::DeadLetter(letter),
        Progress::Demand { outlet, left: 4 },
        Progress::Failing { outlet, since: Some(make::at(3)) },
        Progress::Cursor { outlet, cursor: Sequence(15) },
    ];
    store.deliveries.record(steps).await.unwrap();
    store.engine.flush().await.unwrap();
}

/// All of it is there, and the store works on.
pub async fn check(store: &Store) {
    let streams = store.streams.page(None, 10).await.unwrap();
    let [stream] = &streams[..] else { panic!("{} streams", streams.len()) };
    assert_eq!(stream.endpoint.to_string(), "http://api.test/users/{id}");
    let known = Arc::new(stream.clone());
    let lookup: Box<StreamLookup> = Box::new(move |id| (id == known.id).then(|| known.clone()));
    let outlets = store.outlets.page(None, 10, &*lookup).await.unwrap();
    let [outlet] = &outlets[..] else { panic!("{} outlets", outlets.len()) };
    assert_eq!(outlet.stream, stream.id);
    assert_eq!(store.tokens.page(None, 10).await.unwrap().len(), 1);

    for name in 0..NAMES {
        let read = store.documents.get(stream.id, &make::url(&name.to_string())).await.unwrap().unwrap();
        let deleted = name == 9;
        assert_eq!(
            (read.revision, read.is_delete()),
            (Revision::new(REVISIONS + i128::from(deleted)), deleted),
            "{name}"
        );
    }
    assert_eq!(make::feed(store, stream.id, Sequence::START).await.len(), NAMES as usize);

    let standing = store.deliveries.standing(outlet.id).await.unwrap();
    assert_eq!((standing.cursor, standing.demand), (Sequence(15), 4));
    assert_eq!(standing.failing_since, Some(make::at(3)));
    let retries: Vec<_> = standing.retries.iter().map(|retry| (retry.number.0, retry.attempts, retry.due)).collect();
    assert_eq!(retries, [(2, 2, make::at(60))]);
    let version = store.deliveries.version(outlet.id, DocumentNumber(1)).await.unwrap().unwrap();
    assert_eq!((version.sequence, version.revision), (Sequence(11), Revision::new(2)));
    let (letters, total) = store.deliveries.dead_letters(outlet.id, 0, 10).await.unwrap();
    assert_eq!((total, letters[0].attempts, letters[0].detail.as_str()), (1, 5, "the endpoint answered 500"));

    let head = store.documents.head();
    let written = make::write(store, make::put(stream, "0", 1000)).await.unwrap();
    assert!(written.sequence > head, "a sequence was given out twice");
}
