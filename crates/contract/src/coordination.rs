//! Rows on which nodes agree, owners that replace each other, and entities that nodes hear of.

use bytes::Bytes;
use flare_core::{
    ErrorKind, Sequence,
    document::Progress,
    outlet::Outlet,
    port::{AgreedRow, Agreement, Store},
};
use futures_util::future::join_all;

use crate::{Case, cases, make};

pub(crate) const CASES: &[Case] = cases![
    a_row_is_written_only_by_one_who_has_seen_it,
    of_many_who_write_at_once_one_is_first,
    an_owner_cannot_seal_after_a_newer_one,
    an_owner_that_has_sealed_records,
    every_write_to_an_entity_moves_the_revision,
];

fn text(value: &'static str) -> Bytes {
    Bytes::from_static(value.as_bytes())
}

async fn a_row_is_written_only_by_one_who_has_seen_it(store: Store) {
    let rows = &store.coordination;
    assert_eq!(rows.get("worker").await.unwrap(), None);
    assert_eq!(rows.compare_and_set("worker", Some(1), text("x")).await.unwrap(), Agreement::Refused(None));
    let Agreement::Applied(first) = rows.compare_and_set("worker", None, text("one")).await.unwrap() else { panic!() };
    let one = AgreedRow { value: text("one"), version: first };
    assert_eq!(rows.get("worker").await.unwrap(), Some(one.clone()));
    let refused = rows.compare_and_set("worker", None, text("x")).await.unwrap();
    assert_eq!(refused, Agreement::Refused(Some(one)));
    let Agreement::Applied(second) = rows.compare_and_set("worker", Some(first), text("two")).await.unwrap() else {
        panic!()
    };
    assert!(second > first);
    let two = AgreedRow { value: text("two"), version: second };
    let refused = rows.compare_and_set("worker", Some(first), text("x")).await.unwrap();
    assert_eq!(refused, Agreement::Refused(Some(two.clone())));
    assert_eq!(rows.get("worker").await.unwrap(), Some(two));
    assert_eq!(rows.get("other").await.unwrap(), None);
}

async fn of_many_who_write_at_once_one_is_first(store: Store) {
    let mut seen = None;
    for round in 0..3 {
        let all = join_all((0..16).map(|_| store.coordination.compare_and_set("race", seen, text("mine")))).await;
        let applied: Vec<_> = all
            .into_iter()
            .filter_map(|outcome| match outcome.unwrap() {
                Agreement::Applied(version) => Some(version),
                Agreement::Refused(_) | Agreement::Unknown => None,
            })
            .collect();
        assert_eq!(applied.len(), 1, "round {round}");
        seen = Some(applied[0]);
    }
}

async fn an_owner_cannot_seal_after_a_newer_one(store: Store) {
    store.deliveries.seal(3).await.unwrap();
    assert_eq!(store.deliveries.seal(2).await.unwrap_err().kind(), ErrorKind::Conflict);
    store.deliveries.seal(3).await.unwrap();
    store.deliveries.seal(7).await.unwrap();
}

async fn an_owner_that_has_sealed_records(store: Store) {
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let outlet = make::stored_outlet(&store, &stream).await.id;
    for (epoch, cursor) in [(1, Sequence(5)), (2, Sequence(9))] {
        store.deliveries.seal(epoch).await.unwrap();
        store.deliveries.record(vec![Progress::Cursor { outlet, cursor }]).await.unwrap();
        assert_eq!(store.deliveries.standing(outlet).await.unwrap().cursor, cursor);
    }
}

async fn every_write_to_an_entity_moves_the_revision(store: Store) {
    let mut last = store.engine.entities_revision().await.unwrap();
    let mut moved = async |what: &str| {
        let revision = store.engine.entities_revision().await.unwrap();
        assert!(revision > last, "{what}");
        last = revision;
    };
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    moved("a new stream").await;
    let outlet = make::stored_outlet(&store, &stream).await;
    moved("a new outlet").await;
    store.outlets.update(&Outlet { name: "renamed".into(), ..outlet.clone() }).await.unwrap();
    moved("a changed outlet").await;
    store.outlets.delete(outlet.id).await.unwrap();
    moved("a deleted outlet").await;
    store.streams.delete(stream.id).await.unwrap();
    moved("a deleted stream").await;
    let token = make::stored_token(&store).await;
    moved("a new token").await;
    store.tokens.delete(token.id).await.unwrap();
    moved("a deleted token").await;
}
