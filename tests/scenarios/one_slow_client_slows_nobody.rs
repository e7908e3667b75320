//! Promise 4: one slow client slows nobody else, whatever it does.

use std::time::Duration;

use flare_tests::{Flare, Gate, Receiver, Reply, quick_retries};
use futures_util::stream::{self, StreamExt};
use serde_json::json;

use crate::{USERS, user};

/// Subscribes `/s/0`, `/s/1` … to a resource.
async fn subscribe_many(flare: &Flare, resource: &str, receiver: &Receiver, count: usize) {
    stream::iter(0..count)
        .for_each_concurrent(8, async |number| {
            flare.subscribe(resource, &format!("s{number}"), &receiver.url(&format!("/s/{number}"))).await;
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_one_endpoint_of_a_hundred_hangs_the_others_get_everything() {
    const OUTLETS: usize = 100;
    const DOCUMENTS: usize = 100;
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let gate = Gate::closed();
    receiver.reply("/s/42", Reply::Behind(gate.clone(), 200));
    subscribe_many(&flare, &resource, &receiver, OUTLETS).await;
    for number in 0..DOCUMENTS {
        flare.put(&user(number), 1).await;
    }
    receiver
        .wait("everything at the other 99", |records| {
            (0..OUTLETS)
                .filter(|number| *number != 42)
                .all(|number| records.documents(&format!("/s/{number}")) == DOCUMENTS)
        })
        .await;
    assert!(receiver.records().documents("/s/42") < DOCUMENTS, "the hung one does not have everything yet");
    gate.open();
    receiver.wait("everything at the hung one", |records| records.documents("/s/42") == DOCUMENTS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_hang_give_their_places_to_others() {
    // So few places that the hung requests would take them all, and for longer than a scenario waits.
    let config = "[delivery]\nnode-concurrency = 4\nslow-after = \"50ms\"\n";
    let (receiver, flare) = (Receiver::start().await, Flare::configured(config).await);
    let resource = flare.resource(USERS).await;
    let gate = Gate::closed();
    receiver.reply("/hung", Reply::Behind(gate.clone(), 200));
    let patient = json!({ "delivery": { "timeout": "60s" } });
    flare.subscribe_with(&resource, "hung", &receiver.url("/hung"), &patient).await;
    flare.subscribe(&resource, "good", &receiver.url("/good")).await;
    for number in 0..100 {
        flare.put(&user(number), 1).await;
    }
    receiver.wait("everything at the good one", |records| records.documents("/good") == 100).await;
    gate.open();
    receiver.wait("everything at the hung one", |records| records.documents("/hung") == 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_times_out_again_and_again_does_not_hold_the_others() {
    let (receiver, flare) = (Receiver::start().await, Flare::configured("[delivery]\nnode-concurrency = 4\n").await);
    let resource = flare.resource(USERS).await;
    receiver.reply("/hung", Reply::Behind(Gate::closed(), 200));
    let hasty = json!({ "delivery": { "timeout": "100ms" } });
    flare.subscribe_with(&resource, "hung", &receiver.url("/hung"), &hasty).await;
    flare.subscribe(&resource, "good", &receiver.url("/good")).await;
    for number in 0..100 {
        flare.put(&user(number), 1).await;
    }
    receiver.wait("everything at the good one", |records| records.documents("/good") == 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_outlets_of_one_resource_all_get_a_document() {
    const OUTLETS: usize = 1000;
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    subscribe_many(&flare, &resource, &receiver, OUTLETS).await;
    for revision in 1..=2 {
        flare.put(&user(1), revision).await;
        receiver
            .wait(&format!("revision {revision} everywhere"), |records| {
                (0..OUTLETS).all(|number| records.newest(&format!("/s/{number}"), &user(1)) == Some(revision))
            })
            .await;
    }
    let records = receiver.records();
    for number in 0..OUTLETS {
        assert_eq!(records.revisions(&format!("/s/{number}"), &user(1)), [1, 2], "/s/{number}");
    }
}

/// An endpoint that misbehaves at first gets the document in the end, and its neighbour is not held up.
async fn misbehaves_then_recovers(replies: Vec<Reply>, members: serde_json::Value) -> (Receiver, Flare) {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let attempts = replies.len() + 1;
    receiver.reply_in_turn("/bad", replies);
    flare.subscribe_with(&resource, "bad", &receiver.url("/bad"), &members).await;
    flare.subscribe(&resource, "good", &receiver.url("/good")).await;
    flare.put(&user(1), 1).await;
    receiver.wait_revision("/good", &user(1), 1).await;
    receiver.wait("the attempt that succeeds", |records| records.count("/bad") == attempts).await;
    // A later revision comes as an update: the recovery was noted.
    flare.put(&user(1), 2).await;
    receiver.wait_revision("/bad", &user(1), 2).await;
    let story = receiver.records().story("/bad", &user(1));
    assert_eq!(story.last(), Some(&("update".to_owned(), 2)), "{story:?}");
    assert_eq!(story.len(), attempts + 1, "{story:?}");
    (receiver, flare)
}

#[tokio::test]
async fn an_endpoint_that_fails_is_tried_again() {
    let failures = [500, 404, 302, 429, 503].map(Reply::Status).to_vec();
    misbehaves_then_recovers(failures, quick_retries()).await;
}

#[tokio::test]
async fn an_endpoint_that_resets_its_connections_is_tried_again() {
    misbehaves_then_recovers(vec![Reply::Reset; 4], quick_retries()).await;
}

#[tokio::test]
async fn an_endpoint_that_hangs_is_tried_again_after_the_timeout() {
    let mut members = quick_retries();
    members["delivery"]["timeout"] = json!("200ms");
    misbehaves_then_recovers(vec![Reply::Behind(Gate::closed(), 200); 2], members).await;
}

#[tokio::test]
async fn an_endpoint_that_answers_slowly_is_waited_for() {
    let slow = Reply::After(Duration::from_millis(1500), 200);
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    receiver.reply("/slow", slow);
    flare.subscribe_with(&resource, "slow", &receiver.url("/slow"), &json!({ "delivery": { "timeout": "15s" } })).await;
    flare.put(&user(1), 1).await;
    receiver.wait_revision("/slow", &user(1), 1).await;
    flare.put(&user(1), 2).await;
    receiver.wait_revision("/slow", &user(1), 2).await;
    let story = receiver.records().story("/slow", &user(1));
    assert_eq!(story, [("create".to_owned(), 1), ("update".to_owned(), 2)]);
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_gets_everything_once_it_is() {
    let gone = Receiver::start().await.addr();
    let flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    flare.subscribe_with(&resource, "a", &format!("http://{gone}/a"), &quick_retries()).await;
    for number in 0..10 {
        flare.put(&user(number), 1).await;
    }
    let receiver = Receiver::on(gone).await;
    receiver.wait("all documents", |records| records.documents("/a") == 10).await;
}

#[tokio::test]
async fn a_huge_answer_is_cut_and_does_not_fill_the_memory() {
    const HUGE: u64 = 8 << 30;
    const GROWTH_MAX: u64 = 64 << 20;
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "warm", &receiver.url("/warm")).await;
    flare.put(&user(0), 1).await;
    receiver.wait_revision("/warm", &user(0), 1).await;
    let before = flare.memory_bytes();

    flare.subscribe(&resource, "huge", &receiver.url("/huge")).await;
    receiver.reply("/huge", Reply::Huge(HUGE));
    for number in 1..=20 {
        flare.put(&user(number), 1).await;
        receiver.wait_revision("/huge", &user(number), 1).await;
    }
    // The status of an answer counts, not its body: the document is delivered, and its next revision an update.
    flare.put(&user(1), 2).await;
    receiver.wait_revision("/huge", &user(1), 2).await;
    let story = receiver.records().story("/huge", &user(1));
    assert_eq!(story, [("create".to_owned(), 1), ("update".to_owned(), 2)]);
    let growth = flare.memory_bytes().saturating_sub(before);
    assert!(growth < GROWTH_MAX, "the memory grew by {} MiB", growth >> 20);
    assert!(receiver.body_bytes() < HUGE, "the server read {} bytes", receiver.body_bytes());
}

#[tokio::test]
async fn an_answer_whose_body_never_ends_counts_by_its_status() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    receiver.reply("/drip", Reply::Drip(Duration::from_millis(20)));
    let members = json!({ "delivery": { "timeout": "500ms", "concurrency": 1 } });
    flare.subscribe_with(&resource, "drip", &receiver.url("/drip"), &members).await;
    for number in 0..3 {
        flare.put(&user(number), 1).await;
    }
    receiver.wait("all documents", |records| records.documents("/drip") == 3).await;
}

#[tokio::test]
async fn an_endpoint_that_asks_for_time_gets_it() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    receiver.reply_in_turn("/a", [Reply::Header(429, "retry-after", "3".to_owned())]);
    receiver.reply_in_turn("/b", [Reply::Header(503, "retry-after", "3".to_owned())]);
    for path in ["/a", "/b"] {
        flare.subscribe_with(&resource, &path[1..], &receiver.url(path), &quick_retries()).await;
    }
    flare.put(&user(1), 1).await;
    receiver.wait("two attempts each", |records| records.count("/a") == 2 && records.count("/b") == 2).await;
    for path in ["/a", "/b"] {
        let arrivals: Vec<_> = receiver.records().at(path).map(|delivery| delivery.at).collect();
        let pause = arrivals[1] - arrivals[0];
        // Without the header, the first retry comes at once. Clocks and rounding are given a little room.
        assert!(pause >= Duration::from_millis(2900), "{path} was tried again after {pause:?}");
    }
}
