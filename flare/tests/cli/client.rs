//! The client of the API, against a server that answers as it is told.

use super::server::{Request, Server};
use super::{Ran, file, flare, run, run_with_input};

/// Runs a command against a server with one answer; returns what came of it and what was asked.
fn ask(answer: (&str, &str), arguments: &[&str]) -> (Ran, Request) {
    let server = Server::answering(&[answer]);
    let ran = run(flare(arguments).args(["--url", &server.url]));
    (ran, server.requests().remove(0))
}

const RESOURCE: &str = r#"{"id":"0190","endpoint":"http://a.com/users/{id}","change":{"field":"updatedAt","format":"rfc3339"},"createdAt":"2026-11-15T00:00:00Z"}"#;

#[test]
fn lists_are_tables() {
    let list = format!(r#"{{"resources":[{RESOURCE}],"pagination":{{"limit":1,"offset":0,"total":3}}}}"#);
    let (ran, request) = ask(("200 OK", &list), &["resources", "list", "--limit", "1"]);
    assert_eq!(request.line, "GET /resources?offset=0&limit=1");
    assert_eq!(ran.err, "1 to 1 of 3; --offset 1 shows more\n");
    insta::assert_snapshot!(ran.out, @r"
    ID    ENDPOINT                 FIELD      FORMAT   CREATED
    0190  http://a.com/users/{id}  updatedAt  rfc3339  2026-11-15T00:00:00Z
    ");
    let (ran, _) = ask(("200 OK", &list), &["resources", "list", "--json"]);
    assert_eq!(ran.succeeded(), format!("{list}\n"));
    let (ran, _) = ask(("200 OK", r#"{"subscriptions":[],"pagination":{"total":0}}"#), &["subscriptions", "list", "r"]);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", "no subscriptions\n"));
}

#[test]
fn entities_are_fields() {
    let (ran, request) = ask(("200 OK", RESOURCE), &["resources", "get", "01/90"]);
    assert_eq!(request.line, "GET /resources/01%2F90");
    insta::assert_snapshot!(ran.succeeded(), @r"
    id: 0190
    endpoint: http://a.com/users/{id}
    change.field: updatedAt
    change.format: rfc3339
    createdAt: 2026-11-15T00:00:00Z
    ");
    let status = r#"{"version":"0.1.0","node":{"id":"x"},"repository":{"engine":"embedded","healthy":true}}"#;
    let (ran, request) = ask(("200 OK", status), &["status"]);
    assert_eq!(request.line, "GET /status");
    assert_eq!(ran.succeeded(), "version: 0.1.0\nnode.id: x\nrepository.engine: embedded\nrepository.healthy: true\n");
}

#[test]
fn resources_are_created_and_deleted() {
    let endpoint = "http://a.com/users/{id}";
    let arguments = ["resources", "create", endpoint, "--field", "updatedAt", "--format", "rfc3339"];
    let (ran, request) = ask(("201 Created", RESOURCE), &arguments);
    assert!(ran.succeeded().starts_with("id: 0190\n"));
    assert_eq!(request.line, "POST /resources");
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(
        request.body,
        r#"{"change":{"field":"updatedAt","format":"rfc3339"},"endpoint":"http://a.com/users/{id}"}"#
    );

    let (ran, request) = ask(("204 No Content", ""), &["resources", "delete", "0190"]);
    assert_eq!(ran.succeeded(), "deleted\n");
    assert_eq!(request.line, "DELETE /resources/0190");
}

#[test]
fn subscriptions_are_updated_from_a_file() {
    let (_folder, path) = file("s.json", r#"{"name":"n"}"#);
    let (ran, request) = ask(("200 OK", r#"{"id":"s"}"#), &["subscriptions", "update", "r", "s", &path]);
    assert_eq!(ran.succeeded(), "id: s\n");
    assert_eq!(request.line, "PUT /resources/r/subscriptions/s");
    assert_eq!(request.body, r#"{"name":"n"}"#);
}

#[test]
fn tokens_are_created_listed_and_revoked() {
    let token = r#"{"id":"0190","name":"ci","scope":"read","status":"active","createdAt":"2026-11-15T00:00:00Z","token":"flare_x"}"#;
    let arguments = ["token", "create", "--name", "ci", "--scope", "read", "--resource", "r", "--expires", "90d"];
    let (ran, request) = ask(("201 Created", token), &arguments);
    assert!(ran.succeeded().ends_with("\ntoken: flare_x\n"));
    assert_eq!(request.line, "POST /tokens");
    assert_eq!(request.body, r#"{"expiresIn":"2160h","name":"ci","resources":["r"],"scope":"read"}"#);
    let list = format!(r#"{{"tokens":[{token}],"pagination":{{"limit":30,"offset":0,"total":1}}}}"#);
    let (ran, request) = ask(("200 OK", &list), &["token", "list"]);
    assert_eq!(request.line, "GET /tokens?offset=0");
    insta::assert_snapshot!(ran.succeeded(), @r"
    ID    NAME  SCOPE  STATUS  CREATED
    0190  ci    read   active  2026-11-15T00:00:00Z
    ");
    let (ran, request) = ask(("204 No Content", ""), &["token", "revoke", "0190"]);
    assert_eq!((ran.succeeded().as_str(), request.line.as_str()), ("revoked\n", "DELETE /tokens/0190"));
}

#[test]
fn documents_are_written_from_a_file_or_standard_input() {
    let path = "/documents/http%3A%2F%2Fa.com%2Fusers%2F1%3Fx%3Dy";
    for arguments in [&["put"][..], &["documents", "put"]] {
        let server = Server::answering(&[("202 Accepted", "")]);
        let mut command = flare(arguments);
        command.args(["http://a.com/users/1?x=y", "-", "--url", &server.url, "--token", "t"]);
        assert_eq!(run_with_input(&mut command, "{\"revision\": 7}").succeeded(), "accepted\n");
        let request = server.requests().remove(0);
        assert_eq!(request.line, format!("PUT {path}"));
        assert_eq!(request.body, "{\"revision\": 7}");
        assert_eq!(request.header("authorization"), Some("Bearer t"));
        assert!(request.header("user-agent").unwrap().starts_with("flare/"));
    }
    let (ran, request) = ask(("200 OK", r#"{"b":1.0,"a":[]}"#), &["documents", "get", "http://a.com/users/1?x=y"]);
    assert_eq!(request.line, format!("GET {path}"));
    assert_eq!(ran.succeeded(), "{\n  \"b\": 1.0,\n  \"a\": []\n}\n");
    let (ran, request) = ask(("202 Accepted", ""), &["documents", "delete", "http://a.com/users/1?x=y"]);
    assert_eq!(request.line, format!("DELETE {path}"));
    assert_eq!(ran.succeeded(), "accepted\n");
    let arguments = ["documents", "delete", "http://a.com/users/1?x=y", "--revision", "8"];
    let (_, request) = ask(("202 Accepted", ""), &arguments);
    assert_eq!(request.header("flare-revision"), Some("8"));
    let arguments = ["documents", "list", "r", "--prefix", "http://a.com/", "--changed-since", "2026-01-01T00:00:00Z"];
    let (_, request) = ask(("200 OK", "{}"), &arguments);
    let query = "offset=0&prefix=http%3A%2F%2Fa.com%2F&changedSince=2026-01-01T00%3A00%3A00Z";
    assert_eq!(request.line, format!("GET /resources/r/documents?{query}"));
}

#[test]
fn secrets_are_rotated() {
    let answer = ("200 OK", r#"{"id":"1","secret":"whsec_x"}"#);
    let (ran, request) = ask(answer, &["subscriptions", "rotate-secret", "r", "s/1"]);
    assert_eq!(ran.succeeded(), "id: 1\nsecret: whsec_x\n");
    assert_eq!(request.line, "POST /resources/r/subscriptions/s%2F1/secret/rotate");
    assert_eq!(request.body, "{}");
    let arguments = ["subscriptions", "rotate-secret", "r", "s", "--overlap", "1h", "--signature", "v1a"];
    let (_, request) = ask(answer, &arguments);
    assert_eq!(request.body, r#"{"overlap":"1h","signature":"v1a"}"#);
}

#[test]
fn server_and_token_come_from_the_environment() {
    let server = Server::answering(&[("200 OK", "{}")]);
    let ran = run(flare(&["status"]).env("FLARE_URL", format!("{}/", server.url)).env("FLARE_TOKEN", "secret"));
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let request = server.requests().remove(0);
    assert_eq!(request.line, "GET /status");
    assert_eq!(request.header("authorization"), Some("Bearer secret"));
}

#[test]
fn errors_of_the_server_are_told_in_its_words() {
    let body = r#"{"error":{"code":"resource.not-found","title":"resource not found","detail":"there is no resource x","requestId":"1"}}"#;
    let (ran, _) = ask(("404 Not Found", body), &["resources", "get", "x"]);
    let expected = "error: resource not found: there is no resource x (resource.not-found, HTTP 404)\n";
    assert_eq!(ran.failed(1), expected);
    let (ran, _) = ask(("502 Bad Gateway", "oops"), &["status"]);
    assert_eq!(ran.failed(1), "error: the server answered HTTP 502 Bad Gateway: oops\n");
    let (ran, _) = ask(("200 OK", "[]"), &["resources", "list"]);
    assert_eq!(ran.failed(1), "error: the answer has no resources; is this a Flare server?\n");
}

#[test]
fn a_server_that_is_not_there_is_told() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let err = run(&mut flare(&["status", "--url", &url, "--timeout", "200ms"])).failed(1);
    assert_eq!(err, format!("error: no answer from {url} within 200ms; --timeout gives it longer\n"));
    drop(listener);
    let err = run(&mut flare(&["status", "--url", &url])).failed(1);
    let expected = format!("error: nothing listens at {url}; start a server with `flare start`, or name another one");
    assert!(err.starts_with(&expected), "{err}");
}
