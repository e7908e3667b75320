use axum::body::Body;
use serde_json::json;

use super::lab::{Lab, request};

const USERS: &str = r#"{"endpoint":"http://api.company.com/users/{id}","change":{"field":"updatedAt","format":"2006-01-02T15:04:05Z07:00"}}"#;

#[tokio::test]
async fn a_resource_is_made_shown_listed_and_removed() {
    let lab = Lab::new().await;
    let made = lab.send("POST", "/resources", USERS).await;
    insta::assert_snapshot!("resource_created", made.shown());
    let id = made.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(made.header("location"), format!("/resources/{id}"));
    let shown = lab.get(&format!("/resources/{id}")).await;
    assert_eq!((shown.status.as_u16(), shown.json()), (200, made.json()));
    let list = lab.get("/resources").await.json();
    assert_eq!(list, json!({"resources": [made.json()], "pagination": {"limit": 30, "offset": 0, "total": 1}}));
    let removed = lab.send("DELETE", &format!("/resources/{id}"), "").await;
    assert_eq!((removed.status.as_u16(), removed.text()), (204, ""));
    assert_eq!(lab.get(&format!("/resources/{id}")).await.error(), (404, "resource.not-found".to_owned()));
    assert_eq!(lab.send("DELETE", &format!("/resources/{id}"), "").await.error().0, 404);
}

#[tokio::test]
async fn a_list_comes_in_pages() {
    let lab = Lab::new().await;
    for name in ["a", "b", "c"] {
        let body = format!(r#"{{"endpoint":"http://{name}/x","change":{{"field":"v"}}}}"#);
        assert_eq!(lab.send("POST", "/resources", &body).await.status, 201);
    }
    let page = lab.get("/resources?limit=2&offset=1").await.json();
    let endpoints: Vec<_> = page["resources"].as_array().unwrap().iter().map(|one| &one["endpoint"]).collect();
    assert_eq!(endpoints, ["http://b/x", "http://c/x"]);
    assert_eq!(page["pagination"], json!({"limit": 2, "offset": 1, "total": 3}));
    assert_eq!(lab.get("/resources?offset=9").await.json()["resources"], json!([]));
    insta::assert_snapshot!("resource_bad_limit", lab.get("/resources?limit=1001").await.shown());
}

#[tokio::test]
async fn two_resources_may_not_claim_the_same_url() {
    let lab = Lab::new().await;
    lab.send("POST", "/resources", USERS).await;
    let overlap = USERS.replace("users/{id}", "{kind}/7");
    insta::assert_snapshot!("resource_overlap", lab.send("POST", "/resources", &overlap).await.shown());
}

#[tokio::test]
async fn a_wrong_resource_is_refused_with_the_field_the_value_and_what_is_allowed() {
    let lab = Lab::new().await;
    let check = async |body: &str, status: u16, code: &str, detail: &str| {
        let answer = lab.send("POST", "/resources", body).await;
        assert_eq!(answer.error(), (status, code.to_owned()), "{body}: {answer:?}");
        assert!(answer.detail().contains(detail), "{body}: {}", answer.detail());
    };
    check("{", 400, "request.invalid-json", "not well-formed JSON").await;
    check("", 400, "request.invalid-json", "empty").await;
    check("[]", 400, "request.invalid-field", "expected an object").await;
    check(r#"{"endpoint":"http://a/x"}"#, 400, "request.missing-field", "change is missing").await;
    check(r#"{"endpoint":7,"change":{"field":"v"}}"#, 400, "request.invalid-field", "endpoint: invalid type").await;
    check(r#"{"endpoint":"http://a/x","change":{"feild":"v"}}"#, 400, "request.unknown-field", "change.feild").await;
    check(r#"{"endpont":"x"}"#, 400, "request.unknown-field", "did you mean endpoint?").await;
    check(r#"{"endpoint":"ftp://a","change":{"field":"v"}}"#, 422, "resource.invalid", "endpoint: URL \"ftp://a\"")
        .await;
    check(r#"{"endpoint":"http://a/x{id}","change":{"field":"v"}}"#, 422, "resource.invalid", "x{id}").await;
    check(r#"{"endpoint":"http://a/x","change":{"field":"a..b"}}"#, 422, "resource.invalid", "change.field").await;
    check(
        r#"{"endpoint":"http://a/x","change":{"field":"a","format":"yesterday"}}"#,
        422,
        "resource.invalid",
        "change.format: format \"yesterday\"",
    )
    .await;
    assert_eq!(lab.get("/resources").await.json()["pagination"]["total"], 0);
}

#[tokio::test]
async fn only_json_describes_a_resource() {
    let lab = Lab::new().await;
    let typed = |content_type: &str, host: &str| {
        let body = USERS.replace("api.company.com", host);
        request("POST", "/resources").header("content-type", content_type).body(Body::from(body)).unwrap()
    };
    insta::assert_snapshot!("resource_wrong_type", lab.ask(typed("text/plain", "a")).await.shown());
    assert_eq!(lab.ask(typed("application/json; charset=utf-8", "a")).await.status, 201);
    assert_eq!(lab.ask(typed("Application/JSON", "b")).await.status, 201);
    assert_eq!(lab.ask(typed("application/x-www-form-urlencoded", "c")).await.status, 201, "as curl -d sends it");
}

#[tokio::test]
async fn a_repeated_creation_makes_nothing_twice() {
    let lab = Lab::new().await;
    let keyed = |body: &str| {
        let request = request("POST", "/resources").header("idempotency-key", "one");
        request.body(Body::from(body.to_owned())).unwrap()
    };
    let first = lab.ask(keyed(USERS)).await;
    let second = lab.ask(keyed(USERS)).await;
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 201));
    assert_eq!(first.json(), second.json());
    assert_eq!((first.header("idempotency-replayed"), second.header("idempotency-replayed")), ("", "true"));
    assert_eq!(second.header("location"), first.header("location"));
    let other = lab.ask(keyed(&USERS.replace("users", "people"))).await;
    insta::assert_snapshot!("idempotency_key_reused", other.shown());
    assert_eq!(lab.get("/resources").await.json()["pagination"]["total"], 1);
    for wrong in ["", "with space", &"x".repeat(256)] {
        let request = request("POST", "/resources").header("idempotency-key", wrong);
        let answer = lab.ask(request.body(Body::from(USERS)).unwrap()).await;
        assert_eq!(answer.error(), (400, "request.invalid-header".to_owned()), "{wrong:?}");
    }
}

#[tokio::test]
async fn a_resource_with_subscriptions_stays() {
    let lab = Lab::new().await;
    let id = lab.resource().await;
    let subscription = r#"{"name":"one","endpoint":{"url":"http://client/x"}}"#;
    let made = lab.send("POST", &format!("/resources/{id}/subscriptions"), subscription).await;
    assert_eq!(made.status, 201, "{made:?}");
    insta::assert_snapshot!("resource_in_use", lab.send("DELETE", &format!("/resources/{id}"), "").await.shown());
    lab.send("DELETE", made.header("location"), "").await;
    assert_eq!(lab.send("DELETE", &format!("/resources/{id}"), "").await.status, 204);
}

#[tokio::test]
async fn what_is_not_an_id_names_nothing() {
    let lab = Lab::new().await;
    for path in
        ["/resources/x", "/resources/%ff", "/resources/0190-", "/resources/x/documents", "/resources/x/subscriptions"]
    {
        assert_eq!(lab.get(path).await.error(), (404, "resource.not-found".to_owned()), "{path}");
    }
}
