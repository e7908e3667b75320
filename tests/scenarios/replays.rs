//! Every revision, and what was told before, again.

use std::time::Duration;

use flare_tests::{Flare, Receiver, Reply, Subscription, quick_retries, within};
use serde_json::{Value, json};

use crate::{USERS, user};

async fn replay(flare: &Flare, subscription: &Subscription, body: Value) -> Value {
    flare.client().post(&format!("{}/replay", subscription.path), &body).await.expect(202).json()
}

async fn until_done(flare: &Flare, subscription: &Subscription) {
    within("the replay ends", async {
        while flare.client().get(&format!("{}/replay", subscription.path)).await.status != 204 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn every_revision_is_sent_in_order_over_failures_and_a_kill() {
    const REVISIONS: i64 = 30;
    let receiver = Receiver::start().await;
    let mut flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    let mut all = quick_retries();
    all["revision"] = json!("all");
    flare.subscribe_with(&resource, "a", &receiver.url("/a"), &all).await;
    receiver.reply("/a", Reply::Status(500));
    for revision in 1..=REVISIONS / 2 {
        for number in 0..3 {
            flare.put(&user(number), revision).await;
        }
    }
    receiver.wait("some attempts", |records| records.count("/a") > 3).await;
    flare.kill().await;
    flare.start_again().await;
    let failed = receiver.records().revisions("/a", &user(0)).len();
    receiver.reply("/a", Reply::Status(200));
    for revision in REVISIONS / 2 + 1..=REVISIONS {
        for number in 0..3 {
            flare.put(&user(number), revision).await;
        }
    }
    for number in 0..3 {
        receiver.wait_revision("/a", &user(number), REVISIONS).await;
    }
    let mut delivered = receiver.records().revisions("/a", &user(0))[failed..].to_vec();
    delivered.dedup();
    assert_eq!(delivered.last(), Some(&REVISIONS));
    let first = delivered[0];
    assert_eq!(delivered, (first..=REVISIONS).collect::<Vec<_>>(), "a revision is missing");
    assert!(first <= 2, "the revisions before {first} were skipped");
    receiver.expect_never_backwards();
}

#[tokio::test]
async fn a_replay_tells_again_what_was_told_and_nothing_older() {
    const DOCUMENTS: usize = 50;
    let receiver = Receiver::start().await;
    let mut flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    let subscription = flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    for revision in [1, 2] {
        for number in 0..DOCUMENTS {
            flare.put(&user(number), revision).await;
        }
    }
    for number in 0..DOCUMENTS {
        receiver.wait_revision("/a", &user(number), 2).await;
    }
    let count = |number: usize| receiver.records().revisions("/a", &user(number)).len();
    let before: Vec<_> = (0..DOCUMENTS).map(count).collect();
    let begun = replay(&flare, &subscription, json!({ "from": "all" })).await;
    assert!(begun["until"].as_u64().unwrap() >= 100, "{begun}");
    until_done(&flare, &subscription).await;
    receiver
        .wait("each document again", |records| {
            (0..DOCUMENTS).all(|number| records.revisions("/a", &user(number)).len() == before[number] + 1)
        })
        .await;
    let story = receiver.records().story("/a", &user(7));
    assert_eq!(story.last(), Some(&("update".to_owned(), 2)), "{story:?}");

    // Only a part of it, and over a kill. Looking at the lag has what was told so far recorded.
    within("nothing is behind", async {
        while flare.client().get(&format!("{}/lag", subscription.path)).await.expect(200).json()["documents"] != 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    replay(&flare, &subscription, json!({ "from": { "revision": 2 }, "prefix": user(4) })).await;
    flare.kill().await;
    flare.start_again().await;
    until_done(&flare, &subscription).await;
    let part: Vec<_> = (0..DOCUMENTS).filter(|number| user(*number).starts_with(&user(4))).collect();
    receiver
        .wait("the part again", |records| {
            part.iter().all(|number| records.revisions("/a", &user(*number)).len() >= before[*number] + 2)
        })
        .await;
    assert_eq!(count(5), before[5] + 1);
    receiver.expect_never_backwards();
    for wrong in [json!({ "from": "never" }), json!({ "from": { "revision": "x" } }), json!({ "from": { "time": 7 } })]
    {
        let path = format!("{}/replay", subscription.path);
        flare.client().post(&path, &wrong).await.expect_error(422, "subscription.invalid");
    }
}

#[tokio::test]
async fn a_replay_can_be_cancelled_and_is_not_started_twice() {
    let receiver = Receiver::start().await;
    let flare = Flare::configured("[delivery]\nretries-max = 4\n").await;
    let resource = flare.resource(USERS).await;
    let slow = json!({ "delivery": { "rate": { "maxReceivesPerSecond": 20 } } });
    let subscription = flare.subscribe_with(&resource, "a", &receiver.url("/a"), &slow).await;
    for number in 0..20 {
        flare.put(&user(number), 1).await;
    }
    receiver.wait("all documents", |records| records.documents("/a") == 20).await;
    flare.client().post(&format!("{}/pause", subscription.path), &json!({})).await.expect(200);
    // The first page fills the retries of a subscription that is paused, so the replay waits.
    for _ in 0..3 {
        for number in 20..40 {
            flare.put(&user(number), 1).await;
        }
    }
    replay(&flare, &subscription, json!({ "from": "all" })).await;
    let path = format!("{}/replay", subscription.path);
    let again = flare.client().post(&path, &json!({ "from": "all" })).await;
    assert!(again.status == 409 || again.status == 202, "{}", again.text());
    flare.client().delete(&path).await.expect(204);
    assert_eq!(flare.client().get(&path).await.status, 204);
    flare.client().post(&format!("{}/resume", subscription.path), &json!({})).await.expect(200);
    receiver.wait("the rest", |records| records.documents("/a") == 40).await;
}

#[tokio::test]
async fn a_test_says_what_the_endpoint_said_and_leaves_no_trace() {
    let receiver = Receiver::start().await;
    let flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    let subscription = flare.subscribe(&resource, "a", &receiver.url("/a/{id}")).await;
    let path = format!("{}/test", subscription.path);
    let tested = flare.client().post(&path, &json!({})).await.expect(200).json();
    assert_eq!((&tested["delivered"], &tested["status"]), (&json!(true), &json!(200)));
    assert!(tested["url"].as_str().unwrap().ends_with("/a/test"), "{tested}");
    receiver.reply("/a/test", Reply::Status(404));
    let tested = flare.client().post(&path, &json!({})).await.expect(200).json();
    assert_eq!((&tested["delivered"], &tested["status"]), (&json!(false), &json!(404)));
    let down = flare.subscribe(&resource, "b", "http://127.0.0.1:1/").await;
    let tested = flare.client().post(&format!("{}/test", down.path), &json!({})).await.expect(200).json();
    assert!(tested["error"].is_string() && tested["status"].is_null(), "{tested}");
    flare.put(&user(1), 1).await;
    receiver.wait("a real delivery", |records| records.count("/a/1") == 1).await;
    within("nothing is behind", async {
        while flare.client().get(&format!("{}/lag", subscription.path)).await.expect(200).json()["documents"] != 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
