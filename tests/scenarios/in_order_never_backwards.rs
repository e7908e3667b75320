//! Promise 2: at least once, in order, never backwards; documents do not wait for each other.

use std::time::Duration;

use flare_tests::{Flare, Gate, Receiver, Reply, quick_retries};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{USERS, user};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revisions_of_a_document_arrive_in_order_when_many_write_at_once() {
    const WRITERS: i64 = 16;
    const REVISIONS: i64 = 40;
    const DOCUMENTS: usize = 5;
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a")).await;

    // All writers write the same documents, so that older revisions come after newer ones.
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let client = flare.client();
        writers.spawn(async move {
            for step in 0..REVISIONS {
                for document in 0..DOCUMENTS {
                    let revision = step * WRITERS + writer + 1;
                    client.put_document(&user(document), &json!({ "revision": revision })).await.expect(202);
                }
            }
        });
    }
    writers.join_all().await;
    for document in 0..DOCUMENTS {
        receiver.wait_revision("/a", &user(document), WRITERS * REVISIONS).await;
    }
    receiver.expect_never_backwards();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_and_retries_do_not_turn_the_order_around() {
    const DOCUMENTS: usize = 10;
    const REVISIONS: i64 = 30;
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    flare.subscribe_with(&resource, "a", &receiver.url("/a"), &quick_retries()).await;
    let replies = [
        Reply::Status(500),
        Reply::Status(200),
        Reply::Reset,
        Reply::After(Duration::from_millis(30), 200),
        Reply::After(Duration::from_millis(30), 503),
    ];
    receiver.reply_in_turn("/a", replies.into_iter().cycle().take(DOCUMENTS * 20));

    for revision in 1..=REVISIONS {
        for document in 0..DOCUMENTS {
            flare.put(&user(document), revision).await;
        }
    }
    for document in 0..DOCUMENTS {
        receiver.wait_revision("/a", &user(document), REVISIONS).await;
    }
    receiver.expect_never_backwards();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_do_not_turn_the_order_around() {
    const DOCUMENTS: usize = 20;
    let receiver = Receiver::start().await;
    let mut flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    flare.subscribe_with(&resource, "a", &receiver.url("/a"), &quick_retries()).await;
    for round in 1..=6 {
        receiver.reply_in_turn("/a", (0..10).map(|_| Reply::Status(500)));
        for document in 0..DOCUMENTS {
            flare.put(&user(document), round).await;
        }
        if round % 2 == 0 {
            flare.kill().await;
        } else {
            assert!(flare.stop().await.success());
        }
        flare.start_again().await;
    }
    for document in 0..DOCUMENTS {
        receiver.wait_revision("/a", &user(document), 6).await;
    }
    receiver.expect_never_backwards();
}

#[tokio::test]
async fn a_document_that_fails_does_not_hold_the_others() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    flare.subscribe_with(&resource, "a", &receiver.url("/a/{id}"), &quick_retries()).await;
    receiver.reply("/a/0", Reply::Status(500));
    for revision in 1..=5 {
        for document in 0..20 {
            flare.put(&user(document), revision).await;
        }
    }
    for document in 1..20 {
        receiver.wait_revision(&format!("/a/{document}"), &user(document), 5).await;
    }
    receiver.reply("/a/0", Reply::Status(200));
    receiver.wait_revision("/a/0", &user(0), 5).await;
    receiver.expect_never_backwards();
}

#[tokio::test]
async fn many_documents_that_fail_do_not_hold_the_others() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    flare.subscribe_with(&resource, "a", &receiver.url("/a/{id}"), &quick_retries()).await;
    for document in 0..40 {
        receiver.reply(&format!("/a/{document}"), Reply::Status(500));
    }
    for document in 0..80 {
        flare.put(&user(document), 1).await;
    }
    for document in 40..80 {
        receiver.wait_revision(&format!("/a/{document}"), &user(document), 1).await;
    }
}

#[tokio::test]
async fn a_document_that_hangs_does_not_hold_the_others() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a/{id}")).await;
    let gate = Gate::closed();
    receiver.reply("/a/0", Reply::Behind(gate.clone(), 200));
    for document in 0..50 {
        flare.put(&user(document), 1).await;
    }
    for document in 1..50 {
        receiver.wait_revision(&format!("/a/{document}"), &user(document), 1).await;
    }
    gate.open();
}

#[tokio::test]
async fn the_action_is_from_the_view_of_the_client() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "early", &receiver.url("/early")).await;
    let url = user(1);
    flare.put(&url, 1).await;
    receiver.wait_revision("/early", &url, 1).await;
    // This one never hears of revision 1.
    flare.subscribe(&resource, "late", &receiver.url("/late")).await;
    flare.put(&url, 2).await;
    receiver.wait("revision 2 at both", |records| records.count("/early") + records.count("/late") == 3).await;
    flare.client().delete_document(&url).await.expect(202);
    receiver.wait("the deletion at both", |records| records.count("/early") + records.count("/late") == 5).await;
    flare.put(&url, 9).await;
    receiver.wait_revision("/early", &url, 9).await;
    receiver.wait_revision("/late", &url, 9).await;

    let actions =
        |path| -> Vec<String> { receiver.records().story(path, &url).into_iter().map(|(action, _)| action).collect() };
    assert_eq!(actions("/early"), ["create", "update", "delete", "create"]);
    assert_eq!(actions("/late"), ["create", "delete", "create"]);
}

#[tokio::test]
async fn a_late_write_of_an_older_revision_does_not_bring_a_deleted_document_back() {
    let receiver = Receiver::start().await;
    let mut flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    let url = user(1);
    flare.put(&url, 5).await;
    flare.client().delete_document(&url).await.expect(202);
    receiver.wait("the deletion", |records| records.at("/a").any(|one| one.envelope().action == "delete")).await;

    flare.put(&url, 4).await;
    flare.put(&url, 5).await;
    flare.client().get_document(&url).await.expect(404);
    // Neither does it after a restart.
    assert!(flare.stop().await.success());
    flare.start_again().await;
    flare.put(&url, 5).await;
    flare.client().get_document(&url).await.expect(404);

    flare.put(&url, 6).await;
    receiver.wait_revision("/a", &url, 6).await;
    let actions: Vec<_> = receiver.records().story("/a", &url).into_iter().map(|(action, _)| action).collect();
    let without_repeats = actions.iter().filter(|action| *action != "delete").count();
    assert_eq!(without_repeats, actions.len() - 1, "one deletion is announced: {actions:?}");
    assert_eq!(actions.last().map(String::as_str), Some("create"), "{actions:?}");
}

#[tokio::test]
async fn updates_that_come_while_the_client_hangs_arrive_as_one() {
    const UPDATES: i64 = 50;
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    let (gate, url) = (Gate::closed(), user(1));
    receiver.reply("/a", Reply::Behind(gate.clone(), 200));
    flare.put(&url, 1).await;
    receiver.wait_revision("/a", &url, 1).await;
    for revision in 2..=UPDATES {
        flare.put(&url, revision).await;
    }
    gate.open();
    receiver.wait_revision("/a", &url, UPDATES).await;
    assert_eq!(receiver.records().revisions("/a", &url), [1, UPDATES]);
}
