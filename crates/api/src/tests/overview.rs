use axum::body::Body;

use super::lab::{Lab, request};
use crate::openapi_json;

#[tokio::test]
async fn the_node_says_what_it_is() {
    let lab = Lab::with(crate::ApiSettings { version: "1.2.3+45.abc".to_owned(), ..Default::default() }).await;
    lab.resource().await;
    insta::assert_snapshot!("root", lab.get("/").await.shown());
    insta::assert_snapshot!("status", lab.get("/status").await.shown());
    assert_eq!(lab.get("/health").await.text(), r#"{"status":"ok"}"#);
    assert_eq!(lab.get("/ready").await.text(), r#"{"status":"ready"}"#);
}

#[tokio::test]
async fn a_node_that_stops_is_healthy_but_not_ready() {
    let lab = Lab::new().await;
    lab.stop.cancel();
    assert_eq!(lab.get("/health").await.status, 200);
    let ready = lab.get("/ready").await;
    assert_eq!(ready.error(), (503, "node.not-ready".to_owned()));
    assert_eq!(ready.detail(), "the node is stopping");
}

#[tokio::test]
async fn what_is_not_there_is_told_in_the_usual_shape() {
    let lab = Lab::new().await;
    insta::assert_snapshot!("unknown_path", lab.get("/nowhere").await.shown());
    insta::assert_snapshot!("wrong_method", lab.send("PATCH", "/resources", "{}").await.shown());
    let document = lab.send("PATCH", "/documents/http://api/users/1", "{}").await;
    assert_eq!((document.status.as_u16(), document.header("allow")), (405, "GET,HEAD,PUT,DELETE"));
    assert_eq!(lab.get("/resources/").await.error().1, "request.not-found");
}

#[tokio::test]
async fn a_request_keeps_the_name_that_it_came_with() {
    let lab = Lab::new().await;
    let named = |path: &str, id: &str| request("GET", path).header("x-request-id", id).body(Body::empty()).unwrap();
    let found = lab.ask(named("/", "trace-7/a")).await;
    assert_eq!(found.header("x-request-id"), "trace-7/a");
    let lost = lab.ask(named("/nowhere", "trace-8")).await;
    assert_eq!(lost.header("x-request-id"), "trace-8");
    assert_eq!(lost.json()["error"]["requestId"], "trace-8");
    let forged = lab.ask(named("/nowhere", "a b\"c")).await;
    assert_eq!(forged.header("x-request-id").len(), 36);
    assert_eq!(forged.json()["error"]["requestId"], forged.header("x-request-id"));
    assert_eq!(lab.get("/").await.header("x-request-id"), "");
}

#[tokio::test]
async fn the_pages_need_nothing_from_elsewhere() {
    let lab = Lab::new().await;
    let docs = lab.get("/docs").await;
    assert_eq!(docs.header("content-type"), "text/html; charset=utf-8");
    assert!(!docs.text().contains("src=\"http") && !docs.text().contains("href=\"http"), "links to the outside");
    let openapi = lab.get("/openapi.json").await;
    assert_eq!(openapi.json()["openapi"], "3.1.0");
}

/// The generated page is kept in the docs; this rewrites it when it is stale, and fails once.
#[test]
fn the_openapi_page_in_the_docs_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");
    let current = openapi_json();
    if std::fs::read_to_string(path).unwrap_or_default() != current {
        std::fs::write(path, current).unwrap();
        panic!("docs/reference/openapi.json was stale and has been rewritten; look at the change and keep it");
    }
}

#[test]
fn every_operation_says_what_can_go_wrong() {
    let page: serde_json::Value = serde_json::from_str(openapi_json()).unwrap();
    for (path, operations) in page["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            let statuses: Vec<&str> = responses.keys().map(String::as_str).collect();
            let open = path == "/health" || path == "/ready";
            for wanted in ["414", "431", "500", "503", "401", "403"] {
                let is_wanted = !open || !wanted.starts_with("40");
                assert_eq!(statuses.contains(&wanted), is_wanted, "{method} {path} {wanted}: {statuses:?}");
            }
            for (status, response) in responses {
                let is_error = status.starts_with(['4', '5']);
                assert!(!is_error || response["content"]["application/json"].is_object(), "{method} {path} {status}");
            }
            assert!(operation["operationId"].is_string() && operation["summary"].is_string(), "{method} {path}");
        }
    }
}
