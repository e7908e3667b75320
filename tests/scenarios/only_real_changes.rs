//! Promise 3: the same or an older revision is accepted and announces nothing.

use flare_tests::{Flare, Receiver};
use serde_json::json;

use crate::{USERS, user};

#[tokio::test]
async fn the_same_or_an_older_revision_announces_nothing() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    let url = user(1);
    flare.put(&url, 5).await;
    receiver.wait_revision("/a", &url, 5).await;
    for revision in [5, 4, 1, 5, -7] {
        flare.put(&url, revision).await;
    }
    // Revisions of one document keep their order, so what the writes above announced would come before this one.
    flare.put(&url, 6).await;
    receiver.wait_revision("/a", &url, 6).await;
    assert_eq!(receiver.records().revisions("/a", &url), [5, 6]);
}

#[tokio::test]
async fn an_older_revision_does_not_replace_the_document() {
    let flare = Flare::start().await;
    flare.resource(USERS).await;
    let url = user(1);
    flare.client().put_document(&url, &json!({ "revision": 5, "name": "new" })).await.expect(202);
    flare.client().put_document(&url, &json!({ "revision": 4, "name": "old" })).await.expect(202);
    flare.client().put_document(&url, &json!({ "revision": 5, "name": "other" })).await.expect(202);
    let kept = flare.client().get_document(&url).await.expect(200).json();
    assert_eq!((&kept["revision"], &kept["name"]), (&json!(5), &json!("new")));
}

#[tokio::test]
async fn a_batch_announces_only_what_changed() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    let batch = |revisions: [i64; 4]| -> serde_json::Value {
        let members = revisions.iter().enumerate();
        members.map(|(number, revision)| json!({ "id": user(number), "document": { "revision": revision } })).collect()
    };
    flare.client().post("/documents", &batch([1, 1, 1, 1])).await.expect(202);
    receiver.wait("four documents", |records| records.documents("/a") == 4).await;
    flare.client().post("/documents", &batch([1, 2, 0, 1])).await.expect(202);
    flare.client().post("/documents", &batch([3, 3, 3, 3])).await.expect(202);
    for number in 0..4 {
        receiver.wait_revision("/a", &user(number), 3).await;
    }
    let records = receiver.records();
    for number in [0, 2, 3] {
        assert_eq!(records.revisions("/a", &user(number)), [1, 3]);
    }
    // Revision 2 may be overtaken by revision 3 before it is sent.
    assert!([&[1, 2, 3][..], &[1, 3]].contains(&records.revisions("/a", &user(1))));
}

#[tokio::test]
async fn a_second_deletion_announces_nothing() {
    let (receiver, flare) = (Receiver::start().await, Flare::start().await);
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    let url = user(1);
    flare.put(&url, 1).await;
    receiver.wait_revision("/a", &url, 1).await;
    flare.client().delete_document(&url).await.expect(202);
    receiver.wait("the deletion", |records| records.count("/a") == 2).await;
    flare.client().delete_document(&url).await.expect(202);
    flare.put(&url, 2).await;
    receiver.wait_revision("/a", &url, 2).await;
    let actions: Vec<_> = receiver.records().story("/a", &url).into_iter().map(|(action, _)| action).collect();
    assert_eq!(actions, ["create", "delete", "create"]);
}

#[tokio::test]
async fn a_restart_announces_nothing_again() {
    let receiver = Receiver::start().await;
    let mut flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    for number in 0..20 {
        flare.put(&user(number), 1).await;
    }
    receiver.wait("all documents", |records| records.documents("/a") == 20).await;
    assert!(flare.stop().await.success());
    flare.start_again().await;
    for number in 0..20 {
        flare.put(&user(number), 2).await;
    }
    for number in 0..20 {
        receiver.wait_revision("/a", &user(number), 2).await;
        assert_eq!(receiver.records().revisions("/a", &user(number)), [1, 2]);
    }
}
