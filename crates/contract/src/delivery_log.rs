//! What is kept of deliveries: attempts, dead letters, demand, and what an outlet lacks.

use std::time::Duration;

use bytes::Bytes;
use flare_core::{
    DocumentNumber, OutletId, Sequence,
    delivery::{AttemptKind, AttemptQuery, AttemptRecord, AttemptResult, Bodies, DeadLetter, DeathCause},
    document::{Action, Progress, Version},
    port::{Span, Store},
    revision::Revision,
};
use jiff::Timestamp;

use crate::{Case, cases, make};

pub(crate) const CASES: &[Case] = cases![
    attempts_read_back_the_newest_first,
    attempts_are_narrowed_and_paged,
    old_attempts_are_forgotten,
    old_dead_letters_are_forgotten,
    since_when_an_outlet_fails_reads_back_until_it_succeeds,
    dead_letters_read_back_until_they_are_discarded,
    demand_is_part_of_the_standing,
    what_an_outlet_lacks_is_found,
    a_deleted_outlet_leaves_no_log,
];

const ENDPOINT: &str = "http://api.test/users/{id}";

fn attempt(number: i64, result: AttemptResult) -> AttemptRecord {
    AttemptRecord {
        at: make::at(number),
        url: make::url(&(number % 3).to_string()),
        revision: Revision::new(i128::from(number)),
        action: [Action::Create, Action::Update, Action::Delete][number as usize % 3],
        attempt: number as u32 + 1,
        duration: Duration::from_micros(1500),
        result,
        request_bytes: 100,
        response_bytes: 7,
        bodies: (number % 2 == 0)
            .then(|| Bodies { request: Bytes::from_static(b"{}"), response: Bytes::from_static(b"\xff") }),
    }
}

fn all(limit: usize) -> AttemptQuery {
    AttemptQuery { before: None, since: None, document: None, which: AttemptKind::All, limit }
}

/// Ten attempts in three batches: answered with 200, 500 or not at all in turns.
async fn ten_attempts(store: &Store, outlet: OutletId) -> Vec<AttemptRecord> {
    let result = |number| match number % 3 {
        0 => AttemptResult::Answered(200),
        1 => AttemptResult::Answered(500),
        _ => AttemptResult::Failed("connection refused".into()),
    };
    let attempts: Vec<_> = (0..10).map(|number| attempt(number, result(number))).collect();
    for batch in [&attempts[..4], &attempts[4..5], &attempts[5..]] {
        store.deliveries.record(vec![Progress::Attempts { outlet, attempts: batch.to_vec() }]).await.unwrap();
    }
    attempts
}

async fn attempts_read_back_the_newest_first(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let (one, two) = (make::stored_outlet(&store, &stream).await.id, make::stored_outlet(&store, &stream).await.id);
    let mut attempts = ten_attempts(&store, one).await;
    attempts.reverse();
    assert_eq!(store.deliveries.attempts(one, all(100)).await.unwrap(), attempts);
    assert!(store.deliveries.attempts(two, all(100)).await.unwrap().is_empty());
}

async fn attempts_are_narrowed_and_paged(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let outlet = make::stored_outlet(&store, &stream).await.id;
    ten_attempts(&store, outlet).await;
    let numbers = async |query: AttemptQuery| {
        let found = store.deliveries.attempts(outlet, query).await.unwrap();
        found.iter().map(|attempt| attempt.attempt - 1).collect::<Vec<_>>()
    };
    assert_eq!(numbers(all(3)).await, [9, 8, 7]);
    assert_eq!(numbers(AttemptQuery { before: Some(make::at(7)), ..all(3) }).await, [6, 5, 4]);
    assert_eq!(numbers(AttemptQuery { since: Some(make::at(7)), ..all(100) }).await, [9, 8, 7]);
    assert_eq!(numbers(AttemptQuery { document: Some(make::url("1")), ..all(100) }).await, [7, 4, 1]);
    assert_eq!(numbers(AttemptQuery { which: AttemptKind::Status(500), ..all(2) }).await, [7, 4]);
    assert_eq!(numbers(AttemptQuery { which: AttemptKind::Failed, ..all(3) }).await, [8, 7, 5]);
}

async fn old_attempts_are_forgotten(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let outlet = make::stored_outlet(&store, &stream).await.id;
    ten_attempts(&store, outlet).await;
    store.deliveries.forget_attempts(make::at(5)).await.unwrap();
    let left = store.deliveries.attempts(outlet, all(100)).await.unwrap();
    assert_eq!(left.iter().map(|attempt| attempt.attempt - 1).collect::<Vec<_>>(), [9, 8, 7, 6, 5]);
}

async fn old_dead_letters_are_forgotten(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let outlet = make::stored_outlet(&store, &stream).await.id;
    let letters = [1, 2, 3].map(|sequence| Progress::DeadLetter(letter(outlet, sequence, make::at(sequence as i64))));
    store.deliveries.record(letters.into()).await.unwrap();
    store.deliveries.forget_dead_letters(make::at(3)).await.unwrap();
    let (left, total) = store.deliveries.dead_letters(outlet, 0, 10).await.unwrap();
    assert_eq!((left.iter().map(|letter| letter.sequence.0).collect::<Vec<_>>(), total), (vec![3], 1));
}

async fn since_when_an_outlet_fails_reads_back_until_it_succeeds(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let (one, two) = (make::stored_outlet(&store, &stream).await.id, make::stored_outlet(&store, &stream).await.id);
    let note = |since| vec![Progress::Failing { outlet: one, since }];
    store.deliveries.record(note(Some(make::at(5)))).await.unwrap();
    assert_eq!(store.deliveries.standing(one).await.unwrap().failing_since, Some(make::at(5)));
    assert_eq!(store.deliveries.standing(two).await.unwrap().failing_since, None);
    let mut all = store.deliveries.standings(None, 10).await.unwrap();
    all.retain(|standing| standing.failing_since == Some(make::at(5)));
    assert_eq!(all.iter().map(|standing| standing.outlet).collect::<Vec<_>>(), [one]);
    store.deliveries.record(note(None)).await.unwrap();
    assert_eq!(store.deliveries.standing(one).await.unwrap().failing_since, None);
}

fn letter(outlet: OutletId, sequence: u64, at: Timestamp) -> DeadLetter {
    DeadLetter {
        outlet,
        number: DocumentNumber(3),
        url: make::url("3"),
        sequence: Sequence(sequence),
        revision: Revision::new(-7),
        attempts: 4,
        cause: if sequence.is_multiple_of(2) { DeathCause::Exhausted } else { DeathCause::Expired },
        detail: "the endpoint answered 500".into(),
        at,
    }
}

async fn dead_letters_read_back_until_they_are_discarded(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let (one, two) = (make::stored_outlet(&store, &stream).await.id, make::stored_outlet(&store, &stream).await.id);
    let letter = |outlet, sequence| letter(outlet, sequence, make::at(9));
    for sequence in [5, 4, 6] {
        store.deliveries.record(vec![Progress::DeadLetter(letter(one, sequence))]).await.unwrap();
    }
    let letters = async |outlet, offset, limit| store.deliveries.dead_letters(outlet, offset, limit).await.unwrap();
    assert_eq!(letters(one, 0, 10).await, (vec![letter(one, 4), letter(one, 5), letter(one, 6)], 3));
    assert_eq!(letters(one, 1, 1).await, (vec![letter(one, 5)], 3));
    assert_eq!(letters(two, 0, 10).await, (vec![], 0));
    store.deliveries.discard_dead_letters(one, vec![Sequence(4), Sequence(6), Sequence(99)]).await.unwrap();
    assert_eq!(letters(one, 0, 10).await, (vec![letter(one, 5)], 1));
}

async fn demand_is_part_of_the_standing(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let outlet = make::stored_outlet(&store, &stream).await.id;
    assert_eq!(store.deliveries.standing(outlet).await.unwrap().demand, 0);
    store.deliveries.record(vec![Progress::Demand { outlet, left: 7 }]).await.unwrap();
    store.engine.flush().await.unwrap();
    assert_eq!(store.deliveries.standing(outlet).await.unwrap().demand, 7);
    assert_eq!(store.deliveries.standings(None, 100).await.unwrap()[0].demand, 7);
    assert!(store.deliveries.standing(OutletId::generate()).await.is_err());
}

async fn what_an_outlet_lacks_is_found(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let other = make::stored_stream(&store, "http://api.test/orders/{id}").await;
    let outlet = make::stored_outlet(&store, &stream).await.id;
    let mut written = Vec::new();
    for name in 0..6 {
        written.push(make::write(&store, make::put(&stream, &name.to_string(), 1)).await.unwrap());
    }
    let elsewhere = flare_core::document::DocumentWrite { stream: other.id, ..make::put(&stream, "9", 1) };
    make::write(&store, elsewhere).await.unwrap();
    // The outlet has 0, an older revision of 1, and 2, of which it was told that it is gone.
    for (name, sequence) in [(0, 0), (1, 1), (2, 2)] {
        let version = Version { sequence: written[sequence].sequence, revision: Revision::new(1), deleted: name == 2 };
        let number = written[name].number;
        store.deliveries.record(vec![Progress::Version { outlet, number, version }]).await.unwrap();
    }
    let newer = make::write(&store, make::put(&stream, "1", 2)).await.unwrap();
    let lacking = async |span, limit| {
        let found = store.deliveries.missing(stream.id, outlet, span, limit).await.unwrap();
        found.iter().map(|behind| behind.sequence).collect::<Vec<_>>()
    };
    let whole = Span { after: Sequence::START, until: store.documents.head() };
    let sequence = |index: usize| written[index].sequence;
    assert_eq!(lacking(whole, 100).await, [sequence(3), sequence(4), sequence(5), newer.sequence]);
    assert_eq!(lacking(Span { after: sequence(3), until: sequence(5) }, 100).await, [sequence(4), sequence(5)]);
    assert_eq!(lacking(whole, 2).await.len(), 2);
}

async fn a_deleted_outlet_leaves_no_log(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let outlet = make::stored_outlet(&store, &stream).await.id;
    ten_attempts(&store, outlet).await;
    store.outlets.delete(outlet).await.unwrap();
    while !store.deliveries.attempts(outlet, all(100)).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(store.deliveries.standing(outlet).await.is_err());
}
