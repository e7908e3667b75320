//! The life of a subscription: paused, resumed, disabled, and what is known of it.

use std::time::Duration;

use flare_tests::{Flare, Receiver, Reply, Subscription, quick_retries, within};
use serde_json::{Value, json};

use crate::{USERS, user};

async fn post(flare: &Flare, subscription: &Subscription, what: &str) -> Value {
    flare.client().post(&format!("{}/{what}", subscription.path), &json!({})).await.expect(200).json()
}

async fn get(flare: &Flare, subscription: &Subscription, what: &str) -> Value {
    flare.client().get(&format!("{}{what}", subscription.path)).await.expect(200).json()
}

async fn becomes(flare: &Flare, subscription: &Subscription, status: &str) -> Value {
    within(status, async {
        loop {
            let shown = get(flare, subscription, "").await;
            if shown["status"] == status {
                break shown;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_paused_subscription_gets_nothing_and_loses_nothing_over_a_restart() {
    const DOCUMENTS: usize = 20;
    let receiver = Receiver::start().await;
    let mut flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    let paused = flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    flare.subscribe(&resource, "b", &receiver.url("/b")).await;
    let shown = post(&flare, &paused, "pause").await;
    assert_eq!(shown["status"], "paused");
    assert!(shown["statusSince"].is_string());
    for number in 0..DOCUMENTS {
        flare.put(&user(number), 1).await;
    }
    receiver.wait("the other one has all", |records| records.documents("/b") == DOCUMENTS).await;
    assert_eq!(receiver.records().count("/a"), 0);
    assert_eq!(get(&flare, &paused, "/lag").await["documents"], DOCUMENTS);
    let behind = get(&flare, &paused, "/lag/documents?limit=3").await;
    assert_eq!(behind["documents"][0]["document"], user(0));
    assert_eq!(behind["documents"].as_array().unwrap().len(), 3);

    flare.kill().await;
    flare.start_again().await;
    flare.put(&user(0), 2).await;
    receiver.wait_revision("/b", &user(0), 2).await;
    assert_eq!(receiver.records().count("/a"), 0);
    assert_eq!(post(&flare, &paused, "resume").await["status"], "active");
    receiver.wait("all documents", |records| records.documents("/a") == DOCUMENTS).await;
    receiver.wait_revision("/a", &user(0), 2).await;
    receiver.expect_never_backwards();
}

#[tokio::test]
async fn an_endpoint_that_is_gone_is_disabled_and_goes_on_where_it_stopped() {
    let receiver = Receiver::start().await;
    let flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    let subscription = flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    receiver.reply("/a", Reply::Status(410));
    flare.put(&user(1), 1).await;
    let shown = becomes(&flare, &subscription, "disabled").await;
    assert!(shown["statusReason"].as_str().unwrap().contains("410"), "{shown}");
    flare.put(&user(2), 1).await;
    receiver.reply("/a", Reply::Status(200));
    post(&flare, &subscription, "resume").await;
    for number in [1, 2] {
        receiver.wait("it goes on", |records| records.newest("/a", &user(number)) == Some(1)).await;
    }
    flare.put(&user(1), 2).await;
    receiver.wait_revision("/a", &user(1), 2).await;
}

#[tokio::test]
async fn an_endpoint_that_only_fails_is_disabled_after_a_while() {
    let receiver = Receiver::start().await;
    let flare = Flare::configured("[delivery]\ndisable-after = \"1s\"\n").await;
    let resource = flare.resource(USERS).await;
    let subscription = flare.subscribe_with(&resource, "a", &receiver.url("/a"), &quick_retries()).await;
    let healthy = flare.subscribe(&resource, "b", &receiver.url("/b")).await;
    receiver.reply("/a", Reply::Status(500));
    flare.put(&user(1), 1).await;
    let shown = becomes(&flare, &subscription, "disabled").await;
    assert!(shown["statusReason"].as_str().unwrap().contains("500"), "{shown}");
    assert_eq!(get(&flare, &healthy, "").await["status"], "active");
}

#[tokio::test]
async fn attempts_tell_what_was_sent_and_what_came_of_it() {
    let receiver = Receiver::start().await;
    let flare = Flare::configured("[delivery]\nkeep-bodies = true\n").await;
    let resource = flare.resource(USERS).await;
    let subscription = flare.subscribe_with(&resource, "a", &receiver.url("/a"), &quick_retries()).await;
    receiver.reply_in_turn("/a", [Reply::Status(500), Reply::Status(503)]);
    flare.put(&user(1), 1).await;
    receiver.wait("three attempts", |records| records.count("/a") == 3).await;
    flare.put(&user(2), 1).await;
    receiver.wait("another document", |records| records.documents("/a") == 2).await;
    let attempts = within("four attempts", async {
        loop {
            let list = get(&flare, &subscription, "/attempts").await;
            if list["attempts"].as_array().unwrap().len() == 4 {
                break list["attempts"].clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let statuses: Vec<_> = attempts.as_array().unwrap().iter().map(|attempt| attempt["status"].clone()).collect();
    assert_eq!(statuses, [200, 200, 503, 500]);
    assert_eq!((&attempts[1]["attempt"], &attempts[1]["document"]), (&json!(3), &json!(user(1))));
    assert!(attempts[1]["requestBody"].as_str().unwrap().contains("\"revision\":1"));
    let failed = get(&flare, &subscription, "/attempts?status=failed&limit=1").await;
    assert_eq!(failed["attempts"][0]["status"], 503);
    let next = failed["next"].as_str().unwrap();
    let older = get(&flare, &subscription, &format!("/attempts?status=failed&before={next}")).await;
    assert_eq!(older["attempts"][0]["status"], 500);
    let of_two = get(&flare, &subscription, &format!("/attempts?document={}", user(2))).await;
    assert_eq!(of_two["attempts"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_all_retries_could_not_deliver_is_a_dead_letter_that_can_be_discarded() {
    let receiver = Receiver::start().await;
    let flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    let few = json!({ "delivery": { "retry": { "numRetries": 2, "numNoDelayRetries": 2, "numMinDelayRetries": 0,
        "numMaxDelayRetries": 0 } } });
    let subscription = flare.subscribe_with(&resource, "a", &receiver.url("/a"), &few).await;
    receiver.reply("/a", Reply::Status(500));
    for number in 0..3 {
        flare.put(&user(number), 1).await;
    }
    let letters = within("three dead letters", async {
        loop {
            let list = get(&flare, &subscription, "/dead-letters").await;
            if list["pagination"]["total"] == 3 {
                break list["deadLetters"].clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!((&letters[0]["reason"], &letters[0]["attempts"]), (&json!("exhausted"), &json!(3)));
    assert!(letters[0]["detail"].as_str().unwrap().contains("500"));
    let path = format!("{}/dead-letters/discard", subscription.path);
    let one = json!({ "ids": [letters[0]["id"]] });
    assert_eq!(flare.client().post(&path, &one).await.expect(200).json()["deadLetters"], 1);
    assert_eq!(flare.client().post(&path, &json!({})).await.expect(200).json()["deadLetters"], 2);
    // A newer revision is a new message.
    receiver.reply("/a", Reply::Status(200));
    flare.put(&user(0), 2).await;
    receiver.wait_revision("/a", &user(0), 2).await;
}

#[tokio::test]
async fn a_snapshot_has_what_was_there_and_what_came_meanwhile_once() {
    const DOCUMENTS: usize = 300;
    let receiver = Receiver::start().await;
    let flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    for number in 0..DOCUMENTS {
        flare.put(&user(number), 1).await;
    }
    flare.client().delete_document(&user(0)).await.expect(202);
    let snapshot = json!({ "snapshot": true });
    flare.subscribe_with(&resource, "a", &receiver.url("/a"), &snapshot).await;
    flare.subscribe(&resource, "b", &receiver.url("/b")).await;
    for number in (0..DOCUMENTS).step_by(7) {
        flare.put(&user(number), 2).await;
    }
    let newest = |number: usize| if number.is_multiple_of(7) { 2 } else { 1 };
    receiver
        .wait("every document in its newest revision", |records| {
            (0..DOCUMENTS).all(|number| records.newest("/a", &user(number)) == Some(newest(number)))
        })
        .await;
    let doubled: Vec<_> = (0..DOCUMENTS)
        .filter(|number| {
            let records = receiver.records();
            let mut seen = records.revisions("/a", &user(*number)).to_vec();
            let all = seen.len();
            seen.dedup();
            seen.len() < all
        })
        .collect();
    assert!(doubled.is_empty(), "{doubled:?} came twice");
    receiver.expect_never_backwards();
    receiver.wait("the other", |records| records.documents("/b") == DOCUMENTS.div_ceil(7)).await;
}
