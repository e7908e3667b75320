use std::sync::Arc;

use axum::body::Body;
use flare_core::egress::Egress;
use serde_json::{Value, json};

use super::lab::{Answer, Lab, request};
use crate::ApiSettings;

fn full() -> Value {
    json!({
        "name": "wishlist",
        "mode": "active",
        "endpoint": {
            "url": "https://api.company.com/wishlist/{id}", "method": "post",
            "headers": { "Authorization": ["Basic abc"], "X-Many": ["1", "2"] },
            "actions": { "delete": { "method": "DELETE" }, "create": { "url": "https://other/{id}?a={id}" } },
            "handshake": true
        },
        "delivery": {
            "success": [200, 201], "discard": [500], "timeout": "1500ms", "concurrency": 4,
            "retry": {
                "minDelayTarget": 2, "maxDelayTarget": 20, "numRetries": 10, "numNoDelayRetries": 1,
                "numMinDelayRetries": 2, "numMaxDelayRetries": 3, "backoffFunction": "linear"
            }
        },
        "content": { "document": true, "envelope": false, "format": "flare" },
        "data": { "service": "user", "id": "{id}", "nested": { "a": [1, 2.5, null] } },
        "filter": "current.quantity != previous.quantity",
        "revision": "last",
        "snapshot": false,
        "signature": "v1",
        "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    })
}

async fn create(lab: &Lab, resource: &str, body: &Value) -> Answer {
    lab.send("POST", &format!("/resources/{resource}/subscriptions"), &body.to_string()).await
}

#[tokio::test]
async fn a_subscription_is_made_with_defaults_and_shows_its_secret_once() {
    let lab = Lab::new().await;
    let resource = lab.resource().await;
    let made = create(&lab, &resource, &json!({"name": "small", "endpoint": {"url": "http://client/hook"}})).await;
    insta::assert_snapshot!("subscription_defaults", made.shown());
    let path = made.header("location").to_owned();
    assert_eq!(path, format!("/resources/{resource}/subscriptions/{}", made.json()["id"].as_str().unwrap()));
    let mut expected = made.json();
    expected.as_object_mut().unwrap().remove("secret");
    assert_eq!(lab.get(&path).await.json(), expected);
    let list = lab.get(&format!("/resources/{resource}/subscriptions?limit=1")).await.json();
    assert_eq!(list, json!({"subscriptions": [expected], "pagination": {"limit": 1, "offset": 0, "total": 1}}));
}

#[tokio::test]
async fn a_full_subscription_comes_back_as_it_was_sent() {
    let lab = Lab::new().await;
    let resource = lab.resource().await;
    let made = create(&lab, &resource, &full()).await;
    insta::assert_snapshot!("subscription_full", made.shown());
    let mut again = made.json();
    assert_eq!(again["secret"], full()["secret"]);
    for added in ["id", "status", "createdAt", "updatedAt"] {
        again.as_object_mut().unwrap().remove(added).unwrap();
    }
    let mut expected = full();
    expected["endpoint"]["actions"]["delete"]["method"] = "delete".into();
    assert_eq!(again, expected);
}

#[tokio::test]
async fn a_put_replaces_all_but_the_secret() {
    let lab = Lab::new().await;
    let resource = lab.resource().await;
    let made = create(&lab, &resource, &full()).await;
    let path = made.header("location").to_owned();
    let small = json!({"name": "renamed", "endpoint": {"url": "http://client/hook"}});
    let updated = lab.send("PUT", &path, &small.to_string()).await;
    insta::assert_snapshot!("subscription_updated", updated.shown());
    assert_eq!(lab.get(&path).await.json(), updated.json());
    assert_eq!(updated.json()["createdAt"], made.json()["createdAt"]);
    let gone = path.replace(made.json()["id"].as_str().unwrap(), "01890000-0000-7000-8000-000000000000");
    assert_eq!(lab.send("PUT", &gone, &small.to_string()).await.error(), (404, "subscription.not-found".to_owned()));
    assert_eq!(lab.send("DELETE", &path, "").await.status, 204);
    assert_eq!(lab.send("DELETE", &path, "").await.error(), (404, "subscription.not-found".to_owned()));
    assert_eq!(lab.get(&path).await.error(), (404, "subscription.not-found".to_owned()));
}

#[tokio::test]
async fn a_repeated_creation_shows_the_same_secret() {
    let lab = Lab::new().await;
    let resource = lab.resource().await;
    let keyed = || {
        let body = json!({"name": "small", "endpoint": {"url": "http://client/hook"}}).to_string();
        let path = format!("/resources/{resource}/subscriptions");
        request("POST", &path).header("idempotency-key", "k").body(Body::from(body)).unwrap()
    };
    let first = lab.ask(keyed()).await;
    let second = lab.ask(keyed()).await;
    assert_eq!(first.json(), second.json());
    assert!(second.json()["secret"].as_str().unwrap().starts_with("whsec_"));
    assert_eq!(second.header("idempotency-replayed"), "true");
    lab.send("DELETE", first.header("location"), "").await;
    assert_eq!(lab.ask(keyed()).await.error(), (409, "subscription.conflict".to_owned()));
}

#[tokio::test]
async fn a_value_that_cannot_be_is_refused_with_the_field_the_value_and_what_is_allowed() {
    let lab = Lab::new().await;
    let resource = lab.resource().await;
    let mut refusals = String::new();
    let cases: &[(&str, Value)] = &[
        ("/name", json!(" ")),
        ("/name", json!("x".repeat(257))),
        ("/mode", json!("sometimes")),
        ("/revision", json!("some")),
        ("/content/format", json!("xml")),
        ("/signature", json!("v2")),
        ("/signature", json!("v1a")),
        ("/endpoint/url", json!("/relative")),
        ("/endpoint/url", json!("ftp://client/x")),
        ("/endpoint/url", json!("https://{id}.company.com/x")),
        ("/endpoint/url", json!("{id}")),
        ("/endpoint/url", json!("https://client/{name}")),
        ("/endpoint/url", json!("https://client/{id")),
        ("/endpoint/url", json!("https://user:pass@client/x")),
        ("/endpoint/url", json!("https://client/a b")),
        ("/endpoint/url", json!("https://client/x#y")),
        ("/endpoint/method", json!("brew")),
        ("/endpoint/headers", json!({"host": ["x"]})),
        ("/endpoint/headers", json!({"Webhook-Id": ["x"]})),
        ("/endpoint/headers", json!({"TraceParent": ["x"]})),
        ("/endpoint/headers", json!({"bad name": ["x"]})),
        ("/endpoint/headers", json!({"x-a": ["line\nbreak"]})),
        ("/endpoint/headers", json!({"x-a": []})),
        ("/endpoint/headers", json!({"x-a": ["1"], "X-A": ["2"]})),
        ("/endpoint/headers", json!({"x-a": ["x".repeat(17 << 10)]})),
        ("/endpoint/actions/create/url", json!("nowhere")),
        ("/endpoint/actions/delete/method", json!("brew")),
        ("/delivery/success", json!([200, 99])),
        ("/delivery/discard", json!([600])),
        ("/delivery/discard", json!([201])),
        ("/delivery/success", json!(vec![200; 65])),
        ("/delivery/timeout", json!("61s")),
        ("/delivery/timeout", json!("0s")),
        ("/delivery/timeout", json!("soon")),
        ("/delivery/concurrency", json!(0)),
        ("/delivery/concurrency", json!(257)),
        ("/delivery/retry/numRetries", json!(101)),
        ("/delivery/retry/backoffFunction", json!("quadratic")),
        ("/data", json!({"a": "{name}"})),
        ("/data", json!({"a": "x".repeat(17 << 10)})),
        ("/data", json!((0..65).map(|n| (n.to_string(), json!(n))).collect::<serde_json::Map<_, _>>())),
        ("/filter", json!("")),
        ("/filter", json!("current.quantity >")),
        ("/filter", json!("current.a == 1 &&\n  curent.b == 2")),
        ("/filter", json!("current.name.matches('(')")),
        ("/filter", json!("current.quantity + 1")),
        ("/filter", json!(format!("'{}' == id", "x".repeat(4096)))),
        ("/secret", json!("whsec_c2hvcnQ=")),
        ("/secret", json!("hunter2")),
        ("/secret", json!(format!("whsk_{}==", "A".repeat(86)))),
    ];
    for (place, value) in cases {
        let mut body = full();
        *body.pointer_mut(place).unwrap_or_else(|| panic!("{place}")) = value.clone();
        let answer = create(&lab, &resource, &body).await;
        assert_eq!(answer.error(), (422, "subscription.invalid".to_owned()), "{place} {value}: {answer:?}");
        refusals.push_str(&format!("{}\n", answer.detail()));
    }
    insta::assert_snapshot!("subscription_refusals", refusals);
}

#[tokio::test]
async fn a_shape_that_is_wrong_is_refused_with_its_path() {
    let lab = Lab::new().await;
    let resource = lab.resource().await;
    let check = async |change: fn(&mut Value), code: &str, detail: &str| {
        let mut body = full();
        change(&mut body);
        let answer = create(&lab, &resource, &body).await;
        assert_eq!(answer.error(), (400, code.to_owned()), "{answer:?}");
        assert_eq!(answer.detail(), detail);
    };
    check(
        |it| it["snapsot"] = json!("true"),
        "request.unknown-field",
        "snapsot is not a known field; did you mean snapshot?",
    )
    .await;
    check(
        |it| it["delivery"]["rate"] = json!({ "maxReceivesPerMinute": 1 }),
        "request.unknown-field",
        "delivery.rate.maxReceivesPerMinute is not a known field; did you mean delivery.rate.maxReceivesPerSecond?",
    )
    .await;
    check(
        |it| it["delivery"]["retry"]["numRetrys"] = json!(1),
        "request.unknown-field",
        "delivery.retry.numRetrys is not a known field; did you mean delivery.retry.numRetries?",
    )
    .await;
    check(
        |it| it["endpoint"]["actions"]["remove"] = json!({}),
        "request.unknown-field",
        "endpoint.actions.remove is not a known field; there are create, update, delete",
    )
    .await;
    check(
        |it| it["endpoint"]["headers"] = json!({"a": "b"}),
        "request.invalid-field",
        "endpoint.headers.a: invalid type: string \"b\", expected an array",
    )
    .await;
    check(
        |it| it["delivery"]["concurrency"] = json!("4"),
        "request.invalid-field",
        "delivery.concurrency: invalid type: string \"4\", expected a whole number that is not negative",
    )
    .await;
    check(|it| it["data"] = json!([1]), "request.invalid-field", "data: invalid type: sequence, expected an object")
        .await;
    check(
        |it| drop(it.as_object_mut().unwrap().remove("endpoint")),
        "request.missing-field",
        "endpoint is missing, it is required",
    )
    .await;
}

#[tokio::test]
async fn nulls_are_as_good_as_absent() {
    let lab = Lab::new().await;
    let resource = lab.resource().await;
    let body = json!({
        "name": "n",
        "endpoint": {"url": "http://c/x", "method": null, "headers": null, "actions": null, "handshake": null},
        "mode": null, "delivery": null, "content": null, "data": null, "filter": null, "revision": null, "snapshot": null,
        "secret": null, "signature": null
    });
    assert_eq!(create(&lab, &resource, &body).await.status, 201);
}

#[tokio::test]
async fn a_subscription_needs_its_resource() {
    let lab = Lab::new().await;
    let nowhere = "01890000-0000-7000-8000-000000000000";
    assert_eq!(create(&lab, nowhere, &full()).await.error(), (404, "resource.not-found".to_owned()));
    let list = lab.get(&format!("/resources/{nowhere}/subscriptions")).await;
    assert_eq!(list.error(), (404, "resource.not-found".to_owned()));
    let one = lab.get(&format!("/resources/{nowhere}/subscriptions/{nowhere}")).await;
    assert_eq!(one.error(), (404, "resource.not-found".to_owned()));
}

#[tokio::test]
async fn an_endpoint_that_deliveries_can_never_reach_is_refused() {
    let check = async |rule: Egress, url: &str, expected: Option<&str>| {
        let lab = Lab::with(ApiSettings { egress: Arc::new(rule), ..ApiSettings::default() }).await;
        let resource = lab.resource().await;
        let common = json!({"name": "n", "endpoint": {"url": url}});
        let delete = json!({"name": "n", "endpoint": {"url": "https://a.test", "actions": {"delete": {"url": url}}}});
        for (body, field) in [(common, "endpoint.url"), (delete, "endpoint.actions.delete.url")] {
            let answer = create(&lab, &resource, &body).await;
            let Some(expected) = expected else {
                assert_eq!(answer.status, 201, "{answer:?}");
                continue;
            };
            assert_eq!(answer.error(), (422, "subscription.invalid".to_owned()), "{url}: {answer:?}");
            let detail = answer.detail();
            assert!(detail.starts_with(&format!("{field}: ")) && detail.contains(expected), "{detail}");
        }
    };
    let denying = || Egress::new(Vec::new(), vec!["*.evil.test".parse().unwrap()], false);
    let beside = || Egress::new(Vec::new(), Vec::new(), true);
    check(Egress::default(), "https://hooks.test/{id}", None).await;
    check(Egress::default(), "http://hooks.test/{id}", Some("http:// is not allowed to the host hooks.test")).await;
    check(Egress::default(), "HTTPS://127.0.0.1:9/", Some("the address 127.0.0.1 is not allowed: it is loopback"))
        .await;
    check(Egress::default(), "https://[::ffff:10.0.0.1]?a", Some("the address 10.0.0.1 is not allowed")).await;
    check(denying(), "https://a.evil.test/", Some("delivery.deny has *.evil.test")).await;
    check(beside(), "http://127.0.0.1:9/{id}", None).await;
    check(beside(), "http://hooks.test/", None).await;
    check(beside(), "https://169.254.169.254/", Some("metadata")).await;
}
