use serde_json::{Value, json};

use super::lab::{Answer, Lab};

async fn subscribe(lab: &Lab, members: Value) -> (String, Value) {
    let resource = lab.resource().await;
    let mut body = json!({"name": "n", "endpoint": {"url": "http://client/hook"}});
    for (name, value) in members.as_object().unwrap() {
        body[name] = value.clone();
    }
    let made = lab.send("POST", &format!("/resources/{resource}/subscriptions"), &body.to_string()).await;
    assert_eq!(made.status, 201, "{made:?}");
    (made.header("location").to_owned(), made.json())
}

async fn rotate(lab: &Lab, path: &str, body: &str) -> Answer {
    lab.send("POST", &format!("{path}/secret/rotate"), body).await
}

/// Seconds from now until the previous secret ends.
fn overlap_seconds(subscription: &Value) -> i64 {
    let until: jiff::Timestamp = subscription["previousSecretUntil"].as_str().unwrap().parse().unwrap();
    until.as_second() - jiff::Timestamp::now().as_second()
}

#[tokio::test]
async fn a_rotation_shows_the_new_secret_once_and_how_long_the_old_one_lasts() {
    let lab = Lab::new().await;
    let (path, made) = subscribe(&lab, json!({})).await;
    assert_eq!((&made["signature"], made.get("publicKey")), (&json!("v1"), None));
    for body in ["", "{}", "null"] {
        let before = lab.get(&path).await.json();
        let rotated = rotate(&lab, &path, body).await;
        assert_eq!(rotated.status, 200, "{rotated:?}");
        let rotated = rotated.json();
        assert!(rotated["secret"].as_str().unwrap().starts_with("whsec_"));
        assert_ne!(rotated["secret"], made["secret"]);
        assert!((86_390..=86_400).contains(&overlap_seconds(&rotated)), "{rotated}");
        assert_eq!(rotated["createdAt"], before["createdAt"]);
        let shown = lab.get(&path).await;
        assert!(!shown.text().contains("whsec_"), "{shown:?}");
        assert_eq!(shown.json()["previousSecretUntil"], rotated["previousSecretUntil"]);
    }
    let rotated = rotate(&lab, &path, r#"{"overlap": "0s"}"#).await.json();
    assert_eq!(rotated.get("previousSecretUntil"), None);
}

#[tokio::test]
async fn a_rotation_to_the_present_secret_changes_nothing() {
    let lab = Lab::new().await;
    let (path, _) = subscribe(&lab, json!({})).await;
    let own = json!({"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "overlap": "1h"}).to_string();
    let first = rotate(&lab, &path, &own).await.json();
    assert_eq!(first["secret"], "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    assert_eq!(rotate(&lab, &path, &own).await.json(), first);
}

#[tokio::test]
async fn a_key_pair_shows_its_public_key_always_and_its_private_key_never() {
    let lab = Lab::new().await;
    let (path, made) = subscribe(&lab, json!({"signature": "v1a"})).await;
    assert_eq!((&made["signature"], made.get("secret")), (&json!("v1a"), None));
    let public = made["publicKey"].as_str().unwrap();
    assert!(public.starts_with("whpk_") && public.len() == 49, "{public}");
    assert_eq!(lab.get(&path).await.json()["publicKey"], made["publicKey"]);
    let rotated = rotate(&lab, &path, "").await;
    assert!(!rotated.text().contains("whsk_") && !rotated.text().contains("whsec_"));
    assert_ne!(rotated.json()["publicKey"], made["publicKey"]);
    assert_eq!(rotated.json()["signature"], "v1a");

    let small = json!({"name": "renamed", "endpoint": {"url": "http://client/hook"}}).to_string();
    let updated = lab.send("PUT", &path, &small).await.json();
    assert_eq!((&updated["signature"], &updated["publicKey"]), (&json!("v1a"), &rotated.json()["publicKey"]));
}

#[tokio::test]
async fn only_a_rotation_changes_the_scheme() {
    let lab = Lab::new().await;
    let (path, _) = subscribe(&lab, json!({})).await;
    let other = json!({"name": "n", "endpoint": {"url": "http://client/hook"}, "signature": "v1a"}).to_string();
    let refused = lab.send("PUT", &path, &other).await;
    assert_eq!(refused.error(), (422, "subscription.invalid".to_owned()));
    assert!(refused.detail().contains("POST …/secret/rotate"), "{}", refused.detail());
    let rotated = rotate(&lab, &path, r#"{"signature": "v1a"}"#).await.json();
    assert_eq!((rotated.get("secret"), &rotated["signature"]), (None, &json!("v1a")));
    assert_eq!(lab.send("PUT", &path, &other).await.status, 200);
    let own =
        json!({"name": "n", "endpoint": {"url": "http://client/hook"}, "secret": format!("whsec_{}", "A".repeat(32))});
    assert_eq!(lab.send("PUT", &path, &own.to_string()).await.error(), (422, "subscription.invalid".to_owned()));
    let back = rotate(&lab, &path, r#"{"signature": "v1"}"#).await.json();
    assert!(back["secret"].as_str().unwrap().starts_with("whsec_") && back.get("publicKey").is_none());
}

#[tokio::test]
async fn a_rotation_that_cannot_be_is_refused() {
    let lab = Lab::new().await;
    let (path, _) = subscribe(&lab, json!({"signature": "v1a"})).await;
    let check = async |body: &str, expected: (u16, &str), detail: &str| {
        let answer = rotate(&lab, &path, body).await;
        assert_eq!(answer.error(), (expected.0, expected.1.to_owned()), "{answer:?}");
        assert_eq!(answer.detail(), detail);
    };
    let invalid = (422, "subscription.invalid");
    let overlap = "overlap is \"721h\", it must be a duration from \"0s\" to \"720h\", such as \"24h\"";
    check(r#"{"overlap": "721h"}"#, invalid, overlap).await;
    check(r#"{"secret": "x"}"#, invalid, "secret must be \"whsec_\" followed by 24 to 64 bytes in base64").await;
    let own = format!(r#"{{"secret": "whsec_{}"}}"#, "A".repeat(32));
    check(&own, invalid, "secret: a key pair is made by Flare, it cannot be given").await;
    let unknown = "after is not a known field; there are secret, signature, overlap";
    check(r#"{"after": "1h"}"#, (400, "request.unknown-field"), unknown).await;
    let gone = path.rsplit_once('/').unwrap().0.to_owned() + "/01890000-0000-7000-8000-000000000000";
    assert_eq!(rotate(&lab, &gone, "").await.error(), (404, "subscription.not-found".to_owned()));
}

#[tokio::test]
async fn an_event_that_is_a_body_needs_a_method_with_one() {
    let lab = Lab::new().await;
    let resource = lab.resource().await;
    let check = async |format: &str, method: &str, status: u16| {
        let endpoint = json!({"url": "http://client/x", "actions": {"delete": {"method": method}}});
        let body = json!({"name": "n", "endpoint": endpoint, "content": {"format": format}}).to_string();
        let answer = lab.send("POST", &format!("/resources/{resource}/subscriptions"), &body).await;
        assert_eq!(answer.status, status, "{answer:?}");
    };
    check("cloudevents", "get", 422).await;
    check("cloudevents", "delete", 201).await;
    check("cloudevents-binary", "get", 201).await;
}
