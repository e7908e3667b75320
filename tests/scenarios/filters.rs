//! Filters: a subscription is told of the changes that match, and only of those.

use flare_tests::{Flare, Receiver, Reply, Subscription, quick_retries};
use serde_json::{Value as Json, json};

use crate::{USERS, user};

async fn put(flare: &Flare, number: usize, document: &Json) {
    flare.client().put_document(&user(number), document).await.expect(202);
}

async fn subscribe(flare: &Flare, resource: &str, receiver: &Receiver, path: &str, filter: &str) -> Subscription {
    flare.subscribe_with(resource, path, &receiver.url(path), &json!({ "filter": filter })).await
}

/// Publishes a document that every filter here matches, and waits for it: what was to come before it has come.
async fn settle(flare: &Flare, receiver: &Receiver, path: &str, number: usize) {
    put(flare, number, &json!({ "revision": 1, "quantity": 1000, "kind": "book", "tags": ["new"] })).await;
    receiver.wait_revision(path, &user(number), 1).await;
}

fn story(receiver: &Receiver, path: &str, number: usize) -> Vec<(String, i64)> {
    receiver.records().story(path, &user(number))
}

fn told(steps: &[(&str, i64)]) -> Vec<(String, i64)> {
    steps.iter().map(|(action, revision)| ((*action).to_owned(), *revision)).collect()
}

#[tokio::test]
async fn only_what_matches_is_sent_and_the_action_is_from_the_view_of_the_client() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    subscribe(&flare, &resource, &receiver, "/many", "current.quantity > 5").await;
    subscribe(&flare, &resource, &receiver, "/tagged", "'new' in current.tags && id.startsWith('http://api.test/')")
        .await;
    for (revision, quantity) in [(1, 1), (2, 7), (3, 2), (4, 9)] {
        put(&flare, 1, &json!({ "revision": revision, "quantity": quantity, "tags": [] })).await;
        settle(&flare, &receiver, "/many", 100 + revision).await;
    }
    // Revision 2 is the first that it gets; 3 is left out, and 4 is an update all the same.
    assert_eq!(story(&receiver, "/many", 1), told(&[("create", 2), ("update", 4)]));
    settle(&flare, &receiver, "/tagged", 200).await;
    assert_eq!(story(&receiver, "/tagged", 1), told(&[]));
}

#[tokio::test]
async fn a_filter_compares_with_the_document_before_the_change() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let filter = "previous == null ? action == 'create' : current.quantity != previous.quantity && state == previous";
    subscribe(&flare, &resource, &receiver, "/a", filter).await;
    for (revision, quantity) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)] {
        put(&flare, 1, &json!({ "revision": revision, "quantity": quantity })).await;
        settle(&flare, &receiver, "/a", 100 + revision).await;
    }
    assert_eq!(receiver.records().revisions("/a", &user(1)), [1, 3, 5]);
}

#[tokio::test]
async fn a_delete_is_told_to_those_who_have_the_document_or_ask_for_it() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    subscribe(&flare, &resource, &receiver, "/books", "current.kind == 'book'").await;
    let asks = "action == 'delete' && previous.kind == 'film' || action != 'delete' && current.quantity > 5";
    subscribe(&flare, &resource, &receiver, "/asks", asks).await;
    put(&flare, 1, &json!({ "revision": 1, "quantity": 1, "kind": "book" })).await;
    put(&flare, 2, &json!({ "revision": 1, "quantity": 1, "kind": "film" })).await;
    settle(&flare, &receiver, "/books", 100).await;
    // It does not match any more, but the client still has it.
    put(&flare, 1, &json!({ "revision": 2, "quantity": 1, "kind": "other" })).await;
    for number in [1, 2] {
        flare.client().delete_document(&user(number)).await.expect(202);
    }
    receiver.wait("the deletion of the book", |records| records.story("/books", &user(1)).len() == 2).await;
    receiver.wait("the deletion of the film", |records| records.story("/asks", &user(2)).len() == 1).await;
    settle(&flare, &receiver, "/books", 101).await;
    settle(&flare, &receiver, "/asks", 102).await;
    assert_eq!(story(&receiver, "/books", 1), told(&[("create", 1), ("delete", 2)]));
    assert_eq!(story(&receiver, "/books", 2), told(&[]));
    assert_eq!(story(&receiver, "/asks", 1), told(&[]));
    assert_eq!(story(&receiver, "/asks", 2), told(&[("delete", 1)]));
}

#[tokio::test]
async fn a_delete_is_told_to_a_client_that_may_have_the_document() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let mut members = quick_retries();
    members["filter"] = json!("current.quantity > 5");
    flare.subscribe_with(&resource, "a", &receiver.url("/a/{id}"), &members).await;
    // The client says that it failed, but who knows what it kept.
    receiver.reply("/a/1", Reply::Status(500));
    put(&flare, 1, &json!({ "revision": 1, "quantity": 9 })).await;
    receiver.wait("an attempt", |records| records.count("/a/1") > 0).await;
    flare.client().delete_document(&user(1)).await.expect(202);
    receiver
        .wait("the deletion", |records| {
            records.story("/a/1", &user(1)).last().is_some_and(|(action, _)| action == "delete")
        })
        .await;
}

#[tokio::test]
async fn a_filter_that_does_not_fit_a_document_shows_in_the_subscription() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let subscription = subscribe(&flare, &resource, &receiver, "/a", "current.quantity > 5").await;
    let shown = async || flare.client().get(&subscription.path).await.expect(200).json();
    assert_eq!(shown().await["filter"], "current.quantity > 5");
    assert!(shown().await.get("filterProblem").is_none());
    put(&flare, 1, &json!({ "revision": 1, "quantity": "many" })).await;
    put(&flare, 2, &json!({ "revision": 1 })).await;
    settle(&flare, &receiver, "/a", 100).await;
    let problem = shown().await["filterProblem"].clone();
    assert_eq!(problem["document"], user(2));
    assert_eq!(problem["reason"], "there is no member \"quantity\"");
    assert!(problem["at"].as_str().unwrap().ends_with('Z'), "{problem}");
    assert_eq!(receiver.records().documents("/a"), 1);
    let list = flare.client().get(&format!("/resources/{resource}/subscriptions")).await.expect(200).json();
    assert_eq!(list["subscriptions"][0]["filterProblem"], problem);
}

#[tokio::test]
async fn a_put_changes_the_filter_of_a_running_subscription() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let subscription = subscribe(&flare, &resource, &receiver, "/a", "current.missing == 1").await;
    put(&flare, 1, &json!({ "revision": 1, "quantity": 1 })).await;
    let replace = async |filter: Json| {
        let body = json!({ "name": "a", "endpoint": { "url": receiver.url("/a") }, "filter": filter });
        flare.client().put(&subscription.path, &body).await
    };
    let updated = replace(json!("current.quantity > 5")).await.expect(200).json();
    assert_eq!(updated["filter"], "current.quantity > 5");
    put(&flare, 1, &json!({ "revision": 2, "quantity": 2 })).await;
    put(&flare, 2, &json!({ "revision": 1, "quantity": 7 })).await;
    receiver.wait_revision("/a", &user(2), 1).await;
    assert_eq!(story(&receiver, "/a", 1), told(&[]));
    let refused = replace(json!("current.quantity >")).await.expect_error(422, "subscription.invalid").text();
    assert!(refused.contains("filter: 1:19: "), "{refused}");
    assert!(replace(Json::Null).await.expect(200).json().get("filter").is_none());
    put(&flare, 1, &json!({ "revision": 3, "quantity": 3 })).await;
    receiver.wait_revision("/a", &user(1), 3).await;
    assert_eq!(story(&receiver, "/a", 1), told(&[("create", 3)]));
}

#[tokio::test]
async fn a_filter_survives_a_restart_and_still_knows_what_was_before() {
    let receiver = Receiver::start().await;
    let mut flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    let filter = "previous == null || current.quantity != previous.quantity";
    let subscription = subscribe(&flare, &resource, &receiver, "/a", filter).await;
    put(&flare, 1, &json!({ "revision": 1, "quantity": 1 })).await;
    put(&flare, 2, &json!({ "revision": 1, "quantity": 1 })).await;
    receiver.wait("both", |records| records.documents("/a") == 2).await;
    flare.kill().await;
    flare.start_again().await;
    let shown = flare.client().get(&subscription.path).await.expect(200).json();
    assert_eq!(shown["filter"], filter);
    put(&flare, 1, &json!({ "revision": 2, "quantity": 1 })).await;
    put(&flare, 2, &json!({ "revision": 2, "quantity": 2 })).await;
    receiver.wait_revision("/a", &user(2), 2).await;
    settle(&flare, &receiver, "/a", 100).await;
    assert!(!receiver.records().revisions("/a", &user(1)).contains(&2));
    assert_eq!(story(&receiver, "/a", 2).last(), Some(&("update".to_owned(), 2)));
}

#[tokio::test]
async fn very_many_filtered_subscriptions_get_what_each_asks_for() {
    const SUBSCRIPTIONS: usize = 300;
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    for number in 0..SUBSCRIPTIONS {
        let filter = format!("current.quantity == {}", number % 10);
        subscribe(&flare, &resource, &receiver, &format!("/s/{number}"), &filter).await;
    }
    for quantity in 0..10 {
        put(&flare, quantity, &json!({ "revision": 1, "quantity": quantity })).await;
    }
    receiver
        .wait("one document for each", |records| {
            (0..SUBSCRIPTIONS).all(|number| records.newest(&format!("/s/{number}"), &user(number % 10)) == Some(1))
        })
        .await;
    let records = receiver.records();
    assert!((0..SUBSCRIPTIONS).all(|number| records.count(&format!("/s/{number}")) == 1));
}
