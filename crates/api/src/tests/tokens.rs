use axum::body::Body;
use serde_json::{Value, json};

use super::lab::{Answer, Lab, request};

const FORBIDDEN: (u16, &str) = (403, "security.forbidden");

/// A caller on another machine with a token.
struct Holder<'l> {
    lab: &'l Lab,
    token: String,
    id: String,
}

impl<'l> Holder<'l> {
    async fn of(lab: &'l Lab, new: &Value) -> Self {
        let made = lab.send("POST", "/tokens", &new.to_string()).await;
        assert_eq!(made.status, 201, "{made:?}");
        let member = |name: &str| made.json()[name].as_str().unwrap().to_owned();
        Self { lab, token: member("token"), id: member("id") }
    }

    async fn with_scope(lab: &'l Lab, scope: &str) -> Self {
        Self::of(lab, &json!({"name": scope, "scope": scope})).await
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        let request = request(method, path).header("x-forwarded-for", "10.0.0.1");
        let request = request.header("authorization", format!("Bearer {}", self.token));
        self.lab.ask(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    /// Status and code of an answer; the code is empty for a success.
    async fn outcome(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let answer = self.send(method, path, body).await;
        if answer.status.is_success() { (answer.status.as_u16(), String::new()) } else { answer.error() }
    }

    async fn check(&self, method: &str, path: &str, body: &str, expected: (u16, &str)) {
        let outcome = self.outcome(method, path, body).await;
        assert_eq!(outcome, (expected.0, expected.1.to_owned()), "{method} {path}");
    }
}

fn resource(host: &str) -> String {
    json!({"endpoint": format!("http://{host}/users/{{id}}"), "change": {"field": "version"}}).to_string()
}

async fn made(lab: &Lab, path: &str, body: &str) -> String {
    let made = lab.send("POST", path, body).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["id"].as_str().unwrap().to_owned()
}

const SUBSCRIPTION: &str = r#"{"name":"one","endpoint":{"url":"http://client/x"}}"#;

#[tokio::test]
async fn a_token_is_made_shown_listed_and_revoked() {
    let lab = Lab::new().await;
    let users = lab.resource().await;
    let new = json!({"name": "ci", "scope": "write", "resources": [users], "expiresIn": "2160h"});
    let made = lab.send("POST", "/tokens", &new.to_string()).await;
    insta::assert_snapshot!("token_created", made.shown());
    let mut token = made.json();
    let text = token.as_object_mut().unwrap().remove("token").unwrap();
    assert!(text.as_str().unwrap().starts_with("flare_"), "{text}");
    let path = made.header("location");
    assert_eq!(lab.get(path).await.json(), token, "the text is not shown again");
    let list = lab.get("/tokens").await.json();
    assert_eq!(list, json!({"tokens": [token], "pagination": {"limit": 30, "offset": 0, "total": 1}}));
    assert_eq!(lab.send("DELETE", path, "").await.status, 204);
    assert_eq!(lab.get(path).await.error(), (404, "token.not-found".to_owned()));
    assert_eq!(lab.send("DELETE", path, "").await.error(), (404, "token.not-found".to_owned()));
    assert_eq!(lab.get("/tokens?limit=0").await.error().0, 400);
}

#[tokio::test]
async fn a_wrong_token_is_refused() {
    let lab = Lab::new().await;
    let check = async |body: &str, status: u16, code: &str, detail: &str| {
        let answer = lab.send("POST", "/tokens", body).await;
        assert_eq!(answer.error(), (status, code.to_owned()), "{body}");
        assert!(answer.detail().contains(detail), "{body}: {}", answer.detail());
    };
    check("{", 400, "request.invalid-json", "not well-formed").await;
    check(r#"{"name":"x"}"#, 400, "request.missing-field", "scope is missing").await;
    check(r#"{"name":"x","scope":"read","expires":"1h"}"#, 400, "request.unknown-field", "expiresIn").await;
    check(r#"{"name":"x","scope":"root"}"#, 422, "token.invalid", "scope is \"root\"").await;
    check(r#"{"name":"x","scope":"read","resources":["y"]}"#, 422, "token.invalid", "resources[0]").await;
    assert_eq!(lab.get("/tokens").await.json()["pagination"]["total"], 0);
    assert_eq!(lab.get("/tokens/x").await.error(), (404, "token.not-found".to_owned()));
}

#[tokio::test]
async fn a_token_itself_is_no_path() {
    let lab = Lab::new().await;
    let holder = Holder::with_scope(&lab, "read").await;
    let answer = lab.send("DELETE", &format!("/tokens/{}", holder.token), "").await;
    assert_eq!(answer.error(), (404, "token.not-found".to_owned()));
    assert_eq!(answer.detail(), format!("this is the token itself; its id is {}", holder.id));
}

#[tokio::test]
async fn each_scope_may_do_its_own() {
    let lab = Lab::new().await;
    let users = lab.resource().await;
    let subscriptions = format!("/resources/{users}/subscriptions");
    let subscription = format!("{subscriptions}/{}", made(&lab, &subscriptions, SUBSCRIPTION).await);
    let document = "/documents/http://api/users/1";
    let [read, write, admin] = ["read", "write", "admin"];
    for scope in [read, write, admin] {
        let holder = Holder::with_scope(&lab, scope).await;
        let can_write = scope != read;
        let can_all = scope == admin;
        let expect = |is_allowed: bool, status: u16| if is_allowed { (status, "") } else { FORBIDDEN };
        for path in ["/", "/status", "/resources", &format!("/resources/{users}"), &subscriptions, &subscription] {
            holder.check("GET", path, "", (200, "")).await;
        }
        holder.check("PUT", document, r#"{"version":1}"#, expect(can_write, 202)).await;
        let item = r#"{"id":"http://api/users/1","document":{"version":2}}"#;
        holder.check("POST", "/documents", item, expect(can_write, 202)).await;
        holder.check("PUT", &subscription, SUBSCRIPTION, expect(can_write, 200)).await;
        holder.check("POST", &subscriptions, SUBSCRIPTION, expect(can_write, 201)).await;
        holder.check("POST", "/resources", &resource(scope), expect(can_all, 201)).await;
        holder.check("GET", "/tokens", "", expect(can_all, 200)).await;
        holder.check("GET", &format!("/tokens/{}", holder.id), "", expect(can_all, 200)).await;
        holder.check("POST", "/tokens", r#"{"name":"x","scope":"read"}"#, expect(can_all, 201)).await;
        holder.check("DELETE", &format!("/tokens/{}", holder.id), "", expect(can_all, 204)).await;
    }
    let holder = Holder::with_scope(&lab, read).await;
    insta::assert_snapshot!("token_scope_missing", holder.send("PUT", document, "{}").await.shown());
}

#[tokio::test]
async fn a_bound_token_reaches_its_resources_only() {
    let lab = Lab::new().await;
    let own = made(&lab, "/resources", &resource("own")).await;
    let other = made(&lab, "/resources", &resource("other")).await;
    let holder = Holder::of(&lab, &json!({"name": "own", "scope": "write", "resources": [own]})).await;
    let list = holder.send("GET", "/resources", "").await.json();
    assert_eq!((&list["resources"][0]["id"], &list["pagination"]["total"]), (&json!(own), &json!(1)));
    assert_eq!(holder.send("GET", "/resources?offset=1", "").await.json()["resources"], json!([]));
    for path in ["/", "/status", "/docs", &format!("/resources/{own}"), &format!("/resources/{own}/documents")] {
        holder.check("GET", path, "", (200, "")).await;
    }
    holder.check("POST", &format!("/resources/{own}/subscriptions"), SUBSCRIPTION, (201, "")).await;
    holder.check("PUT", "/documents/http://own/users/1", r#"{"version":1}"#, (202, "")).await;
    holder.check("GET", "/documents/http%3A%2F%2Fown%2Fusers%2F1", "", (200, "")).await;
    let encoded = own.replace('-', "%2D");
    for path in [
        format!("/resources/{other}"),
        format!("/resources/{other}/documents"),
        format!("/resources/{other}/subscriptions"),
        format!("/resources/{encoded}"),
        "/documents/http://other/users/1".to_owned(),
        "/documents/http://nobody/users/1".to_owned(),
        "/tokens".to_owned(),
        "/something/new".to_owned(),
    ] {
        holder.check("GET", &path, "", FORBIDDEN).await;
    }
    holder.check("POST", &format!("/resources/{other}/subscriptions"), SUBSCRIPTION, FORBIDDEN).await;
    holder.check("DELETE", &format!("/resources/{own}"), "", FORBIDDEN).await;
    let refused = holder.send("PUT", "/documents/http://other/users/1", r#"{"version":1}"#).await;
    insta::assert_snapshot!("token_resource_missing", refused.shown());
    assert_eq!(lab.get("/documents/http://other/users/1").await.error().0, 404, "nothing was written");
}

#[tokio::test]
async fn a_bulk_write_takes_what_the_token_reaches() {
    let lab = Lab::new().await;
    let own = made(&lab, "/resources", &resource("own")).await;
    made(&lab, "/resources", &resource("other")).await;
    let holder = Holder::of(&lab, &json!({"name": "own", "scope": "write", "resources": [own]})).await;
    let item = |host: &str| format!(r#"{{"id":"http://{host}/users/1","document":{{"version":1}}}}"#);
    let both = format!("{}\n{}\n", item("other"), item("own"));
    let report = holder.send("POST", "/documents", &both).await.json();
    assert_eq!((&report["accepted"], &report["failed"]), (&json!(1), &json!(1)));
    assert_eq!(report["errors"][0]["line"], 1);
    assert_eq!(report["errors"][0]["error"]["code"], "security.forbidden");
    assert_eq!(lab.get("/documents/http://other/users/1").await.status, 404);
    assert_eq!(holder.send("POST", "/documents", &item("other")).await.error().0, 422);
}

#[tokio::test]
async fn a_revoked_token_is_refused_at_once() {
    let lab = Lab::new().await;
    let holder = Holder::with_scope(&lab, "read").await;
    holder.check("GET", "/resources", "", (200, "")).await;
    lab.send("DELETE", &format!("/tokens/{}", holder.id), "").await;
    let refused = holder.send("GET", "/resources", "").await;
    assert_eq!(refused.error(), (401, "request.unauthorized".to_owned()));
    assert_eq!(refused.header("www-authenticate"), "Bearer realm=\"flare\"");
}
