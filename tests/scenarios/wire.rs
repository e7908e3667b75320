//! What a delivery looks like on the wire: CloudEvents, the handshake, rotated secrets, key pairs, traces. The public
//! Python libraries check the same in `tests/python`.

use std::time::{Duration, SystemTime};

use flare_tests::{Delivery, Flare, Receiver, Reply, Subscription, is_signed_by, is_signed_by_pair, quick_retries};
use http::Method;
use serde_json::{Value as Json, json};

use crate::{USERS, user};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn with(mut base: Json, members: &Json) -> Json {
    base.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    base
}

fn all(receiver: &Receiver, path: &str) -> Vec<Delivery> {
    receiver.records().at(path).cloned().collect()
}

#[tokio::test]
async fn a_structured_event_keeps_its_id_over_retries() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let members = with(quick_retries(), &json!({"content": {"format": "cloudevents"}, "data": {"user": "{id}"}}));
    let subscription = flare.subscribe_with(&resource, "a", &receiver.url("/a"), &members).await;
    receiver.reply_in_turn("/a", [Reply::Status(500)]);
    flare.put(&user(1), 1).await;
    receiver.wait("two attempts", |records| records.count("/a") == 2).await;
    flare.client().delete_document(&user(1)).await.expect(202);
    receiver.wait("the delete", |records| records.count("/a") == 3).await;

    let deliveries = all(&receiver, "/a");
    assert!(deliveries.iter().all(|delivery| is_signed_by(&subscription.secret, delivery)));
    let events: Vec<Json> = deliveries.iter().map(|delivery| serde_json::from_slice(&delivery.body).unwrap()).collect();
    for (delivery, event) in deliveries.iter().zip(&events) {
        assert_eq!(delivery.header("content-type"), "application/cloudevents+json; charset=utf-8");
        assert_eq!(event["id"], delivery.header("webhook-id"));
        assert_eq!((&event["specversion"], &event["subject"]), (&json!("1.0"), &json!(user(1))));
        assert_eq!(event["source"], "http://api.test/users/");
        assert_eq!(event["flaredata"], r#"{"user":"1"}"#);
    }
    assert_eq!(events[0], events[1], "an attempt is the same event");
    assert_eq!(events[0]["type"], "flare.document.created");
    assert_eq!(events[0]["data"], json!({"revision": 1, "name": "sample"}));
    assert_eq!((&events[2]["type"], events[2].get("data")), (&json!("flare.document.deleted"), None));
    assert_ne!(events[0]["id"], events[2]["id"]);
}

#[tokio::test]
async fn a_binary_event_is_the_document_with_headers() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let members = json!({"content": {"format": "cloudevents-binary"}});
    flare.subscribe_with(&resource, "a", &receiver.url("/a"), &members).await;
    flare.put("http://api.test/users/a%20b", 1).await;
    receiver.wait("the delivery", |records| records.count("/a") == 1).await;
    let delivery = &all(&receiver, "/a")[0];
    assert_eq!(serde_json::from_slice::<Json>(&delivery.body).unwrap(), json!({"revision": 1, "name": "sample"}));
    assert_eq!(delivery.header("content-type"), "application/json");
    assert_eq!(delivery.header("ce-id"), delivery.header("webhook-id"));
    assert_eq!(delivery.header("ce-type"), "flare.document.created");
    assert_eq!(delivery.header("ce-subject"), "http://api.test/users/a%2520b");
    assert_eq!(delivery.header("ce-flarerevision"), "1");
}

#[tokio::test]
async fn nothing_is_delivered_before_the_endpoint_agrees() {
    let (receiver, mut flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let members = with(quick_retries(), &json!({"endpoint": {"handshake": true}}));
    let allowed = |origin: &str| Reply::Header(200, "webhook-allowed-origin", origin.to_owned());
    // An answer without the header is no consent, nor is one for somebody else.
    receiver.reply_in_turn("/a", [Reply::Status(200), allowed("other"), allowed("flare")]);
    let subscription = flare.subscribe_with(&resource, "a", &receiver.url("/a"), &members).await;
    flare.put(&user(1), 1).await;
    receiver.wait_revision("/a", &user(1), 1).await;
    flare.put(&user(2), 1).await;
    receiver.wait_revision("/a", &user(2), 1).await;
    let methods = |receiver: &Receiver| all(receiver, "/a").into_iter().map(|it| it.method).collect::<Vec<_>>();
    let (ask, push) = (Method::OPTIONS, Method::POST);
    assert_eq!(methods(&receiver), [&ask, &ask, &ask, &push, &push].map(Clone::clone));
    assert!(all(&receiver, "/a").iter().all(|delivery| delivery.header("webhook-request-origin") == "flare"));

    // A change and a start ask anew.
    let shown = flare.client().get(&subscription.path).await.expect(200).json();
    let changed = json!({"name": "b", "endpoint": shown["endpoint"], "delivery": shown["delivery"]});
    receiver.reply_in_turn("/a", [allowed("*")]);
    flare.client().put(&subscription.path, &changed).await.expect(200);
    flare.put(&user(3), 1).await;
    receiver.wait_revision("/a", &user(3), 1).await;
    flare.kill().await;
    receiver.reply_in_turn("/a", [allowed("*")]);
    flare.start_again().await;
    flare.put(&user(4), 1).await;
    receiver.wait_revision("/a", &user(4), 1).await;
    assert_eq!(methods(&receiver).iter().filter(|method| **method == ask).count(), 5);
}

async fn rotate(flare: &Flare, subscription: &Subscription, body: Json) -> Json {
    flare.client().post(&format!("{}/secret/rotate", subscription.path), &body).await.expect(200).json()
}

#[tokio::test]
async fn both_secrets_sign_while_a_rotation_overlaps() {
    let (receiver, mut flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let subscription = flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    let rotated = rotate(&flare, &subscription, json!({})).await;
    let new = rotated["secret"].as_str().unwrap();
    flare.kill().await;
    flare.start_again().await;
    flare.put(&user(1), 1).await;
    receiver.wait_revision("/a", &user(1), 1).await;
    let delivery = &all(&receiver, "/a")[0];
    assert!(is_signed_by(new, delivery) && is_signed_by(&subscription.secret, delivery));
    assert_eq!(delivery.header("webhook-signature").split(' ').count(), 2);
    let shown = flare.client().get(&subscription.path).await.expect(200);
    assert!(!shown.text().contains("whsec_"), "{}", shown.text());
    assert_eq!(shown.json()["previousSecretUntil"], rotated["previousSecretUntil"]);

    let third = rotate(&flare, &subscription, json!({"overlap": "10ms"})).await["secret"].as_str().unwrap().to_owned();
    flare_tests::within("the overlap ends", async {
        while flare.client().get(&subscription.path).await.json().get("previousSecretUntil").is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    flare.put(&user(1), 2).await;
    receiver.wait_revision("/a", &user(1), 2).await;
    let delivery = &all(&receiver, "/a")[1];
    assert!(is_signed_by(&third, delivery) && !is_signed_by(new, delivery));
    assert!(!flare.log().contains(third.trim_start_matches("whsec_")), "the log shows the secret");
}

#[tokio::test]
async fn a_key_pair_signs_and_takes_over_from_a_shared_secret() {
    let (receiver, mut flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let subscription = flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    let rotated = rotate(&flare, &subscription, json!({"signature": "v1a"})).await;
    let first = rotated["publicKey"].as_str().unwrap();
    assert_eq!(rotated.get("secret"), None, "the private key is nobody's business");
    flare.put(&user(1), 1).await;
    receiver.wait_revision("/a", &user(1), 1).await;
    let delivery = all(&receiver, "/a").pop().unwrap();
    assert!(is_signed_by_pair(first, &delivery) && is_signed_by(&subscription.secret, &delivery));

    let rotated = rotate(&flare, &subscription, json!({"overlap": "1h"})).await;
    let second = rotated["publicKey"].as_str().unwrap();
    flare.kill().await;
    flare.start_again().await;
    flare.put(&user(1), 2).await;
    receiver.wait_revision("/a", &user(1), 2).await;
    let mut delivery = all(&receiver, "/a").pop().unwrap();
    assert!(is_signed_by_pair(second, &delivery) && is_signed_by_pair(first, &delivery));
    assert!(!is_signed_by(&subscription.secret, &delivery), "only the last secret overlaps");
    assert!(delivery.header("webhook-signature").split(' ').all(|signature| signature.starts_with("v1a,")));
    delivery.body = String::from_utf8_lossy(&delivery.body).replace("sample", "simple").into();
    assert!(!is_signed_by_pair(second, &delivery), "a changed body does not fit");
}

#[tokio::test]
async fn the_trace_of_a_write_goes_with_its_deliveries() {
    let (receiver, mut flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    flare.subscribe_with(&resource, "a", &receiver.url("/a"), &quick_retries()).await;
    let write = async |flare: &Flare, method: Method, path: &str, body: Json, parent: &str| {
        let headers = [("content-type", "application/json"), ("traceparent", parent), ("tracestate", "a=1,b=2")];
        flare.client().send(method, path, &headers, body.to_string()).await.unwrap().expect(202);
    };
    // It survives a crash, with the change that waits for its next attempt.
    receiver.reply("/a", Reply::Status(500));
    write(&flare, Method::PUT, &format!("/documents/{}", user(1)), json!({"revision": 1}), TRACE).await;
    receiver.wait("an attempt", |records| records.count("/a") >= 1).await;
    flare.kill().await;
    receiver.reply("/a", Reply::Status(200));
    let before = receiver.records().count("/a");
    flare.start_again().await;
    receiver.wait("another attempt", |records| records.count("/a") > before).await;
    for delivery in all(&receiver, "/a") {
        assert_eq!((delivery.header("traceparent"), delivery.header("tracestate")), (TRACE, "a=1,b=2"));
    }
    let items = json!([2, 3].map(|number| json!({"id": user(number), "document": {"revision": 1}})));
    write(&flare, Method::POST, "/documents", items, TRACE).await;
    for number in [2, 3] {
        receiver.wait_revision("/a", &user(number), 1).await;
    }
    assert!(all(&receiver, "/a").iter().all(|delivery| delivery.header("traceparent") == TRACE));

    write(&flare, Method::PUT, &format!("/documents/{}", user(1)), json!({"revision": 2}), "00-wrong").await;
    receiver.wait_revision("/a", &user(1), 2).await;
    flare.put(&user(1), 3).await;
    receiver.wait_revision("/a", &user(1), 3).await;
    for delivery in all(&receiver, "/a").iter().rev().take(2) {
        assert!(!delivery.headers.contains_key("traceparent") && !delivery.headers.contains_key("tracestate"));
    }
}

#[tokio::test]
async fn a_client_may_ask_for_time_until_a_date() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    flare.subscribe_with(&resource, "a", &receiver.url("/a"), &quick_retries()).await;
    let date = SystemTime::now() + Duration::from_secs(3);
    let past = SystemTime::now() - Duration::from_secs(3600);
    let busy = |at| Reply::Header(503, "retry-after", httpdate::fmt_http_date(at));
    receiver.reply_in_turn("/a", [busy(past), busy(date)]);
    flare.put(&user(1), 1).await;
    receiver.wait("three attempts", |records| records.count("/a") == 3).await;
    // Dates are whole seconds, so up to one of them is lost.
    assert!(SystemTime::now() >= date - Duration::from_secs(1));
    let attempts = all(&receiver, "/a");
    let (first, second) = (attempts[1].at - attempts[0].at, attempts[2].at - attempts[1].at);
    assert!(first < Duration::from_secs(1), "a date in the past asks for nothing, but it took {first:?}");
    assert!(second >= Duration::from_secs(1), "{second:?}");
}
