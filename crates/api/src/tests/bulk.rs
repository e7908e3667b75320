use axum::body::Body;
use serde_json::{Value, json};

use super::lab::{Answer, Lab, request};
use crate::ApiSettings;

async fn post(lab: &Lab, content_type: &str, body: &str) -> Answer {
    let request = request("POST", "/documents").header("content-type", content_type);
    lab.ask(request.body(Body::from(body.to_owned())).unwrap()).await
}

fn counts(answer: &Answer) -> [u64; 3] {
    let json = answer.json();
    ["accepted", "unchanged", "failed"].map(|name| json[name].as_u64().unwrap())
}

fn put(user: &str, version: u32) -> Value {
    json!({"id": format!("http://api/users/{user}"), "document": {"version": version}})
}

#[tokio::test]
async fn lines_and_arrays_say_the_same() {
    let lab = Lab::new().await;
    lab.resource().await;
    let lines = format!("{}\n\n{}\r\n{}", put("1", 1), put("2", 1), put("1", 2));
    assert_eq!(counts(&post(&lab, "application/x-ndjson", &lines).await), [3, 0, 0]);
    let array = json!([put("1", 2), put("3", 1), {"id": "http://api/users/2", "delete": true, "revision": 1}]);
    assert_eq!(counts(&post(&lab, "application/json", &array.to_string()).await), [2, 1, 0]);
    assert_eq!(lab.get("/documents/http://api/users/1").await.header("flare-revision"), "2");
    assert_eq!(lab.get("/documents/http://api/users/2").await.status, 404);
    assert_eq!(counts(&lab.send("POST", "/documents", &put("4", 1).to_string()).await), [1, 0, 0]);
    assert_eq!(counts(&post(&lab, "application/json", "[]").await), [0, 0, 0]);
    assert_eq!(post(&lab, "application/x-ndjson", "").await.error(), (400, "request.invalid-json".to_owned()));
}

#[tokio::test]
async fn documents_keep_their_bytes() {
    let lab = Lab::new().await;
    lab.resource().await;
    let lines = r#"{"id":"http://api/users/1","document":{ "version":1, "n":1.50, "u":"\u00e9" }}"#;
    post(&lab, "application/x-ndjson", lines).await;
    let kept = lab.get("/documents/http://api/users/1").await;
    assert_eq!(kept.text(), r#"{ "version":1, "n":1.50, "u":"\u00e9" }"#);
}

#[tokio::test]
async fn what_cannot_be_taken_does_not_hold_up_the_rest() {
    let lab = Lab::with(ApiSettings { body_bytes_max: 100, ..ApiSettings::default() }).await;
    lab.resource().await;
    let lines = [
        put("1", 1).to_string(),
        "{broken".to_owned(),
        json!({"id": "http://api/users/2", "document": {}}).to_string(),
        json!({"id": "http://api/things/2", "document": {"version": 1}}).to_string(),
        json!({"id": "users/2", "document": {"version": 1}}).to_string(),
        json!({"id": "http://api/users/2"}).to_string(),
        json!({"id": "http://api/users/2", "document": {"version": 1}, "delete": true}).to_string(),
        json!({"id": "http://api/users/2", "delete": true, "revision": "x"}).to_string(),
        json!({"id": "http://api/users/2", "delet": true}).to_string(),
        json!({"document": {}}).to_string(),
        json!({"id": "http://api/users/2", "document": {"version": 1, "x": "x".repeat(100)}}).to_string(),
        "[1]".to_owned(),
        put("3", 1).to_string(),
    ];
    let answer = post(&lab, "application/x-ndjson", &lines.join("\n")).await;
    insta::assert_snapshot!("bulk_partial", answer.shown());
}

#[tokio::test]
async fn a_batch_of_which_nothing_is_taken_is_an_error() {
    let lab = Lab::new().await;
    let lines: Vec<String> = (0..150).map(|user| put(&user.to_string(), 1).to_string()).collect();
    let answer = post(&lab, "application/x-ndjson", &lines.join("\n")).await;
    assert_eq!(answer.error(), (422, "documents.none-accepted".to_owned()));
    assert_eq!(counts(&answer), [0, 0, 150]);
    assert_eq!(answer.json()["errors"].as_array().unwrap().len(), 100);
    assert!(
        answer.detail().starts_with("all 150 documents were refused; the first: no resource"),
        "{}",
        answer.detail()
    );
}

#[tokio::test]
async fn a_batch_has_its_limits() {
    let settings = ApiSettings { batch_max: 3, batch_bytes_max: 1000, body_bytes_max: 100, ..ApiSettings::default() };
    let lab = Lab::with(settings).await;
    lab.resource().await;
    let four = vec![put("1", 1); 4];
    let lines: Vec<String> = four.iter().map(Value::to_string).collect();
    let check = async |content_type: &str, body: &str, status: u16, code: &str| {
        assert_eq!(post(&lab, content_type, body).await.error(), (status, code.to_owned()), "{body}");
    };
    check("application/x-ndjson", &lines.join("\n"), 413, "request.batch-too-large").await;
    check("application/json", &Value::from(four).to_string(), 413, "request.batch-too-large").await;
    check("application/x-ndjson", &" ".repeat(1001), 413, "request.too-large").await;
    check("application/json", "[{}", 400, "request.invalid-json").await;
    check("application/json", "[] x", 400, "request.invalid-json").await;
    check("text/csv", "a,b", 415, "request.unsupported-media-type").await;
}
