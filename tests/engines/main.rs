//! The whole program on data that a server keeps: the promises hold there too. The servers are those of `dev/servers`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a surprise in a test is a failure")]

mod queues;
mod roles;

use std::time::Duration;

use flare_contract::server;
use flare_tests::{Flare, Receiver, within};
use http::Method;

const USERS: &str = "http://api.test/users/{id}";
const DOCUMENTS: usize = 20;

fn user(number: usize) -> String {
    format!("http://api.test/users/{number}")
}

/// The sections `repository`, with a namespace that nothing else uses, and `node`; none, with a word, without a server.
fn repository(name: &str, variable: &str, section: impl Fn(&str, &str) -> String) -> Option<String> {
    let url = server::url(variable)?;
    let namespace = format!("test_{}_{}", std::process::id(), name.replace('-', "_"));
    Some(format!("[repository]\n{}\n[node]\nlease = \"2s\"\n", section(&url, &namespace)))
}

fn postgres(name: &str) -> Option<String> {
    repository(name, "FLARE_TEST_POSTGRES_URL", |url, namespace| {
        format!("engine = \"postgres\"\nurl = \"{url}\"\nschema = \"{namespace}\"")
    })
}

fn mongodb(variable: &str, name: &str) -> Option<String> {
    repository(name, variable, |url, namespace| {
        format!("engine = \"mongodb\"\nurl = \"{url}\"\ndatabase = \"{namespace}\"")
    })
}

fn cassandra() -> Option<String> {
    repository("cassandra", "FLARE_TEST_CASSANDRA_URL", |url, namespace| {
        let login =
            url.trim_start_matches("cassandra://").rsplit_once('@').and_then(|(login, _)| login.split_once(':'));
        let (host, (user, password)) = (server::host(url), login.unwrap_or_default());
        format!(
            "engine = \"cassandra\"\naddrs = [\"{host}\"]\nkeyspace = \"{namespace}\"\nusername = \"{user}\"\n\
             password = \"{password}\"\nconsistency = \"ONE\"\ntimeout = \"20s\""
        )
    })
}

/// Delivers, goes on after kill -9 without a loss and in order, and lets a second node wait for its turn.
async fn the_promises_hold(repository: Option<String>) {
    let Some(config) = repository else { return };
    let config = format!("{config}[http]\ntimeout = \"20s\"\n");
    let receiver = Receiver::start().await;
    let mut flare = Flare::stopped(&config);
    assert!(!flare.migrate().await.contains("nothing to do"));
    assert!(flare.migrate().await.contains("nothing to do"));
    flare.start_again().await;
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    for number in 0..DOCUMENTS {
        flare.put(&user(number), 1).await;
    }
    receiver.wait("all are told", |records| records.documents("/a") == DOCUMENTS).await;

    for number in 0..DOCUMENTS {
        flare.put(&user(number), 2).await;
    }
    flare.kill().await;
    flare.start_again().await;
    for number in 0..DOCUMENTS {
        receiver.wait_revision("/a", &user(number), 2).await;
        assert_eq!(flare.revision(&user(number)).await, 2);
    }

    let second = Flare::configured(&config).await;
    within("the second node waits", async {
        while !second.log().contains("another node works on the same data") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    flare.stop().await;
    roles::works(&second).await;
    second.put(&user(1), 3).await;
    receiver.wait_revision("/a", &user(1), 3).await;
    receiver.expect_never_backwards();
    let status = second.client().send(Method::GET, "/status", &[], "").await.unwrap();
    assert!(status.text().contains("\"healthy\":true"), "{}", status.text());
}

#[tokio::test]
async fn the_promises_hold_on_postgres() {
    the_promises_hold(postgres("postgres")).await;
}

#[tokio::test]
async fn the_promises_hold_on_a_replica_set_of_mongodb() {
    the_promises_hold(mongodb("FLARE_TEST_MONGODB_URL", "mongodb")).await;
}

#[tokio::test]
async fn the_promises_hold_on_one_server_of_mongodb() {
    the_promises_hold(mongodb("FLARE_TEST_MONGODB_STANDALONE_URL", "mongodb-standalone")).await;
}

#[tokio::test]
async fn the_promises_hold_on_cassandra() {
    the_promises_hold(cassandra()).await;
}
