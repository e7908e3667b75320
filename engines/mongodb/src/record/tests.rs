//! What an owner that was replaced sends late, against a real server.

use flare_contract::make;
use flare_core::{ErrorKind, delivery::DeathCause, port::Store, revision::Revision};
use mongodb::bson::oid::ObjectId;

use super::*;
use crate::Options;

/// Every kind of step. Those of owner 2 say 20, those of owner 1 say 10.
fn steps(outlet: OutletId, says: u64) -> Vec<Progress> {
    let number = DocumentNumber(1);
    let version = Version { sequence: Sequence(says), revision: Revision::new(says.into()), deleted: false };
    let url = make::url("1");
    let retry = Retry { outlet, number, url: url.clone(), attempts: says as u32, due: make::at(0) };
    let letter = DeadLetter {
        outlet,
        number,
        url,
        sequence: Sequence(1),
        revision: Revision::new(1),
        attempts: says as u32,
        cause: DeathCause::Expired,
        detail: String::new(),
        at: make::at(0),
    };
    vec![
        Progress::Version { outlet, number, version },
        Progress::Cursor { outlet, cursor: Sequence(says) },
        Progress::Retry(retry),
        Progress::DeadLetter(letter),
        Progress::Demand { outlet, left: says },
    ]
}

async fn says(store: &Store, outlet: OutletId) -> Vec<u64> {
    let version = store.deliveries.version(outlet, DocumentNumber(1)).await.unwrap().unwrap();
    let standing = store.deliveries.standing(outlet).await.unwrap();
    let letters = store.deliveries.dead_letters(outlet, 0, 10).await.unwrap().0;
    let attempts = standing.retries.iter().map(|retry| retry.attempts).chain(letters.iter().map(|one| one.attempts));
    [version.sequence.0, standing.cursor.0, standing.demand].into_iter().chain(attempts.map(u64::from)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_was_replaced_changes_no_row_of_the_new_one() {
    let variable = "FLARE_TEST_MONGODB_URL";
    let Ok(url) = std::env::var(variable) else {
        assert!(std::env::var("CI").is_err(), "{variable} is not set");
        return println!("skipped: {variable} is not set; dev/servers starts the server and prints it");
    };
    let database = Some(format!("flare_test_{}", ObjectId::new().to_hex()));
    let options = Options { url: Some(url), database, ..Options::default() };
    let store = crate::open(&options).await.unwrap();
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let outlet = make::stored_outlet(&store, &stream).await.id;
    let connection = Connection::open(&options).await.unwrap();
    store.deliveries.seal(2).await.unwrap();
    store.deliveries.record(steps(outlet, 20)).await.unwrap();

    // Each step by itself, since the first that is refused ends the call.
    for step in steps(outlet, 10) {
        let late = record(&connection, 1, [step]).await;
        assert_eq!(late.unwrap_err().kind(), ErrorKind::Conflict);
    }
    // As if the owner had changed between the look at it and the last commands of a call.
    let mut folded = Folded::default();
    steps(outlet, 10).into_iter().for_each(|step| folded.add(step));
    folded.add(Progress::Settled { outlet, number: DocumentNumber(1) });
    for (table, statements) in [(Table::Cursors, folded.cursors(1)), (Table::Retries, folded.settled(1))] {
        assert_eq!(statements.len(), 1);
        update(&connection, table, &statements).await.map_err(Failure::into_error).unwrap();
    }
    assert_eq!(says(&store, outlet).await, [20; 5]);

    // What the new owner has settled, the old one does not bring back.
    store.deliveries.record(vec![Progress::Settled { outlet, number: DocumentNumber(1) }]).await.unwrap();
    let retry = steps(outlet, 10).remove(2);
    assert!(record(&connection, 1, [retry]).await.is_err());
    assert!(store.deliveries.standing(outlet).await.unwrap().retries.is_empty());
    store.engine.close().await.unwrap();
    connection.database().drop().await.unwrap();
}
