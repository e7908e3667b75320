//! Versions, cursors and retries.

use flare_core::{
    DocumentNumber, OutletId, Sequence,
    document::{Progress, Retry, Standing, Version},
    port::Store,
    revision::Revision,
};

use crate::{Case, cases, make};

pub(crate) const CASES: &[Case] = cases![
    a_version_reads_back_for_its_outlet_only,
    the_last_of_two_records_counts,
    a_new_outlet_stands_where_it_began,
    standings_have_cursor_and_retries,
    standings_continue_where_the_last_page_ended,
    a_settled_retry_is_gone,
    a_deleted_outlet_stands_nowhere,
];

const ENDPOINT: &str = "http://api.test/users/{id}";

fn version(sequence: u64) -> Version {
    Version { sequence: Sequence(sequence), revision: Revision::new(-3), deleted: sequence.is_multiple_of(2) }
}

fn retry(outlet: OutletId, number: u64, attempts: u32) -> Retry {
    let name = number.to_string();
    Retry { outlet, number: DocumentNumber(number), url: make::url(&name), attempts, due: make::at(5) }
}

async fn standing(store: &Store, outlet: OutletId) -> Option<Standing> {
    let all = store.deliveries.standings(None, 100).await.unwrap();
    all.into_iter().find(|standing| standing.outlet == outlet)
}

async fn a_version_reads_back_for_its_outlet_only(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let one = make::stored_outlet(&store, &stream).await.id;
    let two = make::stored_outlet(&store, &stream).await.id;
    let number = DocumentNumber(9);
    store.deliveries.record(vec![Progress::Version { outlet: one, number, version: version(4) }]).await.unwrap();
    assert_eq!(store.deliveries.version(one, number).await.unwrap(), Some(version(4)));
    assert_eq!(store.deliveries.version(two, number).await.unwrap(), None);
    assert_eq!(store.deliveries.version(one, DocumentNumber(8)).await.unwrap(), None);
}

async fn the_last_of_two_records_counts(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let outlet = make::stored_outlet(&store, &stream).await.id;
    let number = DocumentNumber(9);
    let step = |sequence| Progress::Version { outlet, number, version: version(sequence) };
    store.deliveries.record(vec![step(1), step(2)]).await.unwrap();
    store.deliveries.record(vec![step(3)]).await.unwrap();
    assert_eq!(store.deliveries.version(outlet, number).await.unwrap(), Some(version(3)));
}

async fn a_new_outlet_stands_where_it_began(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    make::write(&store, make::put(&stream, "1", 1)).await.unwrap();
    let outlet = make::stored_outlet(&store, &stream).await;
    let standing = standing(&store, outlet.id).await.unwrap();
    assert_eq!(standing.cursor, store.documents.head());
    assert!(standing.retries.is_empty());
}

async fn standings_have_cursor_and_retries(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let one = make::stored_outlet(&store, &stream).await.id;
    let two = make::stored_outlet(&store, &stream).await.id;
    let steps = vec![
        Progress::Retry(retry(one, 3, 1)),
        Progress::Retry(retry(two, 4, 2)),
        Progress::Retry(retry(one, 1, 1)),
        Progress::Retry(retry(one, 3, 2)),
        Progress::Cursor { outlet: one, cursor: Sequence(40) },
    ];
    store.deliveries.record(steps).await.unwrap();
    let (one, two) = (standing(&store, one).await.unwrap(), standing(&store, two).await.unwrap());
    assert_eq!(one.cursor, Sequence(40));
    assert_eq!(one.retries, [retry(one.outlet, 1, 1), retry(one.outlet, 3, 2)]);
    assert_eq!(two.retries, [retry(two.outlet, 4, 2)]);
}

async fn standings_continue_where_the_last_page_ended(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let mut outlets = Vec::new();
    for _ in 0..5 {
        let id = make::stored_outlet(&store, &stream).await.id;
        store.deliveries.record(vec![Progress::Retry(retry(id, 1, 1))]).await.unwrap();
        outlets.push(id);
    }
    outlets.sort();
    let mut read: Vec<OutletId> = Vec::new();
    loop {
        let page = store.deliveries.standings(read.last().copied(), 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        assert!(page.iter().all(|standing| standing.retries.len() == 1), "{page:?}");
        read.extend(page.iter().map(|standing| standing.outlet));
    }
    assert_eq!(read, outlets);
}

async fn a_settled_retry_is_gone(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let outlet = make::stored_outlet(&store, &stream).await.id;
    store.deliveries.record(vec![Progress::Retry(retry(outlet, 3, 1))]).await.unwrap();
    store.deliveries.record(vec![Progress::Settled { outlet, number: DocumentNumber(3) }]).await.unwrap();
    assert!(standing(&store, outlet).await.unwrap().retries.is_empty());
}

async fn a_deleted_outlet_stands_nowhere(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let outlet = make::stored_outlet(&store, &stream).await.id;
    let kept = make::stored_outlet(&store, &stream).await.id;
    store.deliveries.record(vec![Progress::Retry(retry(outlet, 3, 1))]).await.unwrap();
    store.outlets.delete(outlet).await.unwrap();
    // What is left of it may take a while to go, but it must not come up under another outlet.
    assert!(standing(&store, kept).await.unwrap().retries.is_empty());
}
