//! The whole program with a queue: deliveries go through it, and what happens to it costs time but no change.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use flare_contract::server;
use flare_tests::{Flare, Receiver, within};
use http::Method;

use crate::{DOCUMENTS, USERS, mongodb, user};

/// The section `task` for an engine, with queues that nothing else uses; none, with a word, without a server.
fn task(engine: &str, name: &str, lines: impl Fn(&str) -> String) -> Option<String> {
    let url = server::url(&format!("FLARE_TEST_{}_URL", engine.to_uppercase()))?;
    let prefix = format!("flare-test-{}-{name}", std::process::id());
    Some(format!(
        "[task]\nengine = \"{engine}\"\nqueue-subscription-delivery = \"{prefix}\"\n{}\n[node]\nlease = \"2s\"\n",
        lines(&url)
    ))
}

fn rabbitmq(name: &str) -> Option<String> {
    task("rabbitmq", name, |url| format!("url = \"{url}\""))
}

fn nats() -> Option<String> {
    task("nats", "nats", |url| format!("url = \"{url}\"\nhold = \"2s\"\nstream-max = \"16MiB\""))
}

fn sqs() -> Option<String> {
    let aws = "[aws]\nkey = \"test\"\nsecret = \"test-secret\"\nregion = \"us-east-1\"\n";
    task("sqs", "sqs", |url| format!("url = \"{url}\"\nhold = \"2s\"")).map(|task| format!("{task}{aws}"))
}

async fn status(flare: &Flare) -> String {
    flare.client().send(Method::GET, "/status", &[], "").await.unwrap().text()
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    within(what, async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

async fn put_all(flare: &Flare, revision: i64) {
    for number in 0..DOCUMENTS {
        flare.put(&user(number), revision).await;
    }
}

async fn expect_all(receiver: &Receiver, path: &str, revision: i64) {
    for number in 0..DOCUMENTS {
        receiver.wait_revision(path, &user(number), revision).await;
    }
}

/// Delivers through the queue, goes on after kill -9, and after the broker was killed and came back; whoever writes
/// documents notices nothing of it.
async fn nothing_is_lost(config: Option<String>, server: &str) {
    let Some(config) = config else { return };
    let receiver = Receiver::start().await;
    let mut flare = Flare::configured(&config).await;
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    flare.subscribe(&resource, "b", &receiver.url("/b")).await;
    put_all(&flare, 1).await;
    expect_all(&receiver, "/a", 1).await;
    expect_all(&receiver, "/b", 1).await;
    let shown = status(&flare).await;
    assert!(shown.contains(&format!("\"engine\":\"{server}\"")), "{shown}");

    put_all(&flare, 2).await;
    flare.kill().await;
    flare.start_again().await;
    expect_all(&receiver, "/a", 2).await;
    expect_all(&receiver, "/b", 2).await;

    assert!(!flare.log().contains("go around"), "nothing went through the queue");

    if std::env::var("FLARE_TEST_SERVERS").as_deref() == Ok("1") {
        servers("kill", server);
        put_all(&flare, 3).await;
        until("the broken queue is named", async || {
            let shown = status(&flare).await;
            shown.contains("\"healthy\":false") && shown.contains(&format!("\"engine\":\"{server}\""))
        })
        .await;
        // Deliveries go around it.
        expect_all(&receiver, "/a", 3).await;
        expect_all(&receiver, "/b", 3).await;
        servers("up", server);
        until("the queue is well again", async || !status(&flare).await.contains("\"healthy\":false")).await;
        put_all(&flare, 4).await;
        expect_all(&receiver, "/a", 4).await;
        expect_all(&receiver, "/b", 4).await;
    }
    receiver.expect_never_backwards();
    assert!(flare.stop().await.success());
}

/// Does something to a server of `dev/servers`.
fn servers(command: &str, name: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../dev/servers");
    let done = Command::new(script).args([command, name]).stdout(Stdio::null()).status().unwrap();
    assert!(done.success(), "dev/servers {command} {name}");
}

#[tokio::test]
async fn nothing_is_lost_through_rabbitmq() {
    nothing_is_lost(rabbitmq("rabbitmq"), "rabbitmq").await;
}

#[tokio::test]
async fn nothing_is_lost_through_nats() {
    nothing_is_lost(nats(), "nats").await;
}

/// The emulator forgets all queues when it is killed: they are made again, and what was in them is pushed again.
#[tokio::test]
async fn nothing_is_lost_through_sqs() {
    nothing_is_lost(sqs(), "sqs").await;
}

#[tokio::test]
async fn subscriptions_may_share_the_queue_of_their_slot() {
    let config = task("rabbitmq", "slots", |url| format!("url = \"{url}\"\nqueues = \"slot\"\n[domain]\nslots = 2"));
    let Some(config) = config else { return };
    let receiver = Receiver::start().await;
    let flare = Flare::configured(&config).await;
    let resource = flare.resource(USERS).await;
    for path in ["/a", "/b", "/c", "/d"] {
        flare.subscribe(&resource, &path[1..], &receiver.url(path)).await;
    }
    for revision in 1..=3 {
        put_all(&flare, revision).await;
    }
    for path in ["/a", "/b", "/c", "/d"] {
        expect_all(&receiver, path, 3).await;
    }
    receiver.expect_never_backwards();
}

/// As teams run it: one database, one broker, and a second node that takes over.
#[tokio::test]
async fn a_second_node_takes_over_on_mongodb_with_rabbitmq() {
    let (Some(repository), Some(task)) = (mongodb("FLARE_TEST_MONGODB_URL", "with-rabbitmq"), rabbitmq("second"))
    else {
        return;
    };
    let task = task.split("[node]").next().unwrap();
    let config = format!("{repository}{task}[http]\ntimeout = \"20s\"\n");
    let receiver = Receiver::start().await;
    let mut first = Flare::configured(&config).await;
    let resource = first.resource(USERS).await;
    let subscription = first.subscribe(&resource, "a", &receiver.url("/a")).await;
    put_all(&first, 1).await;
    expect_all(&receiver, "/a", 1).await;
    let second = Flare::configured(&config).await;
    put_all(&second, 2).await;
    first.kill().await;
    put_all(&second, 3).await;
    expect_all(&receiver, "/a", 3).await;
    receiver.expect_never_backwards();
    let deleted = second.client().send(Method::DELETE, &subscription.path, &[], "").await.unwrap();
    assert_eq!(deleted.status, 204, "{}", deleted.text());
}
