//! Several processes on the same data: some answer, one works, others wait for their turn.

use std::time::Duration;

use flare_contract::proxy::Proxy;
use flare_tests::{Flare, Gate, Receiver, Reply, Subscription, quick_retries, within};
use http::Method;
use serde_json::{Value, json};

use crate::{DOCUMENTS, USERS, cassandra, mongodb, postgres, user};

const POLL: Duration = Duration::from_millis(20);

/// The configuration with these roles.
fn with_roles(config: &str, roles: &str) -> String {
    config.replace("[node]\n", &format!("[node]\nroles = [{roles}]\n"))
}

async fn status(flare: &Flare) -> Value {
    flare.client().get("/status").await.expect(200).json()
}

/// Waits until a part of the status is so.
async fn until(flare: &Flare, pointer: &str, expected: &str) {
    within(&format!("{pointer} is {expected}"), async {
        while status(flare).await.pointer(pointer).and_then(Value::as_str) != Some(expected) {
            tokio::time::sleep(POLL).await;
        }
    })
    .await;
}

pub async fn works(flare: &Flare) {
    until(flare, "/node/work", "works").await;
}

async fn pull(flare: &Flare, subscription: &Subscription, query: &str) -> Vec<Value> {
    let answer = flare.client().get(&format!("{}/messages?{query}", subscription.path)).await.expect(200);
    answer.json()["messages"].as_array().unwrap().clone()
}

/// One process answers, another one delivers.
async fn roles_are_divided_among_processes(config: Option<String>) {
    let Some(config) = config else { return };
    let receiver = Receiver::start().await;
    let api = Flare::configured(&with_roles(&config, "\"api\"")).await;
    let resource = api.resource(USERS).await;
    let subscription = api.subscribe(&resource, "a", &receiver.url("/a")).await;
    let passive = api.subscribe_with(&resource, "p", &receiver.url("/p"), &json!({ "mode": "passive" })).await;
    api.put(&user(0), 1).await;
    let absent = api.client().get(&format!("{}/lag", subscription.path)).await.expect_error(503, "worker.absent");
    assert_eq!(absent.header("retry-after"), Some("1"));
    assert!(api.is_ready().await, "it can write, whoever works");
    assert!(api.client().get(&subscription.path).await.expect(200).json()["status"] == "active");

    let worker = Flare::configured(&with_roles(&config, "\"worker\"")).await;
    works(&worker).await;
    let told = worker.client().get("/resources").await.expect_error(421, "node.no-api");
    assert!(told.text().contains("role \\\"api\\\""), "{}", told.text());
    let worker_id = status(&worker).await["node"]["id"].as_str().unwrap().to_owned();
    until(&api, "/worker/id", &worker_id).await;
    let shown = status(&api).await;
    assert_eq!((&shown["node"]["roles"], &shown["node"]["work"]), (&json!(["api"]), &json!("stands-by")));
    assert_eq!(shown["worker"]["address"], format!("http://{}", worker.addr()));
    assert_eq!(shown["worker"]["epoch"], 1);

    receiver.wait_revision("/a", &user(0), 1).await;
    for number in 0..DOCUMENTS {
        api.put(&user(number), 2).await;
    }
    for number in 0..DOCUMENTS {
        receiver.wait_revision("/a", &user(number), 2).await;
    }
    steer_through(&api, &receiver, &resource, &subscription, &passive).await;

    // What is not a secret of the worker opens nothing, and what is sent on is not sent on again.
    for flare in [&api, &worker] {
        let forged = flare.client().send(Method::GET, "/status", &[("flare-forwarded", "guess")], "").await.unwrap();
        forged.expect_error(401, "request.unauthorized");
    }
    receiver.expect_never_backwards();
}

/// What only the worker can do, asked of a node that answers.
async fn steer_through(
    api: &Flare,
    receiver: &Receiver,
    resource: &str,
    subscription: &Subscription,
    passive: &Subscription,
) {
    let client = api.client();
    let at = |subscription: &Subscription, rest: &str| format!("{}/{rest}", subscription.path);
    let tested = client.post(&at(subscription, "test"), &json!({})).await.expect(200).json();
    assert_eq!(tested["delivered"], true, "{tested}");
    assert_eq!(client.post(&at(subscription, "resync"), &json!({})).await.expect(200).json()["repaired"], 0);
    within("nothing is behind", async {
        while client.get(&at(subscription, "lag")).await.expect(200).json()["documents"] != 0 {
            tokio::time::sleep(POLL).await;
        }
    })
    .await;
    let attempts = client.get(&at(subscription, "attempts?limit=1000")).await.expect(200).json();
    assert!(attempts["attempts"].as_array().unwrap().len() >= DOCUMENTS, "{attempts}");

    // A new subscription is known to the worker at once, also before it has heard of it by itself.
    let fresh = api.subscribe_with(resource, "q", &receiver.url("/q"), &json!({ "mode": "passive" })).await;
    assert!(pull(api, &fresh, "").await.is_empty());
    let waiting = pull(api, &fresh, "wait=20s");
    let writing = async {
        tokio::time::sleep(POLL).await;
        api.put(&user(1), 3).await;
    };
    let (woken, ()) = tokio::join!(waiting, writing);
    assert_eq!(woken[0]["id"], user(1));

    let messages = pull(api, passive, "limit=1000&wait=5s").await;
    assert_eq!(messages.len(), DOCUMENTS);
    let receipts: Vec<_> = messages.iter().map(|message| message["receipt"].clone()).collect();
    let settled = client.post(&at(passive, "messages/extend"), &json!({ "receipts": receipts, "lease": "1m" })).await;
    assert_eq!(settled.expect(200).json()["refused"], json!([]));
    client.post(&at(passive, "messages/nack"), &json!({ "receipts": receipts[..1] })).await.expect(200);
    client.post(&at(passive, "messages/ack"), &json!({ "receipts": receipts[1..] })).await.expect(200);
    let again = pull(api, passive, "limit=1000&wait=5s").await;
    assert_eq!(again.len(), 1);
    client.post(&at(passive, "messages/ack"), &json!({ "receipts": [again[0]["receipt"]] })).await.expect(200);
    assert_eq!(client.post(&at(passive, "demand"), &json!({ "quantity": 2 })).await.expect(200).json()["left"], 2);
    api.put(&user(2), 3).await;
    receiver.wait_revision("/p", &user(2), 3).await;
    within("the demand is counted", async {
        while client.get(&at(passive, "demand")).await.expect(200).json()["left"] != 1 {
            tokio::time::sleep(POLL).await;
        }
    })
    .await;

    let told = receiver.records().count("/a");
    client.post(&at(subscription, "replay"), &json!({ "from": "all" })).await.expect(202);
    receiver.wait("all are told again", |records| records.count("/a") >= told + DOCUMENTS).await;

    // The worker answers from what the node that asks it knows, not from what it knew itself.
    let turned = json!({ "name": "q", "endpoint": { "url": receiver.url("/q") } });
    for (mode, status) in [("active", 409), ("passive", 200), ("active", 409)] {
        let mut turned = turned.clone();
        turned["mode"] = json!(mode);
        client.put(&fresh.path, &turned).await.expect(200);
        client.get(&at(&fresh, "demand")).await.expect(status);
    }

    // A change of the subscription takes effect for what is written next.
    let moved = json!({ "name": "a", "endpoint": { "url": receiver.url("/moved") } });
    client.put(&subscription.path, &moved).await.expect(200);
    within("the change is heard of", async {
        while receiver.records().count("/moved") == 0 {
            let revision = api.revision(&user(3)).await + 1;
            api.put(&user(3), revision).await;
            tokio::time::sleep(POLL).await;
        }
    })
    .await;
    client.delete(&fresh.path).await.expect(204);
    client.get(&at(&fresh, "lag")).await.expect_error(404, "subscription.not-found");
}

/// The one that waits serves everything meanwhile, and takes over from one that was killed.
async fn one_waits_and_takes_over(config: Option<String>) {
    let Some(config) = config else { return };
    let receiver = Receiver::start().await;
    let mut first = Flare::configured(&config).await;
    works(&first).await;
    let mut second = Flare::configured(&config).await;
    let first_id = status(&first).await["node"]["id"].as_str().unwrap().to_owned();
    until(&second, "/worker/id", &first_id).await;
    let shown = status(&second).await;
    assert_eq!((&shown["node"]["work"], &shown["node"]["roles"]), (&json!("waits"), &json!(["api", "worker"])));

    let resource = second.resource(USERS).await;
    let subscription = second.subscribe(&resource, "a", &receiver.url("/a")).await;
    for number in 0..DOCUMENTS {
        [&first, &second][number % 2].put(&user(number), 1).await;
    }
    receiver.wait("all are told", |records| records.documents("/a") == DOCUMENTS).await;
    assert_eq!(second.client().get("/resources").await.expect(200).json()["resources"][0]["id"], resource);
    second.client().get(&format!("{}/lag", subscription.path)).await.expect(200);

    receiver.reply("/a", Reply::Status(503));
    for number in 0..DOCUMENTS {
        second.put(&user(number), 2).await;
    }
    first.kill().await;
    receiver.reply("/a", Reply::Status(200));
    for number in 0..DOCUMENTS {
        second.put(&user(number), 3).await;
    }
    works(&second).await;
    assert_eq!(status(&second).await["worker"]["epoch"], 2);
    for number in 0..DOCUMENTS {
        receiver.wait_revision("/a", &user(number), 3).await;
    }
    receiver.expect_never_backwards();

    first.start_again().await;
    let second_id = status(&second).await["node"]["id"].as_str().unwrap().to_owned();
    until(&first, "/worker/id", &second_id).await;
    second.stop().await;
    works(&first).await;
    first.put(&user(0), 4).await;
    receiver.wait_revision("/a", &user(0), 4).await;
    receiver.expect_never_backwards();
}

/// The database behind a proxy, and the configuration that goes through it.
async fn behind_a_proxy(config: &str) -> (Proxy, String) {
    let from = config.find("127.0.0.1:").expect("the server is on loopback");
    let target: String = config[from..].chars().take_while(|one| one.is_ascii_digit() || ".:".contains(*one)).collect();
    let proxy = Proxy::start(&target).await;
    let config = config.replace(&target, &proxy.address().to_string());
    (proxy, config)
}

/// Nobody restarts anything, nothing is lost, and no version goes backwards.
#[tokio::test]
async fn a_database_that_is_away_for_longer_than_the_lease_is_waited_for_in_place() {
    let Some(config) = postgres("postgres-away") else { return };
    let (proxy, config) = behind_a_proxy(&config).await;
    let receiver = Receiver::start().await;
    let flare = Flare::configured(&config).await;
    works(&flare).await;
    let pid = status(&flare).await["node"]["pid"].clone();
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    for number in 0..DOCUMENTS {
        flare.put(&user(number), 1).await;
    }
    receiver.wait("all are told", |records| records.documents("/a") == DOCUMENTS).await;

    proxy.refuse(true);
    let refused = flare.client().try_put_document(&user(0), &json!({ "revision": 2 })).await.unwrap();
    refused.expect(503);
    until(&flare, "/node/work", "waits").await;
    let ready = flare.client().get("/ready").await.expect_error(503, "node.not-ready");
    assert!(ready.text().contains("postgres"), "{}", ready.text());
    let shown = status(&flare).await;
    assert_eq!((&shown["repository"]["healthy"], &shown["repository"]["engine"]), (&json!(false), &json!("postgres")));
    assert!(shown["worker"].is_null(), "{shown}");

    proxy.refuse(false);
    works(&flare).await;
    for number in 0..DOCUMENTS {
        within("the write is taken", async {
            let document = json!({ "revision": 3 });
            while flare.client().put_document(&user(number), &document).await.status != 202 {
                tokio::time::sleep(POLL).await;
            }
        })
        .await;
    }
    for number in 0..DOCUMENTS {
        receiver.wait_revision("/a", &user(number), 3).await;
    }
    receiver.expect_never_backwards();
    let shown = status(&flare).await;
    assert_eq!((&shown["node"]["pid"], &shown["worker"]["epoch"]), (&pid, &json!(2)));
}

/// Who cannot reach the database stops before anybody else begins, and takes its place in the line afterwards.
#[tokio::test]
async fn a_worker_that_is_cut_off_is_followed_by_another_and_waits_for_it() {
    let Some(config) = postgres("postgres-cut") else { return };
    let (proxy, cut) = behind_a_proxy(&config).await;
    let receiver = Receiver::start().await;
    let first = Flare::configured(&cut).await;
    works(&first).await;
    let second = Flare::configured(&config).await;
    let resource = second.resource(USERS).await;
    second.subscribe(&resource, "a", &receiver.url("/a")).await;
    for number in 0..DOCUMENTS {
        first.put(&user(number), 1).await;
    }
    receiver.wait("all are told", |records| records.documents("/a") == DOCUMENTS).await;
    // What is in flight when the worker is cut off is neither recorded nor forgotten.
    let gate = Gate::closed();
    receiver.reply("/a", Reply::Behind(gate.clone(), 200));
    for number in 0..DOCUMENTS {
        second.put(&user(number), 2).await;
    }
    receiver.wait("some are in flight", |records| records.count("/a") > DOCUMENTS).await;
    proxy.refuse(true);
    works(&second).await;
    assert_eq!(status(&first).await["node"]["work"], "waits", "it has stopped before the other has begun");
    gate.open();
    receiver.reply("/a", Reply::Status(200));
    for number in 0..DOCUMENTS {
        second.put(&user(number), 3).await;
        receiver.wait_revision("/a", &user(number), 3).await;
    }
    proxy.refuse(false);
    let second_id = status(&second).await["node"]["id"].as_str().unwrap().to_owned();
    until(&first, "/worker/id", &second_id).await;
    within("the first takes documents again", async {
        while first.client().put_document(&user(0), &json!({ "revision": 4 })).await.status != 202 {
            tokio::time::sleep(POLL).await;
        }
    })
    .await;
    receiver.wait_revision("/a", &user(0), 4).await;
    assert_eq!(status(&first).await["node"]["work"], "waits");
    receiver.expect_never_backwards();
}

/// One that slept through the end of its turn sends nothing more when it wakes up.
#[tokio::test]
async fn a_worker_that_was_suspended_is_followed_and_sends_nothing_afterwards() {
    let Some(config) = postgres("postgres-asleep") else { return };
    let receiver = Receiver::start().await;
    let first = Flare::configured(&config).await;
    works(&first).await;
    let second = Flare::configured(&config).await;
    let resource = second.resource(USERS).await;
    second.subscribe_with(&resource, "a", &receiver.url("/a"), &quick_retries()).await;
    receiver.reply("/a", Reply::Status(503));
    for number in 0..DOCUMENTS {
        second.put(&user(number), 1).await;
    }
    receiver.wait("all have failed", |records| records.documents("/a") == DOCUMENTS).await;
    // Retries are due all the time: also at the moment when it wakes up.
    first.suspend(true);
    works(&second).await;
    receiver.reply("/a", Reply::Status(200));
    for number in 0..DOCUMENTS {
        second.put(&user(number), 2).await;
        receiver.wait_revision("/a", &user(number), 2).await;
    }
    let told = receiver.records().count("/a");
    first.suspend(false);
    let second_id = status(&second).await["node"]["id"].as_str().unwrap().to_owned();
    until(&first, "/worker/id", &second_id).await;
    until(&first, "/node/work", "waits").await;
    // An endpoint that only fails is called once at a time: no more than that was under way.
    assert!(receiver.records().count("/a") <= told + 1, "{} after {told}", receiver.records().count("/a"));
    receiver.expect_never_backwards();
}

#[tokio::test]
async fn a_node_that_is_started_while_the_database_is_away_starts_when_it_is_there() {
    let Some(config) = postgres("postgres-late") else { return };
    let (proxy, config) = behind_a_proxy(&config).await;
    proxy.refuse(true);
    let mut flare = Flare::stopped(&config);
    flare.spawn();
    let answered = within("it listens", async {
        loop {
            match flare.client().send(Method::GET, "/resources", &[], "").await {
                Ok(answer) if answer.text().contains("cannot be reached") => return answer,
                _ => tokio::time::sleep(POLL).await,
            }
        }
    })
    .await;
    assert_eq!((answered.status, answered.header("retry-after")), (503, Some("1")));
    assert_eq!(answered.json()["error"]["code"], "node.not-ready");
    flare.client().get("/health").await.expect(200);
    proxy.refuse(false);
    within("it is ready", async {
        while !flare.is_ready().await {
            tokio::time::sleep(POLL).await;
        }
    })
    .await;
    flare.resource(USERS).await;
    works(&flare).await;
}

/// The configuration with another login; `told` is in what the program says when it ends.
async fn a_login_is_refused(config: Option<String>, login: (&str, &str), told: &str) {
    let Some(config) = config else { return };
    assert!(config.contains(login.0), "the login of the tests is another one");
    let mut flare = Flare::stopped(&config.replace(login.0, login.1));
    flare.spawn();
    assert!(!flare.ended().await.success());
    assert!(flare.log().contains(told) && !flare.log().contains("wrong-hush"), "{}", flare.log());
}

#[tokio::test]
async fn a_login_that_postgres_refuses_is_told_at_once() {
    let login = ("postgres://postgres@", "postgres://nobody_of_this_name@");
    a_login_is_refused(postgres("postgres-login"), login, "nobody_of_this_name").await;
}

#[tokio::test]
async fn a_login_that_mongodb_refuses_is_told_at_once() {
    let config = mongodb("FLARE_TEST_MONGODB_STANDALONE_URL", "mongodb-login");
    a_login_is_refused(config, (":secret@", ":wrong-hush@"), "refuses the user flare: check").await;
}

#[tokio::test]
async fn a_login_that_cassandra_refuses_is_told_at_once() {
    let login = ("password = \"cassandra\"", "password = \"wrong-hush\"");
    a_login_is_refused(cassandra(), login, "refuses the user cassandra: check").await;
}

#[tokio::test]
async fn roles_are_divided_among_processes_on_postgres() {
    roles_are_divided_among_processes(postgres("postgres-roles")).await;
}

#[tokio::test]
async fn roles_are_divided_among_processes_on_mongodb() {
    roles_are_divided_among_processes(mongodb("FLARE_TEST_MONGODB_URL", "mongodb-roles")).await;
}

#[tokio::test]
async fn one_waits_and_takes_over_on_postgres() {
    one_waits_and_takes_over(postgres("postgres-turns")).await;
}

#[tokio::test]
async fn one_waits_and_takes_over_on_mongodb() {
    one_waits_and_takes_over(mongodb("FLARE_TEST_MONGODB_URL", "mongodb-turns")).await;
}
