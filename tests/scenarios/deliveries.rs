//! What a subscription says about where and how it is told.

use flare_tests::{Flare, Receiver, Reply, quick_retries};
use http::Method;
use serde_json::json;

use crate::{USERS, user};

#[tokio::test]
async fn a_delivery_is_an_envelope_with_the_document_as_it_was_published() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let members = json!({ "data": { "service": "user", "id": "{id}", "number": 7 } });
    flare.subscribe_with(&resource, "a", &receiver.url("/a"), &members).await;
    let document = json!({ "revision": 3, "name": "Zoë \"the\" first", "nested": { "list": [1, 2.5, null] } });
    flare.client().put_document(&user(1), &document).await.expect(202);
    receiver.wait_revision("/a", &user(1), 3).await;

    let delivery = receiver.records().deliveries[0].clone();
    assert_eq!(delivery.method, Method::POST);
    assert_eq!(delivery.header("content-type"), "application/json");
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        delivery.header(name);
    }
    let envelope = delivery.envelope();
    assert_eq!((envelope.id.as_str(), envelope.action.as_str()), (user(1).as_str(), "create"));
    assert_eq!(envelope.revision, json!(3));
    assert_eq!(envelope.data, json!({ "service": "user", "id": "1", "number": 7 }));
    assert_eq!(envelope.document, document);
    assert!(envelope.updated_at.ends_with('Z'), "{}", envelope.updated_at);
}

#[tokio::test]
async fn endpoint_headers_and_actions_are_as_the_subscription_says() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource("http://api.test/users/{user}/orders/{order}").await;
    let members = json!({ "endpoint": {
        "method": "put",
        "headers": { "Authorization": ["Basic eDp5"], "X-Two": ["1", "2"] },
        "actions": { "delete": { "method": "delete", "url": receiver.url("/gone/{order}") } },
    } });
    flare.subscribe_with(&resource, "a", &receiver.url("/{order}/of/{user}?from=flare"), &members).await;
    let url = "http://api.test/users/ann/orders/12";
    flare.put(url, 1).await;
    receiver.wait("the order", |records| records.count("/12/of/ann?from=flare") == 1).await;
    flare.client().delete_document(url).await.expect(202);
    receiver.wait("the deletion", |records| records.count("/gone/12") == 1).await;

    let records = receiver.records();
    let (created, deleted) = (&records.deliveries[0], &records.deliveries[1]);
    assert_eq!((&created.method, &deleted.method), (&Method::PUT, &Method::DELETE));
    assert_eq!(created.header("authorization"), "Basic eDp5");
    assert_eq!(created.headers.get_all("x-two").iter().count(), 2);
}

#[tokio::test]
async fn a_bare_document_comes_byte_for_byte() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let bare = json!({ "content": { "envelope": false } });
    flare.subscribe_with(&resource, "a", &receiver.url("/a"), &bare).await;
    let document = r#"{ "revision" : 1,  "price": 1.10, "big": 12345678901234567890123 }"#;
    let path = format!("/documents/{}", user(1));
    flare.client().send(Method::PUT, &path, &[], document).await.unwrap().expect(202);
    receiver.wait("the document", |records| records.count("/a") == 1).await;
    assert_eq!(receiver.records().deliveries[0].body, document);
}

#[tokio::test]
async fn news_can_come_without_the_document() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let news = json!({ "content": { "document": false } });
    flare.subscribe_with(&resource, "a", &receiver.url("/a"), &news).await;
    flare.put(&user(1), 1).await;
    receiver.wait_revision("/a", &user(1), 1).await;
    assert!(receiver.records().deliveries[0].envelope().document.is_null());
}

#[tokio::test]
async fn success_and_discard_are_what_the_subscription_says() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let mut members = quick_retries();
    members["delivery"]["success"] = json!([418]);
    members["delivery"]["discard"] = json!([400]);
    flare.subscribe_with(&resource, "a", &receiver.url("/a/{id}"), &members).await;
    receiver.reply_in_turn("/a/1", [200, 201, 418].map(Reply::Status));
    receiver.reply("/a/2", Reply::Status(400));
    flare.put(&user(1), 1).await;
    receiver.wait("two failures and a success", |records| records.count("/a/1") == 3).await;
    flare.put(&user(2), 1).await;
    receiver.wait_revision("/a/2", &user(2), 1).await;
    // A revision that was given up does not hold the next one.
    flare.put(&user(2), 2).await;
    receiver.wait_revision("/a/2", &user(2), 2).await;
    assert_eq!(receiver.records().revisions("/a/2", &user(2)), [1, 2]);
    assert_eq!(receiver.records().count("/a/1"), 3);
}

#[tokio::test]
async fn a_document_that_was_given_up_is_told_again_at_its_next_revision() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let two_retries = json!({ "delivery": { "retry": {
        "minDelayTarget": 1, "maxDelayTarget": 1, "numRetries": 2, "numNoDelayRetries": 2,
        "numMinDelayRetries": 0, "numMaxDelayRetries": 0,
    } } });
    flare.subscribe_with(&resource, "a", &receiver.url("/a/{id}"), &two_retries).await;
    receiver.reply_in_turn("/a/1", [500, 500, 500].map(Reply::Status));
    flare.put(&user(1), 1).await;
    receiver.wait("three attempts", |records| records.count("/a/1") == 3).await;
    for number in 2..10 {
        flare.put(&user(number), 1).await;
        receiver.wait_revision(&format!("/a/{number}"), &user(number), 1).await;
    }
    flare.put(&user(1), 2).await;
    receiver.wait_revision("/a/1", &user(1), 2).await;
    // It never had revision 1, so revision 2 is a create.
    let story = receiver.records().story("/a/1", &user(1));
    let create = |revision| ("create".to_owned(), revision);
    assert_eq!(story, [create(1), create(1), create(1), create(2)]);
}

#[tokio::test]
async fn a_redirect_is_a_failure_and_is_not_followed() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    flare.subscribe_with(&resource, "a", &receiver.url("/a"), &quick_retries()).await;
    receiver.reply_in_turn("/a", [307, 301].map(|status| Reply::Header(status, "location", receiver.url("/b"))));
    flare.put(&user(1), 1).await;
    receiver.wait("the attempt that succeeds", |records| records.count("/a") == 3).await;
    assert_eq!(receiver.records().count("/b"), 0);
}

#[tokio::test]
async fn a_deleted_subscription_gets_nothing_more() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let gone = flare.subscribe(&resource, "gone", &receiver.url("/gone")).await;
    flare.subscribe(&resource, "stays", &receiver.url("/stays")).await;
    flare.put(&user(1), 1).await;
    receiver.wait("both", |records| records.count("/gone") == 1 && records.count("/stays") == 1).await;
    flare.client().delete(&gone.path).await;
    flare.client().get(&gone.path).await.expect(404);
    for revision in 2..10 {
        flare.put(&user(1), revision).await;
        receiver.wait_revision("/stays", &user(1), revision).await;
    }
    assert_eq!(receiver.records().count("/gone"), 1);
}

#[tokio::test]
async fn a_document_without_a_resource_is_not_taken() {
    let flare = Flare::start().await;
    flare.resource(USERS).await;
    let elsewhere = flare.client().put_document("http://api.test/orders/1", &json!({ "revision": 1 })).await;
    elsewhere.expect_error(404, "resource.not-found");
    flare.client().put_document(&user(1), &json!({ "name": "x" })).await.expect(422);
    flare.client().put_document(&user(1), &json!({ "revision": "x" })).await.expect(422);
}
