//! Everything at once, at random: changes, deletes, endpoints that fail, pauses, replays, pulls and kills. In the end every
//! client has the newest of every document, and none has gone backwards.
//!
//! It runs for a few seconds; `FLARE_TEST_CHAOS=600` has it run for ten minutes. `FLARE_TEST_SEED` repeats a run.

use std::{
    collections::HashMap,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use flare_tests::{Flare, Receiver, Reply, Subscription, quick_retries};
use serde_json::{Value, json};

use crate::{USERS, user};

const DOCUMENTS: usize = 25;
const SECONDS: u64 = 5;

/// Numbers that a seed repeats.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

struct Chaos {
    flare: Flare,
    receiver: Receiver,
    dice: Dice,
    revisions: [i64; DOCUMENTS],
    is_deleted: [bool; DOCUMENTS],
    pushed: Vec<(&'static str, Subscription)>,
    pulled: Subscription,
    /// The newest that the client who pulls has acknowledged.
    had: HashMap<String, (i64, bool)>,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

impl Chaos {
    async fn new(seed: u64) -> Self {
        let receiver = Receiver::start().await;
        let flare = Flare::configured("[delivery]\nretries-max = 8\n").await;
        let resource = flare.resource(USERS).await;
        let mut pushed = Vec::new();
        for (path, members) in [
            ("/last", json!({})),
            ("/paced", json!({ "delivery": { "rate": { "maxReceivesPerSecond": 200 }, "concurrency": 3 } })),
            ("/all", json!({ "revision": "all" })),
            ("/filtered", json!({ "filter": "current.revision >= 0" })),
        ] {
            let mut wanted = quick_retries();
            for (name, value) in members.as_object().unwrap() {
                match (wanted.get_mut(name), value.as_object()) {
                    (Some(present), Some(more)) => present.as_object_mut().unwrap().extend(more.clone()),
                    _ => wanted[name] = value.clone(),
                }
            }
            pushed.push((path, flare.subscribe_with(&resource, path, &receiver.url(path), &wanted).await));
        }
        let passive = json!({ "mode": "passive" });
        let pulled = flare.subscribe_with(&resource, "pulled", "http://127.0.0.1:1/", &passive).await;
        Self {
            flare,
            receiver,
            dice: Dice(seed),
            revisions: [0; DOCUMENTS],
            is_deleted: [true; DOCUMENTS],
            pushed,
            pulled,
            had: HashMap::new(),
        }
    }

    async fn step(&mut self) {
        match self.dice.roll(100) {
            0..70 => self.change().await,
            70..76 => self.delete().await,
            76..84 => self.answer_differently(),
            84..90 => self.steer().await,
            90..98 => self.pull(Duration::ZERO).await,
            _ => {
                self.flare.kill().await;
                self.flare.start_again().await;
            }
        }
    }

    async fn change(&mut self) {
        let document = self.dice.roll(DOCUMENTS as u64) as usize;
        self.revisions[document] += 1;
        self.is_deleted[document] = false;
        self.flare.put(&user(document), self.revisions[document]).await;
    }

    async fn delete(&mut self) {
        let document = self.dice.roll(DOCUMENTS as u64) as usize;
        if !self.is_deleted[document] {
            self.is_deleted[document] = true;
            self.flare.client().delete_document(&user(document)).await.expect(202);
        }
    }

    fn answer_differently(&mut self) {
        let path = self.pushed[self.dice.roll(self.pushed.len() as u64) as usize].0;
        let reply = match self.dice.roll(4) {
            0 => Reply::Status(500),
            1 => Reply::Reset,
            _ => Reply::Status(200),
        };
        self.receiver.reply(path, reply);
    }

    async fn steer(&mut self) {
        let (name, subscription) = &self.pushed[self.dice.roll(self.pushed.len() as u64) as usize];
        let path = subscription.path.clone();
        let (what, body) = match self.dice.roll(4) {
            0 => ("pause", json!({})),
            // With every revision, a replay goes back on purpose.
            1 if *name != "/all" => ("replay", json!({ "from": "all" })),
            2 => ("resync", json!({})),
            _ => ("resume", json!({})),
        };
        let answer = self.flare.client().post(&format!("{path}/{what}"), &body).await;
        // A replay may be under way already.
        assert!(answer.status < 300 || (what == "replay" && answer.status == 409), "{what}: {}", answer.text());
    }

    async fn pull(&mut self, wait: Duration) {
        let query = format!("{}/messages?limit=20&lease=1s&wait={}ms", self.pulled.path, wait.as_millis());
        let messages = self.flare.client().get(&query).await.expect(200).json()["messages"].clone();
        let messages = messages.as_array().unwrap().clone();
        let mut receipts = Vec::new();
        for message in &messages {
            let id = message["id"].as_str().unwrap().to_owned();
            let (revision, is_deleted) = (message["revision"].as_i64().unwrap(), message["action"] == "delete");
            if let Some((had, _)) = self.had.get(&id) {
                assert!(revision >= *had, "{id} went from {had} to {revision}");
            }
            // Some are not acknowledged: their leases end.
            if self.dice.roll(4) > 0 {
                self.had.insert(id, (revision, is_deleted));
                receipts.push(message["receipt"].clone());
            }
        }
        if !receipts.is_empty() {
            let path = format!("{}/messages/ack", self.pulled.path);
            self.flare.client().post(&path, &json!({ "receipts": receipts })).await.expect(200);
        }
    }

    /// All endpoints work from here on, and everybody gets what is missing.
    async fn settle(&mut self) {
        for (path, subscription) in &self.pushed {
            self.receiver.reply(path, Reply::Status(200));
            self.flare.client().post(&format!("{}/resume", subscription.path), &json!({})).await.expect(200);
        }
        let changed: Vec<_> = (0..DOCUMENTS).filter(|document| self.revisions[*document] > 0).collect();
        for (path, _) in &self.pushed {
            let expected = |records: &flare_tests::Records| {
                changed.iter().all(|document| {
                    let story = records.story(path, &user(*document));
                    let is_deleted = self.is_deleted[*document];
                    match story.last() {
                        Some((action, _)) if is_deleted => action == "delete",
                        Some((action, revision)) => action != "delete" && *revision == self.revisions[*document],
                        // What came and went while it was filtered out or behind need not be told.
                        None => is_deleted,
                    }
                })
            };
            self.receiver.wait(&format!("{path} has the newest of every document"), expected).await;
        }
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(30) && !self.puller_has_all(&changed) {
            self.pull(Duration::from_millis(500)).await;
        }
        assert!(self.puller_has_all(&changed), "the client that pulls lacks something: {:?}", self.had);
        self.receiver.expect_never_backwards();
    }

    fn puller_has_all(&self, changed: &[usize]) -> bool {
        changed.iter().all(|document| match (self.had.get(&user(*document)), self.is_deleted[*document]) {
            (Some((_, is_deleted)), true) => *is_deleted,
            (Some((revision, is_deleted)), false) => !is_deleted && *revision == self.revisions[*document],
            (None, is_deleted) => is_deleted,
        })
    }
}

#[tokio::test]
async fn whatever_happens_everybody_ends_up_with_the_newest() {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("FLARE_TEST_SEED").unwrap_or(clock.as_nanos() as u64);
    println!("FLARE_TEST_SEED={seed}");
    let seconds = number("FLARE_TEST_CHAOS").unwrap_or(SECONDS);
    let mut chaos = Chaos::new(seed).await;
    let began = Instant::now();
    let mut steps = 0_u64;
    while began.elapsed() < Duration::from_secs(seconds) {
        chaos.step().await;
        steps += 1;
    }
    chaos.settle().await;
    let shown: Value = chaos.flare.client().get("/status").await.expect(200).json();
    println!("{steps} steps; {}", shown["deliveries"]);
}
