use axum::body::Body;
use serde_json::json;

use super::lab::{Lab, request};
use crate::ApiSettings;

#[tokio::test]
async fn a_document_is_kept_byte_for_byte() {
    let lab = Lab::new().await;
    lab.resource().await;
    let content = "{ \"version\" : 7,\n \"name\":\"x\" }";
    let put = lab.send("PUT", "/documents/http://api/users/1", content).await;
    assert_eq!((put.status.as_u16(), put.text()), (202, ""));
    for spelling in ["http://api/users/1", "http:/api/users/1", "http%3A%2F%2Fapi%2Fusers%2F1", "HTTP://API:80/users/1"]
    {
        let got = lab.get(&format!("/documents/{spelling}")).await;
        assert_eq!((got.status.as_u16(), got.text()), (200, content), "{spelling}");
        assert_eq!(got.header("content-type"), "application/json");
        assert_eq!(got.header("flare-revision"), "7");
        assert!(got.header("flare-updated-at").parse::<jiff::Timestamp>().is_ok());
    }
}

#[tokio::test]
async fn the_query_belongs_to_the_url() {
    let lab = Lab::new().await;
    lab.resource().await;
    lab.send("PUT", "/documents/http://api/users/1?lang=en", r#"{"version":1}"#).await;
    assert_eq!(lab.get("/documents/http://api/users/1?lang=en").await.status, 200);
    assert_eq!(lab.get("/documents/http%3A%2F%2Fapi%2Fusers%2F1%3Flang=en").await.status, 200);
    assert_eq!(lab.get("/documents/http://api/users/1").await.error(), (404, "document.not-found".to_owned()));
}

#[tokio::test]
async fn an_older_revision_is_accepted_and_changes_nothing() {
    let lab = Lab::new().await;
    lab.resource().await;
    for version in [2, 1, 2] {
        let put = lab.send("PUT", "/documents/http://api/users/1", &format!(r#"{{"version":{version}}}"#)).await;
        assert_eq!(put.status, 202);
    }
    assert_eq!(lab.get("/documents/http://api/users/1").await.header("flare-revision"), "2");
    assert_eq!(lab.get("/status").await.json()["sequence"], 1);
}

#[tokio::test]
async fn a_deleted_document_is_gone_until_a_newer_revision() {
    let lab = Lab::new().await;
    lab.resource().await;
    let path = "/documents/http://api/users/1";
    let status_after = async |method: &str, body: &str, revision: Option<&str>| {
        let mut asked = request(method, path);
        if let Some(revision) = revision {
            asked = asked.header("flare-revision", revision);
        }
        let answer = lab.ask(asked.body(Body::from(body.to_owned())).unwrap()).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        lab.get(path).await.status.as_u16()
    };
    assert_eq!(status_after("PUT", r#"{"version":5}"#, None).await, 200);
    assert_eq!(status_after("DELETE", "", Some("4")).await, 200, "the delete is older");
    assert_eq!(status_after("DELETE", "", None).await, 404);
    assert_eq!(status_after("PUT", r#"{"version":5}"#, None).await, 404, "the put is not newer");
    assert_eq!(status_after("PUT", r#"{"version":6}"#, None).await, 200);
    assert_eq!(status_after("DELETE", "", Some("6")).await, 404);
    let wrong = request("DELETE", path).header("flare-revision", "+six").body(Body::empty()).unwrap();
    insta::assert_snapshot!("document_bad_revision", lab.ask(wrong).await.shown());
}

#[tokio::test]
async fn a_time_is_a_revision_in_the_format_of_its_resource() {
    let lab = Lab::new().await;
    let body = r#"{"endpoint":"http://api/t/{id}","change":{"field":"at","format":"02/01/2006 15:04"}}"#;
    lab.send("POST", "/resources", body).await;
    assert_eq!(lab.send("PUT", "/documents/http://api/t/1", r#"{"at":"24/12/2026 18:00"}"#).await.status, 202);
    let shown = lab.get("/documents/http://api/t/1").await;
    assert_eq!(shown.header("flare-revision"), "2026-12-24T18:00:00Z");
    for (revision, left) in [("24/12/2026 17:00", 200), ("2026-12-24T17:59:59Z", 200), ("2026-12-24T18:00:00Z", 404)] {
        let delete = request("DELETE", "/documents/http://api/t/1").header("flare-revision", revision);
        assert_eq!(lab.ask(delete.body(Body::empty()).unwrap()).await.status, 202, "{revision}");
        assert_eq!(lab.get("/documents/http://api/t/1").await.status, left, "{revision}");
    }
}

#[tokio::test]
async fn a_wrong_document_is_refused() {
    let lab = Lab::with(ApiSettings { body_bytes_max: 1000, ..ApiSettings::default() }).await;
    lab.resource().await;
    let check = async |path: &str, body: &str, status: u16, code: &str, detail: &str| {
        let answer = lab.send("PUT", path, body).await;
        assert_eq!(answer.error(), (status, code.to_owned()), "{path} {body}: {answer:?}");
        assert!(answer.detail().contains(detail), "{path} {body}: {}", answer.detail());
    };
    let path = "/documents/http://api/users/1";
    check("/documents/http://api/things/1", "{}", 404, "resource.not-found", "http://api/things/1").await;
    check("/documents/", "{}", 400, "document.invalid-url", "must start with http").await;
    check("/documents/users/1", "{}", 400, "document.invalid-url", "\"users/1\"").await;
    check("/documents/http://api/a/../b", "{}", 400, "document.invalid-url", "'..'").await;
    check(path, "", 400, "request.invalid-json", "line 1").await;
    check(path, "{", 400, "request.invalid-json", "line 1").await;
    check(path, "[]", 422, "document.invalid", "must be a JSON object").await;
    check(path, &"{\"a\":".repeat(65), 400, "request.too-deep", "at most 64").await;
    check(path, "{}", 422, "document.invalid-change", "no field \"version\"").await;
    check(path, r#"{"version":"7"}"#, 422, "document.invalid-change", "field \"version\" shows no revision: \"7\"")
        .await;
    check(path, &format!("{{\"version\":1,\"x\":\"{}\"}}", "x".repeat(1000)), 413, "request.too-large", "1000 bytes")
        .await;
    insta::assert_snapshot!("document_no_resource", lab.get("/documents/http://api/things/1").await.shown());
}

#[tokio::test]
async fn documents_are_listed_by_prefix_and_time() {
    let lab = Lab::new().await;
    let id = lab.resource().await;
    for user in ["a1", "a2", "b1"] {
        let put = lab.send("PUT", &format!("/documents/http://api/users/{user}"), r#"{"version":1,"n":1.50}"#).await;
        assert_eq!(put.status, 202);
    }
    let list = async |query: &str| {
        let page = lab.get(&format!("/resources/{id}/documents{query}")).await;
        assert_eq!(page.status, 200, "{page:?}");
        let page = page.json();
        let ids: Vec<String> = page["documents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["id"].as_str().unwrap().replace("http://api/users/", ""))
            .collect();
        (ids.join(","), page["pagination"]["total"].as_u64().unwrap())
    };
    assert_eq!(list("").await, ("a1,a2,b1".to_owned(), 3));
    assert_eq!(list("?limit=1&offset=1").await, ("a2".to_owned(), 3));
    assert_eq!(list("?limit=1&after=http://api/users/a1").await, ("a2".to_owned(), 3));
    assert_eq!(list("?limit=1&offset=1&after=http://api/users/a1").await, ("b1".to_owned(), 3));
    assert_eq!(list("?after=http%3A%2F%2Fapi%2Fusers%2Fa11").await, ("a2,b1".to_owned(), 3));
    assert_eq!(list("?after=http://api/users/a1&prefix=http://api/users/a").await, ("a2".to_owned(), 2));
    assert_eq!(list("?after=http://api/users/b1").await, (String::new(), 3));
    assert_eq!(list("?prefix=http://api/users/a").await, ("a1,a2".to_owned(), 2));
    assert_eq!(list("?prefix=http%3A%2F%2Fapi%2Fusers%2Fb").await, ("b1".to_owned(), 1));
    assert_eq!(list("?changedSince=2999-01-01T00:00:00Z").await, (String::new(), 0));
    assert_eq!(list("?changedSince=2020-01-01T00:00:00+02:00").await.1, 3);
    insta::assert_snapshot!("document_list", lab.get(&format!("/resources/{id}/documents?limit=2")).await.shown());
    let wrong = lab.get(&format!("/resources/{id}/documents?changedSince=yesterday")).await;
    assert_eq!(wrong.error(), (400, "request.invalid-parameter".to_owned()));
    let wrong = lab.get(&format!("/resources/{id}/documents?after=a1")).await;
    assert_eq!(wrong.error(), (400, "request.invalid-parameter".to_owned()));
}

#[tokio::test]
async fn a_page_of_large_documents_is_cut_and_says_where_to_go_on() {
    let lab = Lab::with(ApiSettings { page_bytes_max: 2500, ..ApiSettings::default() }).await;
    let id = lab.resource().await;
    for user in 0..5 {
        let body = json!({"version": 1, "x": "x".repeat(1000)}).to_string();
        lab.send("PUT", &format!("/documents/http://api/users/{user}"), &body).await;
    }
    let (mut offset, mut seen) = (0, 0);
    while offset < 5 {
        let page = lab.get(&format!("/resources/{id}/documents?offset={offset}")).await.json();
        let documents = page["documents"].as_array().unwrap().len() as u64;
        assert!((1..=3).contains(&documents), "{documents}");
        seen += documents;
        offset += page["pagination"]["limit"].as_u64().unwrap();
    }
    assert_eq!(seen, 5);
}
