//! Tokens that the server makes: what they open, when they end, and what is left of them at rest and in the log.

use std::path::Path;
use std::process::{Command, Stdio};

use bytes::Bytes;
use flare_tests::{Answer, Client, Flare, binary, run_to_end, within};
use http::Method;
use serde_json::{Value as Json, json};

use crate::{USERS, user};

/// A client that counts as one on another machine, with a token.
struct Remote {
    client: Client,
    bearer: String,
}

impl Remote {
    fn new(flare: &Flare, token: &str) -> Self {
        Self { client: flare.client(), bearer: format!("Bearer {token}") }
    }

    async fn send(&self, method: Method, path: &str, body: &str) -> Answer {
        let headers = [("x-forwarded-for", "192.0.2.1"), ("authorization", self.bearer.as_str())];
        self.client.send(method, path, &headers, Bytes::copy_from_slice(body.as_bytes())).await.unwrap()
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "").await
    }

    async fn put_user(&self, number: usize) -> Answer {
        self.send(Method::PUT, &format!("/documents/{}", user(number)), r#"{"revision": 1}"#).await
    }
}

/// Makes a token; its id and its text.
async fn token(flare: &Flare, new: &Json) -> (String, String) {
    let made = flare.client().post("/tokens", new).await.expect(201).json();
    let member = |name: &str| made[name].as_str().unwrap().to_owned();
    (member("id"), member("token"))
}

/// Runs a command of the client against the server; what it printed.
async fn run(flare: &Flare, arguments: &[&str]) -> String {
    let mut command = Command::new(binary());
    command.args(arguments).args(["--url", &format!("http://{}", flare.addr())]).stdin(Stdio::null()).env_clear();
    let ended = run_to_end(command).await;
    assert!(ended.status.success(), "{arguments:?}: {}", ended.output);
    ended.output
}

/// The lines of the audit, without what comes before the fields.
fn audit(flare: &Flare) -> Vec<String> {
    let log = flare.log();
    log.lines().filter_map(|line| Some(line.split_once(" audit: ")?.1.to_owned())).collect()
}

#[tokio::test]
async fn a_token_is_made_used_and_revoked_from_the_command_line() {
    let flare = Flare::start().await;
    let made =
        run(&flare, &["token", "create", "--name", "ci", "--scope", "write", "--expires", "90d", "--json"]).await;
    let made: Json = serde_json::from_str(&made).unwrap();
    let (id, text) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let remote = Remote::new(&flare, text);
    remote.get("/resources").await.expect(200);
    let list = run(&flare, &["token", "list"]).await;
    assert!(list.contains(id) && list.contains("ci") && list.contains("write") && !list.contains(text), "{list}");
    let shown = run(&flare, &["tokens", "get", id]).await;
    assert!(shown.contains("status: active") && shown.contains("expiresAt: ") && !shown.contains(text), "{shown}");
    assert_eq!(run(&flare, &["token", "revoke", id]).await, "revoked\n");
    let refused = remote.get("/resources").await.expect_error(401, "request.unauthorized");
    assert_eq!(refused.header("www-authenticate"), Some("Bearer realm=\"flare\""));
}

#[tokio::test]
async fn a_token_opens_what_its_scope_says() {
    let flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    let new_resource = json!({ "endpoint": "http://b.test/{id}", "change": { "field": "revision" } }).to_string();
    for (scope, put, create) in [("read", 403, 403), ("write", 202, 403), ("admin", 202, 201)] {
        let (_, text) = token(&flare, &json!({ "name": scope, "scope": scope })).await;
        let remote = Remote::new(&flare, &text);
        remote.get(&format!("/resources/{resource}")).await.expect(200);
        remote.put_user(1).await.expect(put);
        remote.send(Method::POST, "/resources", &new_resource).await.expect(create);
        remote.get("/tokens").await.expect(if scope == "admin" { 200 } else { 403 });
        // From this machine too: who sends a token wants its rights.
        let headers = [("authorization", remote.bearer.as_str())];
        let local = flare.client().send(Method::DELETE, "/resources/none", &headers, "").await.unwrap();
        local.expect(if scope == "admin" { 404 } else { 403 });
    }
}

#[tokio::test]
async fn a_bound_token_opens_its_resource_only() {
    let flare = Flare::start().await;
    let own = flare.resource(USERS).await;
    let other = flare.resource("http://other.test/{id}").await;
    let (_, text) = token(&flare, &json!({ "name": "own", "scope": "write", "resources": [own] })).await;
    let remote = Remote::new(&flare, &text);
    remote.put_user(1).await.expect(202);
    let list = remote.get("/resources").await.expect(200).json();
    assert_eq!((&list["pagination"]["total"], &list["resources"][0]["id"]), (&json!(1), &json!(own)));
    remote.get(&format!("/resources/{other}")).await.expect_error(403, "security.forbidden");
    let put = remote.send(Method::PUT, "/documents/http://other.test/1", r#"{"revision": 1}"#).await;
    put.expect_error(403, "security.forbidden");
    flare.client().get_document("http://other.test/1").await.expect(404);
}

#[tokio::test]
async fn a_token_ends_when_it_expires() {
    let flare = Flare::start().await;
    let (id, text) = token(&flare, &json!({ "name": "brief", "scope": "read", "expiresIn": "2s" })).await;
    let remote = Remote::new(&flare, &text);
    remote.get("/resources").await.expect(200);
    let refused = within("the token expires", async {
        loop {
            let answer = remote.get("/resources").await;
            if answer.status != 200 {
                return answer;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    let refused = refused.expect_error(401, "request.unauthorized");
    assert!(refused.text().contains("expired at"), "{}", refused.text());
    assert_eq!(flare.client().get(&format!("/tokens/{id}")).await.expect(200).json()["status"], "expired");
}

#[tokio::test]
async fn tokens_and_revocations_survive_a_kill() {
    let mut flare = Flare::start().await;
    let (_, kept) = token(&flare, &json!({ "name": "kept", "scope": "read" })).await;
    let (id, revoked) = token(&flare, &json!({ "name": "revoked", "scope": "read" })).await;
    flare.client().delete(&format!("/tokens/{id}")).await.expect(204);
    flare.kill().await;
    flare.start_again().await;
    Remote::new(&flare, &kept).get("/resources").await.expect(200);
    Remote::new(&flare, &revoked).get("/resources").await.expect(401);
    assert_eq!(flare.client().get("/tokens").await.json()["pagination"]["total"], 1);
}

#[tokio::test]
async fn nothing_at_rest_is_a_token() {
    let mut flare = Flare::start().await;
    let (_, text) = token(&flare, &json!({ "name": "a-name-that-is-easy-to-find", "scope": "admin" })).await;
    Remote::new(&flare, &text).get("/tokens").await.expect(200);
    assert!(flare.stop().await.success());
    let secret = text.rsplit_once('_').unwrap().1;
    assert!(holds(flare.data(), "a-name-that-is-easy-to-find"), "the search finds what is there");
    assert!(!holds(flare.data(), secret) && !flare.log().contains(secret));
}

/// Whether some file of a folder has this text in it.
fn holds(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return holds(&path, text);
        }
        std::fs::read(path).unwrap().windows(text.len()).any(|window| window == text.as_bytes())
    })
}

#[tokio::test]
async fn who_changed_what_is_in_the_log_at_every_level() {
    let flare = Flare::configured("[log]\nlevel = \"error\"\n[security]\ntokens = [\"0123456789abcdef\"]\n").await;
    let resource = flare.resource(USERS).await;
    let (id, text) = token(&flare, &json!({ "name": "an\nother", "scope": "write" })).await;
    let remote = Remote::new(&flare, &text);
    remote.put_user(1).await.expect(202);
    remote.get("/resources").await.expect(200);
    remote.send(Method::DELETE, &format!("/resources/{resource}?x=secret"), "").await.expect(403);
    // Somebody takes the token for its id.
    flare.client().delete(&format!("/tokens/{text}")).await.expect(404);
    Remote::new(&flare, "0123456789abcdef").send(Method::DELETE, "/resources/none", "").await.expect(404);
    let headers = [("x-forwarded-for", "192.0.2.1"), ("x-request-id", "my-own-id")];
    flare.client().send(Method::POST, "/resources", &headers, "{}").await.unwrap().expect(401);

    let lines = audit(&flare);
    let expected = [
        ("loopback", "POST /resources", 201),
        ("loopback", "POST /tokens", 201),
        (&*format!("token {id} \"an\\nother\""), &*format!("DELETE /resources/{resource}"), 403),
        ("loopback", "DELETE /tokens/[hidden]", 404),
        ("config token", "DELETE /resources/none", 404),
        ("nobody known", "POST /resources", 401),
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, (who, what, status)) in lines.iter().zip(expected) {
        let (method, path) = what.split_once(' ').unwrap();
        let told = format!("who={who} peer=127.0.0.1 method={method} path={path} status={status} request_id=");
        assert!(line.contains(&told), "{told}\n{line}");
    }
    assert!(lines[5].ends_with("request_id=my-own-id"), "{}", lines[5]);
    let log = flare.log();
    assert!(!log.contains("secret") && !log.contains(text.rsplit_once('_').unwrap().1), "{log}");
}
