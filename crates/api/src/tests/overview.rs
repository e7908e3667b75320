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
    let openapi = lab.get("/openapi.json").await.json();
    assert_eq!(openapi["openapi"], "3.1.0");
    let limit = &openapi["paths"]["/resources"]["get"]["parameters"][0];
    assert_eq!((&limit["name"], &limit["schema"]["maximum"]), (&"limit".into(), &1000.into()));
}

#[tokio::test]
async fn a_listed_origin_may_call_from_a_browser() {
    let origins = vec!["https://console.company.com".to_owned()];
    let lab = Lab::with(crate::ApiSettings { origins, ..Default::default() }).await;
    let from = |method: &str, path: &str| request(method, path).header("origin", "https://console.company.com");
    let asked = from("OPTIONS", "/resources").header("access-control-request-method", "POST");
    insta::assert_snapshot!("preflight", lab.ask(asked.body(Body::empty()).unwrap()).await.shown());
    for path in ["/resources", "/nowhere"] {
        let answer = lab.ask(from("GET", path).body(Body::empty()).unwrap()).await;
        assert_eq!(answer.header("access-control-allow-origin"), "https://console.company.com", "{path}");
    }
    assert_eq!(lab.get("/resources").await.header("access-control-allow-origin"), "");
    let foreign = request("OPTIONS", "/resources").header("origin", "http://evil.com");
    let foreign = foreign.header("access-control-request-method", "POST").body(Body::empty()).unwrap();
    assert_eq!(lab.ask(foreign).await.error(), (403, "request.origin-refused".to_owned()));
}

#[test]
fn the_openapi_page_in_the_docs_is_current() {
    keep("openapi.json", &openapi_json(&crate::ApiSettings::default()));
}

#[test]
fn the_codes_of_errors_in_the_docs_are_current() {
    let mut page = "# The API\n\nThe API describes itself: `/docs` of a running server is a page for people, `/openapi.json` \
                    is OpenAPI 3.1 for\nprograms ([as of this version](openapi.json)).\n\n## Errors\n\nEvery answer that \
                    is not a success is `{\"error\": {\"code\", \"title\", \"detail\", \"requestId\"}}`. The code does not \
                    change; the\ndetail names the field, the value and what is allowed. A fault of the server is in its log \
                    under the request id.\n\n| status | code | title |\n|---|---|---|\n"
        .to_owned();
    for code in crate::error::CODES {
        page.push_str(&format!("| {} | `{}` | {} |\n", code.status.as_u16(), code.code, code.title));
    }
    keep("api.md", &page);
}

/// Generated pages are kept in the docs; this rewrites one that is stale, and fails once.
fn keep(name: &str, current: &str) {
    let path = format!("{}/../../docs/reference/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::fs::read_to_string(&path).unwrap_or_default() != current {
        std::fs::write(path, current).unwrap();
        panic!("docs/reference/{name} was stale and has been rewritten; look at the change and keep it");
    }
}

#[test]
fn every_operation_says_what_can_go_wrong() {
    let page: serde_json::Value = serde_json::from_str(&openapi_json(&crate::ApiSettings::default())).unwrap();
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
