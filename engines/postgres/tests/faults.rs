//! Connections that break at the worst moment: nothing acknowledged is lost, nothing is done twice, and nobody is told
//! that nothing was written of what is.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use std::time::{Duration, Instant};

use flare_contract::{make, proxy::Cut, wait::until};
use flare_core::{ErrorKind, Sequence, document::Progress};
use server::lab::{Lab, is_change, survive};

const COMMIT: &[u8] = b"COMMIT\0";

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_counts_once() {
    let Some(lab) = Lab::open("lost").await else { return };
    make::write(&lab.store, make::put(&lab.stream, "1", 1)).await.unwrap();
    for (round, cut) in [Cut::After, Cut::Before, Cut::After].into_iter().enumerate() {
        let revision = round as i128 + 2;
        lab.proxy.cut_at(COMMIT, cut);
        let written = lab.store.documents.write(vec![make::put(&lab.stream, "1", revision)]).await.unwrap();
        assert!(lab.proxy.has_cut());
        assert!(is_change(&written), "{cut:?}: {written:?}");
        assert!(make::write(&lab.store, make::put(&lab.stream, "1", revision)).await.is_none());
    }
    let revisions: Vec<_> = lab.history().await.iter().map(|change| change.revision.value()).collect();
    assert_eq!(revisions, [1, 2, 3, 4]);
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entity_whose_commit_is_lost_is_made_once() {
    let Some(lab) = Lab::open("entity").await else { return };
    for cut in [Cut::After, Cut::Before] {
        lab.proxy.cut_at(COMMIT, cut);
        let stream = make::stream("http://api.test/orders/{id}");
        lab.store.streams.insert(&stream, None, None).await.unwrap();
        assert!(lab.proxy.has_cut());
        let error = lab.store.streams.insert(&stream, None, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
    }
    assert_eq!(lab.straight.streams.page(None, 10).await.unwrap().len(), 3);
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_outcome_is_unknown_others_are_refused_and_the_writer_waits() {
    let Some(lab) = Lab::open_with("doubt", Duration::from_secs(1)).await else { return };
    make::write(&lab.store, make::put(&lab.stream, "1", 1)).await.unwrap();
    lab.proxy.vanish_at(COMMIT, Cut::After);
    let (documents, write) = (lab.store.documents.clone(), make::put(&lab.stream, "1", 2));
    let in_doubt = tokio::spawn(async move { documents.write(vec![write]).await });
    until("the connection is cut", || lab.proxy.has_cut()).await;
    until("it is known that the server is away", || lab.store.engine.trouble().is_some()).await;
    for name in ["2", "3"] {
        let begun = Instant::now();
        let error = lab.store.documents.write(vec![make::put(&lab.stream, name, 1)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
    assert!(!in_doubt.is_finished(), "nobody can know the outcome yet");
    lab.proxy.refuse(false);
    assert!(is_change(&in_doubt.await.unwrap().unwrap()));
    // What was refused was not written, neither then nor later.
    let names: Vec<_> = lab.history().await.iter().map(|change| change.url.as_str().to_owned()).collect();
    assert!(names.iter().all(|name| name.ends_with("/1")), "{names:?}");
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_names_the_server_and_ends_by_itself() {
    let Some(lab) = Lab::open_with("trouble", Duration::from_secs(1)).await else { return };
    assert_eq!(lab.store.engine.trouble(), None);
    lab.proxy.refuse(true);
    until("trouble is noticed although nobody writes", || lab.store.engine.trouble().is_some()).await;
    let trouble = lab.store.engine.trouble().unwrap();
    assert!(trouble.contains(&lab.proxy.address().to_string()) && !trouble.contains('@'), "{trouble}");
    let begun = Instant::now();
    let error = lab.store.documents.write(vec![make::put(&lab.stream, "1", 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = lab.store.documents.get(lab.stream.id, &make::url("1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(4));
    lab.proxy.refuse(false);
    until("trouble ends although nobody writes", || lab.store.engine.trouble().is_none()).await;
    make::write(&lab.store, make::put(&lab.stream, "1", 1)).await.unwrap();
    lab.close().await;
}

/// What was sent on a connection that was given up, and comes through when newer progress is recorded, counts no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_comes_late_changes_nothing() {
    let Some(lab) = Lab::open_with("late", Duration::from_millis(500)).await else { return };
    let outlet = make::stored_outlet(&lab.straight, &lab.stream).await.id;
    let record = |cursor| lab.store.deliveries.record(vec![Progress::Cursor { outlet, cursor: Sequence(cursor) }]);
    record(1).await.unwrap();
    lab.proxy.hold();
    assert_eq!(record(2).await.unwrap_err().kind(), ErrorKind::Unavailable);
    record(9).await.unwrap();
    lab.proxy.release();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(lab.straight.deliveries.standing(outlet).await.unwrap().cursor, Sequence(9));
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_owner_is_told_so() {
    let Some(lab) = Lab::open("owner").await else { return };
    let outlet = make::stored_outlet(&lab.straight, &lab.stream).await.id;
    let step = |cursor| vec![Progress::Cursor { outlet, cursor: Sequence(cursor) }];
    lab.store.deliveries.seal(1).await.unwrap();
    lab.store.deliveries.record(step(1)).await.unwrap();
    lab.straight.deliveries.seal(2).await.unwrap();
    lab.straight.deliveries.record(step(7)).await.unwrap();
    let error = lab.store.deliveries.record(step(2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(lab.straight.deliveries.standing(outlet).await.unwrap().cursor, Sequence(7));
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_cut_under_load_lose_and_double_nothing() {
    let Some(lab) = Lab::open("cuts").await else { return };
    survive(&lab, async {
        for round in 0..60 {
            tokio::time::sleep(Duration::from_millis(20 + round * 13 % 70)).await;
            match round % 4 {
                0 => lab.proxy.cut_at(COMMIT, Cut::After),
                1 => lab.proxy.cut_at(COMMIT, Cut::Before),
                _ => lab.proxy.cut(),
            }
        }
    })
    .await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_and_goes_loses_and_doubles_nothing() {
    let Some(lab) = Lab::open_with("outages", Duration::from_secs(1)).await else { return };
    survive(&lab, async {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            lab.proxy.vanish_at(COMMIT, Cut::After);
            tokio::time::sleep(Duration::from_millis(500)).await;
            lab.proxy.calm();
            tokio::time::sleep(Duration::from_millis(300)).await;
            lab.proxy.hold();
            tokio::time::sleep(Duration::from_millis(300)).await;
            lab.proxy.cut();
            lab.proxy.calm();
        }
    })
    .await;
    lab.close().await;
}
