//! Promise 1: a 2xx on a write means that it survives `kill -9`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use flare_tests::{Client, Flare, Receiver, Reply, quick_retries};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{USERS, user};

const KILLS: usize = 10;
const DOCUMENTS: usize = 200;
const WRITERS: usize = 8;
/// Writes that are accepted between one kill and the next, at least.
const ACCEPTED_BETWEEN_KILLS: usize = 120;

/// Writers of rising revisions, and what was promised to them.
struct Load {
    /// The newest revision of each document that was answered with 202.
    acknowledged: Arc<Vec<AtomicI64>>,
    accepted: watch::Receiver<usize>,
    stop: watch::Sender<bool>,
    writers: JoinSet<()>,
}

impl Load {
    fn start(client: &Client) -> Self {
        let acknowledged: Arc<Vec<AtomicI64>> = Arc::new((0..DOCUMENTS).map(|_| AtomicI64::new(0)).collect());
        let (count, accepted) = watch::channel(0);
        let count = Arc::new(count);
        let stop = watch::Sender::new(false);
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let (client, acknowledged) = (client.clone(), Arc::clone(&acknowledged));
            let (count, stop) = (Arc::clone(&count), stop.subscribe());
            writers.spawn(async move {
                let own = (writer..DOCUMENTS).step_by(WRITERS);
                for (revision, document) in (1..).flat_map(|revision| own.clone().map(move |own| (revision, own))) {
                    if *stop.borrow() {
                        return;
                    }
                    write(&client, document, revision, &acknowledged, &count).await;
                }
            });
        }
        Self { acknowledged, accepted, stop, writers }
    }

    /// Waits until so many more writes were accepted.
    async fn accepted_more(&mut self, count: usize) {
        let goal = *self.accepted.borrow() + count;
        let reached = self.accepted.wait_for(|accepted| *accepted >= goal);
        flare_tests::within("the server accepts writes", reached).await.unwrap();
    }

    /// Ends the writers; returns the promises.
    async fn end(mut self) -> Vec<i64> {
        self.stop.send_replace(true);
        while let Some(ended) = self.writers.join_next().await {
            ended.unwrap();
        }
        self.acknowledged.iter().map(|revision| revision.load(Ordering::SeqCst)).collect()
    }
}

/// One write. Without an answer nothing was promised, and nobody knows whether it happened.
async fn write(
    client: &Client,
    document: usize,
    revision: i64,
    acknowledged: &[AtomicI64],
    count: &watch::Sender<usize>,
) {
    const SERVER_AWAY: Duration = Duration::from_millis(10);
    match client.try_put_document(&user(document), &json!({ "revision": revision, "padding": "x".repeat(200) })).await {
        Ok(answer) if answer.status == 202 => {
            acknowledged[document].store(revision, Ordering::SeqCst);
            count.send_modify(|count| *count += 1);
        }
        Ok(answer) => assert_eq!(answer.status, 503, "{}", answer.text()),
        Err(_) => tokio::time::sleep(SERVER_AWAY).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_kills_under_load_lose_nothing_and_turn_nothing_around() {
    let receiver = Receiver::start().await;
    let mut flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "steady", &receiver.url("/steady")).await;
    flare.subscribe_with(&resource, "shaky", &receiver.url("/shaky"), &quick_retries()).await;

    let mut load = Load::start(&flare.client());
    for kill in 0..KILLS {
        // Some deliveries fail, so that retries are waiting when the server dies.
        receiver.reply_in_turn("/shaky", (0..40).map(|turn| Reply::Status(if turn % 4 == 0 { 200 } else { 500 })));
        load.accepted_more(ACCEPTED_BETWEEN_KILLS + 7 * kill).await;
        flare.kill().await;
        flare.start_again().await;
    }
    let acknowledged = load.end().await;
    assert!(acknowledged.iter().all(|revision| *revision > 0), "every document was written");
    // Once more without a write to come, so that only what was kept can bring the clients up to date.
    flare.kill().await;
    flare.start_again().await;

    for path in ["/steady", "/shaky"] {
        receiver
            .wait(&format!("every acknowledged revision at {path}"), |records| {
                let newest = |document| records.newest(path, &user(document));
                acknowledged.iter().enumerate().all(|(document, revision)| newest(document) >= Some(*revision))
            })
            .await;
    }
    receiver.expect_never_backwards();
    for (document, revision) in acknowledged.iter().enumerate() {
        let kept = flare.revision(&user(document)).await;
        assert!(kept >= *revision, "revision {revision} of {} was acknowledged, {kept} is kept", user(document));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stops_under_load_lose_nothing_and_repeat_nothing() {
    let receiver = Receiver::start().await;
    let mut flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    let mut load = Load::start(&flare.client());
    for _ in 0..3 {
        load.accepted_more(ACCEPTED_BETWEEN_KILLS).await;
        assert_eq!(flare.stop().await.code(), Some(0));
        flare.start_again().await;
    }
    let acknowledged = load.end().await;
    receiver
        .wait("every acknowledged revision", |records| {
            let newest = |document| records.newest("/a", &user(document)).unwrap_or(0);
            acknowledged.iter().enumerate().all(|(document, revision)| newest(document) >= *revision)
        })
        .await;
    let records = receiver.records();
    for document in 0..DOCUMENTS {
        let revisions = records.revisions("/a", &user(document));
        assert!(revisions.is_sorted_by(|one, next| one < next), "{}: {revisions:?}", user(document));
    }
}

#[tokio::test]
async fn a_document_is_there_after_a_kill_right_after_its_acknowledgement() {
    let mut flare = Flare::start().await;
    flare.resource(USERS).await;
    for number in 1..=5 {
        flare.put(&user(number), 7).await;
        flare.kill().await;
        flare.start_again().await;
        assert_eq!(flare.revision(&user(number)).await, 7);
    }
}

#[tokio::test]
async fn resources_and_subscriptions_are_there_after_a_kill_right_after_their_creation() {
    let receiver = Receiver::start().await;
    let mut flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    flare.kill().await;
    flare.start_again().await;
    let subscription = flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    flare.kill().await;
    flare.start_again().await;
    flare.client().get(&subscription.path).await.expect(200);
    flare.put(&user(1), 1).await;
    receiver.wait_revision("/a", &user(1), 1).await;
}

#[tokio::test]
async fn a_deletion_survives_a_kill_right_after_its_acknowledgement() {
    let mut flare = Flare::start().await;
    flare.resource(USERS).await;
    flare.put(&user(1), 1).await;
    flare.client().delete_document(&user(1)).await.expect(202);
    flare.kill().await;
    flare.start_again().await;
    flare.client().get_document(&user(1)).await.expect(404);
}

#[tokio::test]
async fn every_document_of_an_acknowledged_batch_survives_a_kill() {
    const BATCH: usize = 500;
    let mut flare = Flare::start().await;
    flare.resource(USERS).await;
    let batch: Vec<_> = (0..BATCH).map(|number| json!({ "id": user(number), "document": { "revision": 3 } })).collect();
    let answer = flare.client().post("/documents", &json!(batch)).await;
    assert!((200..300).contains(&answer.status), "{}", answer.text());
    flare.kill().await;
    flare.start_again().await;
    for number in 0..BATCH {
        assert_eq!(flare.revision(&user(number)).await, 3);
    }
}

#[tokio::test]
async fn a_kill_while_starting_harms_nothing() {
    let mut flare = Flare::start().await;
    flare.resource(USERS).await;
    for number in 0..100 {
        flare.put(&user(number), 1).await;
    }
    flare.kill().await;
    for milliseconds in [0, 1, 2, 4, 8, 16, 32, 64] {
        flare.spawn();
        // The moment of the kill is the scenario, not a wait for something.
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        flare.kill().await;
    }
    flare.start_again().await;
    for number in 0..100 {
        assert_eq!(flare.revision(&user(number)).await, 1);
    }
}
