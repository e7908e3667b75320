//! Promise 7: a restart needs no hands.

use std::time::Duration;

use flare_tests::{Flare, Gate, Receiver, Records, Reply, quick_retries, run_to_end};
use serde_json::json;

use crate::{USERS, user};

#[tokio::test]
async fn after_a_kill_deliveries_go_on_by_themselves() {
    const DOCUMENTS: usize = 50;
    let receiver = Receiver::start().await;
    let mut flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    // What is in flight hangs until the server is dead, and nothing else can follow it.
    let gate = Gate::closed();
    receiver.reply("/a", Reply::Behind(gate.clone(), 200));
    for number in 0..DOCUMENTS {
        flare.put(&user(number), 1).await;
    }
    receiver.wait("a first delivery", |records| records.count("/a") > 0).await;
    flare.kill().await;
    receiver.reply("/a", Reply::Status(200));
    flare.start_again().await;
    receiver.wait("all documents", |records| records.documents("/a") == DOCUMENTS).await;
}

#[tokio::test]
async fn after_a_stop_and_a_kill_waiting_retries_go_on_by_themselves() {
    const DOCUMENTS: usize = 20;
    let receiver = Receiver::start().await;
    let mut flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    flare.subscribe_with(&resource, "a", &receiver.url("/a"), &quick_retries()).await;
    receiver.reply("/a", Reply::Status(500));
    for number in 0..DOCUMENTS {
        flare.put(&user(number), 1).await;
    }
    let nothing = vec![0; DOCUMENTS];
    every_document_is_tried_again(&receiver, &nothing).await;
    // A stop notes all that was done, so that from here on nothing but the retries tells of these documents.
    assert!(flare.stop().await.success());
    let before_start = attempts(&receiver.records(), DOCUMENTS);
    flare.start_again().await;
    every_document_is_tried_again(&receiver, &before_start).await;
    flare.kill().await;
    receiver.reply("/a", Reply::Status(200));
    let before_start = attempts(&receiver.records(), DOCUMENTS);
    flare.start_again().await;
    every_document_is_tried_again(&receiver, &before_start).await;
    // They were noted as delivered: the next revision is an update.
    flare.put(&user(0), 2).await;
    receiver.wait_revision("/a", &user(0), 2).await;
    let story = receiver.records().story("/a", &user(0));
    assert_eq!(story.last(), Some(&("update".to_owned(), 2)), "{story:?}");
}

fn attempts(records: &Records, documents: usize) -> Vec<usize> {
    (0..documents).map(|number| records.revisions("/a", &user(number)).len()).collect()
}

async fn every_document_is_tried_again(receiver: &Receiver, before: &[usize]) {
    let again =
        |records: &Records| attempts(records, before.len()).iter().zip(before).all(|(now, before)| now > before);
    receiver.wait("another attempt at every document", again).await;
}

#[tokio::test]
async fn a_kill_does_not_repeat_what_was_delivered_long_before() {
    const DOCUMENTS: usize = 20;
    let receiver = Receiver::start().await;
    let mut flare = Flare::configured("[delivery]\nrecord-delay = \"10ms\"\n").await;
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    for number in 0..DOCUMENTS {
        flare.put(&user(number), 1).await;
    }
    receiver.wait("all documents", |records| records.documents("/a") == DOCUMENTS).await;
    // The time that a delivery may stay unrecorded is the subject; it is exceeded by far.
    tokio::time::sleep(Duration::from_secs(3)).await;
    flare.kill().await;
    flare.start_again().await;
    for number in 0..DOCUMENTS {
        flare.put(&user(number), 2).await;
        receiver.wait_revision("/a", &user(number), 2).await;
        assert_eq!(receiver.records().revisions("/a", &user(number)), [1, 2]);
    }
}

#[tokio::test]
async fn a_long_wait_for_a_retry_survives_a_restart_and_does_not_become_an_attempt_at_once() {
    let receiver = Receiver::start().await;
    let mut flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a/{id}")).await;
    receiver.reply_in_turn("/a/1", [Reply::Header(503, "retry-after", "600".to_owned())]);
    flare.put(&user(1), 1).await;
    receiver.wait("the first attempt", |records| records.count("/a/1") == 1).await;
    assert!(flare.stop().await.success());
    flare.start_again().await;
    for number in 2..20 {
        flare.put(&user(number), 1).await;
        receiver.wait_revision(&format!("/a/{number}"), &user(number), 1).await;
    }
    assert_eq!(receiver.records().count("/a/1"), 1, "the endpoint asked for ten minutes");
}

#[tokio::test]
async fn a_stop_finishes_what_is_in_flight() {
    let receiver = Receiver::start().await;
    let mut flare = Flare::configured("[node]\ngrace = \"20s\"\n").await;
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a/{id}")).await;
    let gate = Gate::closed();
    receiver.reply_in_turn("/a/1", [Reply::Behind(gate.clone(), 200)]);
    flare.put(&user(1), 1).await;
    receiver.wait_revision("/a/1", &user(1), 1).await;

    flare.terminate();
    flare.takes_no_more_requests().await;
    gate.open();
    assert_eq!(flare.ended().await.code(), Some(0));

    // It was finished and noted, so nothing is repeated.
    flare.start_again().await;
    flare.put(&user(1), 2).await;
    receiver.wait_revision("/a/1", &user(1), 2).await;
    let story = receiver.records().story("/a/1", &user(1));
    assert_eq!(story, [("create".to_owned(), 1), ("update".to_owned(), 2)]);
}

#[tokio::test]
async fn a_stop_does_not_wait_longer_than_the_grace_period() {
    let receiver = Receiver::start().await;
    let mut flare = Flare::configured("[node]\ngrace = \"200ms\"\n").await;
    let resource = flare.resource(USERS).await;
    let slow = json!({ "delivery": { "timeout": "60s" } });
    flare.subscribe_with(&resource, "a", &receiver.url("/a"), &slow).await;
    receiver.reply_in_turn("/a", [Reply::Behind(Gate::closed(), 200)]);
    flare.put(&user(1), 1).await;
    receiver.wait_revision("/a", &user(1), 1).await;
    flare.stop().await;
    flare.start_again().await;
    receiver.wait("the delivery is repeated", |records| records.count("/a") == 2).await;
}

#[tokio::test]
async fn a_second_signal_ends_the_server_at_once() {
    let receiver = Receiver::start().await;
    // Longer than a scenario waits: only the second signal can end the server in time.
    let mut flare = Flare::configured("[node]\ngrace = \"10m\"\n").await;
    let resource = flare.resource(USERS).await;
    let slow = json!({ "delivery": { "timeout": "60s" } });
    flare.subscribe_with(&resource, "a", &receiver.url("/a"), &slow).await;
    receiver.reply("/a", Reply::Behind(Gate::closed(), 200));
    flare.put(&user(1), 1).await;
    receiver.wait_revision("/a", &user(1), 1).await;
    flare.terminate();
    flare.takes_no_more_requests().await;
    flare.terminate();
    let status = flare.ended().await;
    assert!(!status.success(), "what was in flight was not finished, and {status} does not say so");
}

#[tokio::test]
async fn a_stop_of_an_idle_server_with_open_connections_ends_with_zero() {
    let mut flare = Flare::start().await;
    flare.client().get("/").await.expect(200);
    assert_eq!(flare.stop().await.code(), Some(0));
}

#[tokio::test]
async fn a_second_process_on_the_same_folder_is_refused() {
    let flare = Flare::start().await;
    flare.resource(USERS).await;
    let ended = flare.second_on_the_same_folder().await;
    assert!(!ended.status.success());
    assert!(ended.output.contains("in use"), "{}", ended.output);
    assert!(ended.output.contains(flare.data().to_str().unwrap()), "{}", ended.output);
    // The first one does not notice.
    flare.put(&user(1), 1).await;
    assert_eq!(flare.revision(&user(1)).await, 1);
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = Receiver::start().await;
    let mut command = std::process::Command::new(flare_tests::binary());
    let folder = tempfile::TempDir::new().unwrap();
    command.args(["start", "--addr", &taken.addr().to_string(), "--data"]).arg(folder.path()).current_dir(&folder);
    let ended = run_to_end(command).await;
    assert!(!ended.status.success());
    assert!(ended.output.contains(&taken.addr().to_string()), "{}", ended.output);
}
