//! The client sets the pace: rate, demand, pull.

use std::time::{Duration, Instant};

use flare_tests::{Flare, Receiver, Reply, Subscription, within};
use serde_json::{Value, json};

use crate::{USERS, user};

async fn passive(flare: &Flare, resource: &str, url: &str) -> Subscription {
    flare.subscribe_with(resource, "a", url, &json!({ "mode": "passive" })).await
}

async fn pull(flare: &Flare, subscription: &Subscription, query: &str) -> Vec<Value> {
    let answer = flare.client().get(&format!("{}/messages?{query}", subscription.path)).await.expect(200);
    answer.json()["messages"].as_array().unwrap().clone()
}

async fn settle(flare: &Flare, subscription: &Subscription, how: &str, body: Value) -> Value {
    flare.client().post(&format!("{}/messages/{how}", subscription.path), &body).await.expect(200).json()
}

fn receipts(messages: &[Value]) -> Vec<Value> {
    messages.iter().map(|message| message["receipt"].clone()).collect()
}

fn ids(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_rate_is_kept_and_can_be_changed_while_it_runs() {
    const DOCUMENTS: usize = 60;
    let receiver = Receiver::start().await;
    let flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    let slow = json!({ "delivery": { "rate": { "maxReceivesPerSecond": 10 } } });
    let subscription = flare.subscribe_with(&resource, "a", &receiver.url("/a"), &slow).await;
    let began = Instant::now();
    for number in 0..DOCUMENTS {
        flare.put(&user(number), 1).await;
    }
    receiver.wait("some deliveries", |records| records.count("/a") >= 15).await;
    let (arrived, took) = (receiver.records().count("/a"), began.elapsed());
    let most = 10.0 * took.as_secs_f64() + 2.0;
    assert!(arrived as f64 <= most, "{arrived} deliveries in {took:?} at 10 per second");
    let fast = json!({ "name": "a", "endpoint": { "url": receiver.url("/a") } });
    flare.client().put(&subscription.path, &fast).await.expect(200);
    receiver.wait("all documents", |records| records.documents("/a") == DOCUMENTS).await;
    receiver.expect_never_backwards();
}

#[tokio::test]
async fn what_is_past_the_maximum_of_the_server_is_refused_with_the_maximum() {
    let flare = Flare::configured("[delivery]\nrate-max = 50\nttl-max = \"1h\"\n").await;
    let resource = flare.resource(USERS).await;
    for (delivery, maximum) in [
        (json!({ "rate": { "maxReceivesPerSecond": 51 } }), "from 1 to 50"),
        (json!({ "ttl": "2h" }), "1h"),
        (json!({ "concurrency": 100_000 }), "256"),
        (json!({ "timeout": "2h" }), "1m"),
    ] {
        let asked = json!({ "name": "a", "endpoint": { "url": "http://127.0.0.1:1/" }, "delivery": delivery });
        let path = format!("/resources/{resource}/subscriptions");
        let refused = flare.client().post(&path, &asked).await.expect_error(422, "subscription.invalid");
        let detail = refused.json()["error"]["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(maximum), "{detail}");
    }
}

#[tokio::test]
async fn a_revision_that_is_too_old_is_a_dead_letter_and_can_be_replayed() {
    let receiver = Receiver::start().await;
    let flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    let short = json!({ "delivery": { "ttl": "1s", "retry": { "minDelayTarget": 1, "maxDelayTarget": 1,
        "numNoDelayRetries": 0, "numMinDelayRetries": 5, "numMaxDelayRetries": 5, "numRetries": 20 } } });
    let subscription = flare.subscribe_with(&resource, "a", &receiver.url("/a"), &short).await;
    receiver.reply("/a", Reply::Status(500));
    flare.put(&user(1), 1).await;
    let letters = format!("{}/dead-letters", subscription.path);
    let letter = within("a dead letter", async {
        loop {
            let list = flare.client().get(&letters).await.expect(200).json();
            if let Some(letter) = list["deadLetters"].get(0) {
                break letter.clone();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!((&letter["reason"], &letter["document"]), (&json!("expired"), &json!(user(1))));
    // What was given up is not behind by mistake.
    let resync = flare.client().post(&format!("{}/resync", subscription.path), &json!({})).await.expect(200).json();
    assert_eq!(resync["repaired"], 0);

    receiver.reply("/a", Reply::Status(200));
    let long = json!({ "name": "a", "endpoint": { "url": receiver.url("/a") } });
    flare.client().put(&subscription.path, &long).await.expect(200);
    let replayed = flare.client().post(&format!("{letters}/replay"), &json!({ "ids": [letter["id"]] })).await;
    assert_eq!(replayed.expect(200).json()["deadLetters"], 1);
    let before = receiver.records().count("/a");
    receiver.wait("the delivery", |records| records.count("/a") >= before.min(1)).await;
    within("no dead letter is left", async {
        while flare.client().get(&letters).await.expect(200).json()["pagination"]["total"] != 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    flare.put(&user(1), 2).await;
    receiver.wait_revision("/a", &user(1), 2).await;
    let story = receiver.records().story("/a", &user(1));
    assert_eq!(story.last(), Some(&("update".to_owned(), 2)), "{story:?}");
}

#[tokio::test]
async fn a_passive_subscription_gets_what_it_asks_for_and_the_demand_survives_a_kill() {
    let receiver = Receiver::start().await;
    let mut flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    let subscription = passive(&flare, &resource, &receiver.url("/a")).await;
    for number in 0..20 {
        flare.put(&user(number), 1).await;
    }
    let demand = format!("{}/demand", subscription.path);
    assert_eq!(flare.client().get(&demand).await.expect(200).json()["left"], 0);
    flare.client().post(&demand, &json!({ "quantity": 5 })).await.expect(200);
    receiver.wait("what was asked for", |records| records.count("/a") == 5).await;
    within("all demand is used", async {
        while flare.client().get(&demand).await.expect(200).json()["left"] != 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(receiver.records().count("/a"), 5, "more was sent than was asked for");

    receiver.reply("/a", Reply::Status(200));
    let left = flare.client().post(&demand, &json!({ "quantity": 100 })).await.expect(200).json();
    assert!(left["left"].as_u64().unwrap() <= 100);
    flare.kill().await;
    flare.start_again().await;
    receiver.wait("the rest", |records| records.documents("/a") == 20).await;
    let error = flare.client().post(&demand, &json!({ "quantity": 1_000_000 })).await;
    error.expect_error(409, "subscription.conflict");
    flare.client().post(&demand, &json!({ "quantity": 0 })).await.expect_error(422, "subscription.invalid");
}

#[tokio::test]
async fn messages_are_pulled_leased_acknowledged_and_given_back() {
    let flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    let subscription = passive(&flare, &resource, "http://127.0.0.1:1/").await;
    for number in 0..5 {
        flare.put(&user(number), 1).await;
    }
    let first = pull(&flare, &subscription, "limit=3").await;
    assert_eq!(ids(&first), [user(0), user(1), user(2)]);
    let message = &first[0];
    assert_eq!(
        (&message["action"], &message["revision"], &message["attempt"]),
        (&json!("create"), &json!(1), &json!(1))
    );
    assert_eq!(message["document"]["name"], "sample");

    // Of a leased document, nothing newer goes out.
    flare.put(&user(0), 2).await;
    let rest = pull(&flare, &subscription, "limit=10").await;
    assert_eq!(ids(&rest), [user(3), user(4)]);
    let settled = settle(&flare, &subscription, "ack", json!({ "receipts": receipts(&first[..1]) })).await;
    assert_eq!((&settled["done"], &settled["refused"]), (&json!(1), &json!([])));
    let newer = pull(&flare, &subscription, "limit=10&wait=5s").await;
    assert_eq!(
        (ids(&newer), &newer[0]["action"], &newer[0]["revision"]),
        (vec![&*user(0)], &json!("update"), &json!(2))
    );

    // A message that is given back is there again, with the next attempt.
    settle(&flare, &subscription, "nack", json!({ "receipts": receipts(&first[1..2]) })).await;
    let again = pull(&flare, &subscription, "limit=10&wait=5s").await;
    assert_eq!((ids(&again), &again[0]["attempt"]), (vec![&*user(1)], &json!(2)));

    // Receipts that were used, are old, or are no receipts change nothing, and say why.
    let wrong = json!({ "receipts": [first[0]["receipt"], first[1]["receipt"], "nonsense"] });
    let refused = settle(&flare, &subscription, "ack", wrong).await;
    assert_eq!((&refused["done"], refused["refused"].as_array().unwrap().len()), (&json!(0), 3));
    assert_eq!(refused["refused"][2]["reason"], "this is not a receipt");
    for messages in [&first[2..], &rest[..], &newer[..], &again[..]] {
        let settled = settle(&flare, &subscription, "ack", json!({ "receipts": receipts(messages) })).await;
        assert_eq!(settled["refused"], json!([]));
    }
    assert!(pull(&flare, &subscription, "limit=10").await.is_empty());
    let lag = flare.client().get(&format!("{}/lag", subscription.path)).await.expect(200).json();
    assert_eq!(lag["documents"], 0, "{lag}");
}

#[tokio::test]
async fn a_lease_that_ends_returns_the_message_unless_it_is_extended() {
    let flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    let subscription = passive(&flare, &resource, "http://127.0.0.1:1/").await;
    flare.put(&user(1), 1).await;
    flare.put(&user(2), 1).await;
    let held = pull(&flare, &subscription, "limit=2&lease=1s").await;
    assert_eq!(held.len(), 2);
    let longer = json!({ "receipts": receipts(&held[..1]), "lease": "10m" });
    assert_eq!(settle(&flare, &subscription, "extend", longer).await["done"], 1);
    let returned = pull(&flare, &subscription, "limit=10&wait=20s").await;
    assert_eq!(ids(&returned), [user(2)]);
    assert_eq!(settle(&flare, &subscription, "ack", json!({ "receipts": receipts(&held) })).await["done"], 1);
}

#[tokio::test]
async fn a_pull_that_waits_is_answered_when_something_comes_or_its_time_is_up() {
    let flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    let subscription = passive(&flare, &resource, "http://127.0.0.1:1/").await;
    assert!(pull(&flare, &subscription, "wait=300ms").await.is_empty());
    let (pulled, ()) = tokio::join!(pull(&flare, &subscription, "wait=20s"), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        flare.put(&user(1), 1).await;
    });
    assert_eq!(ids(&pulled), [user(1)]);
    flare.client().get(&format!("{}/messages?wait=2h", subscription.path)).await.expect(400);
    let active = flare.subscribe(&resource, "b", "http://127.0.0.1:1/").await;
    flare.client().get(&format!("{}/messages", active.path)).await.expect_error(409, "subscription.conflict");
}

#[tokio::test]
async fn the_mode_can_be_switched_both_ways_without_loss() {
    const DOCUMENTS: usize = 30;
    let receiver = Receiver::start().await;
    let flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    let subscription = passive(&flare, &resource, &receiver.url("/a")).await;
    let switch = async |mode: &str| {
        let body = json!({ "name": "a", "mode": mode, "endpoint": { "url": receiver.url("/a") } });
        flare.client().put(&subscription.path, &body).await.expect(200);
    };
    for number in 0..DOCUMENTS {
        flare.put(&user(number), 1).await;
    }
    let leased = pull(&flare, &subscription, "limit=5&lease=1s").await;
    settle(&flare, &subscription, "ack", json!({ "receipts": receipts(&leased[..2]) })).await;
    switch("active").await;
    // Two were acknowledged; the leases of three end, and they are pushed like the rest.
    receiver.wait("the rest", |records| records.documents("/a") == DOCUMENTS - 2).await;
    switch("passive").await;
    flare.put(&user(0), 2).await;
    let pulled = pull(&flare, &subscription, "wait=20s").await;
    assert_eq!((ids(&pulled), &pulled[0]["action"]), (vec![&*user(0)], &json!("update")));
    receiver.expect_never_backwards();
}
