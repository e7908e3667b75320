//! Every push is signed by Standard Webhooks. The public Python library checks the same in `tests/python`.

use flare_tests::{Delivery, Flare, Receiver, Reply, is_signed_by, quick_retries};
use serde_json::json;

use crate::{USERS, user};

#[tokio::test]
async fn a_delivery_is_signed_with_the_secret_of_its_subscription() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let one = flare.subscribe(&resource, "one", &receiver.url("/one")).await;
    let two = flare.subscribe(&resource, "two", &receiver.url("/two")).await;
    assert_ne!(one.secret, two.secret);
    flare.put(&user(1), 1).await;
    receiver.wait("both deliveries", |records| records.count("/one") == 1 && records.count("/two") == 1).await;

    let at = |path| -> Delivery { receiver.records().at(path).next().unwrap().clone() };
    assert!(is_signed_by(&one.secret, &at("/one")));
    assert!(is_signed_by(&two.secret, &at("/two")));
    assert!(!is_signed_by(&one.secret, &at("/two")), "the secret of another subscription does not fit");
    let mut tampered = at("/one");
    tampered.body = String::from_utf8_lossy(&tampered.body).replace("sample", "simple").into();
    assert!(!is_signed_by(&one.secret, &tampered), "a changed body does not fit");
}

#[tokio::test]
async fn a_retry_has_the_same_id_and_its_own_signature() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let subscription = flare.subscribe_with(&resource, "a", &receiver.url("/a"), &quick_retries()).await;
    receiver.reply_in_turn("/a", [Reply::Status(500), Reply::Status(500)]);
    flare.put(&user(1), 1).await;
    receiver.wait("three attempts", |records| records.count("/a") == 3).await;
    flare.put(&user(1), 2).await;
    receiver.wait_revision("/a", &user(1), 2).await;

    let records = receiver.records();
    assert!(records.at("/a").all(|delivery| is_signed_by(&subscription.secret, delivery)));
    let ids: Vec<_> = records.at("/a").map(|delivery| delivery.header("webhook-id")).collect();
    assert!(ids[0] == ids[1] && ids[1] == ids[2], "{ids:?}");
    assert_ne!(ids[2], ids[3], "another revision is another message");
}

#[tokio::test]
async fn a_secret_is_shown_once_and_never_logged() {
    let (receiver, flare) = (Receiver::start().await, Flare::configured("[log]\nlevel = \"debug\"\n").await);
    let resource = flare.resource(USERS).await;
    let subscription = flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    assert!(subscription.secret.starts_with("whsec_"));
    flare.put(&user(1), 1).await;
    receiver.wait_revision("/a", &user(1), 1).await;

    let bare = subscription.secret.trim_start_matches("whsec_");
    let list = format!("/resources/{resource}/subscriptions");
    for path in [subscription.path.as_str(), &list, "/status"] {
        let answer = flare.client().get(path).await.expect(200);
        assert!(!answer.text().contains(bare), "{path} shows the secret");
    }
    assert!(!flare.log().contains(bare), "the log shows the secret");
}

#[tokio::test]
async fn a_secret_of_ones_own_is_used() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let members = json!({ "secret": secret });
    flare.subscribe_with(&resource, "a", &receiver.url("/a"), &members).await;
    flare.put(&user(1), 1).await;
    receiver.wait_revision("/a", &user(1), 1).await;
    let delivery = receiver.records().deliveries[0].clone();
    assert!(is_signed_by(secret, &delivery));
}
