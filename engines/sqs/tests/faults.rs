//! Connections that break, a service that says no, and nodes that fall silent.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use flare_contract::receipts;
use std::time::Duration;

use bytes::Bytes;
use flare_contract::{proxy::Cut, queue_load::survive};
use flare_core::{ErrorKind, queue::Declared};
use flare_sqs::Options;
use server::{Lab, Server, door::Door, fresh_name, open};

const SOON: Duration = Duration::from_secs(20);
const BRIEFLY: Duration = Duration::from_millis(300);

fn text(text: &'static str) -> Vec<Bytes> {
    vec![Bytes::from_static(text.as_bytes())]
}

/// The emulator behind a door, with a queue.
async fn behind_a_door() -> Option<(Door, std::sync::Arc<dyn flare_core::queue::Queue>)> {
    let server = Server::find()?;
    let door = Door::open(server.host()).await;
    let endpoint = Some(format!("http://{}", door.address));
    let queue = open(&Options { endpoint, ..server.options() }).await;
    Some((door, queue))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_is_named_with_what_to_do() {
    let Some((door, queue)) = behind_a_door().await else { return };
    let name = fresh_name();
    for action in ["GetQueueUrl", "CreateQueue"] {
        door.refuse(action, 403, "AccessDenied", 1);
        let error = queue.declare(&name).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = error.chain();
        assert!(text.contains("sqs:CreateQueue") && text.contains("said the door"), "{text}");
    }
    assert_eq!(queue.declare(&name).await.unwrap(), Declared::Made);
    door.refuse("SendMessageBatch", 403, "AccessDenied", 1);
    let error = queue.push(&name, text("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(queue.trouble(), Some(error.chain()));
    queue.push(&name, text("a")).await.unwrap();
    assert_eq!(queue.trouble(), None);
    queue.remove(&name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_busy_or_broken_for_a_moment_is_asked_again() {
    let Some((door, queue)) = behind_a_door().await else { return };
    let name = fresh_name();
    queue.declare(&name).await.unwrap();
    for (status, code) in [(400, "RequestThrottled"), (503, "ServiceUnavailable"), (500, "InternalFailure")] {
        let before = door.count("SendMessageBatch");
        door.refuse("SendMessageBatch", status, code, 2);
        queue.push(&name, text("a")).await.unwrap();
        assert_eq!(door.count("SendMessageBatch") - before, 3, "{code}");
        door.refuse("ReceiveMessage", status, code, 1);
        let messages = queue.pull(&name, 1, SOON).await.unwrap();
        door.refuse("DeleteMessageBatch", status, code, 1);
        queue.ack(&name, receipts(&messages)).await.unwrap();
    }
    door.refuse("SendMessageBatch", 503, "ServiceUnavailable", 1000);
    let error = queue.push(&name, text("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(queue.trouble().unwrap().contains("said the door"));
    door.refuse("SendMessageBatch", 503, "ServiceUnavailable", 0);
    queue.push(&name, text("a")).await.unwrap();
    assert_eq!(queue.trouble(), None);
    queue.remove(&name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_queue_has_one_long_poll() {
    let Some((door, queue)) = behind_a_door().await else { return };
    let name = fresh_name();
    queue.declare(&name).await.unwrap();
    // Dropped pulls leave their call to the next one.
    for _ in 0..5 {
        let _dropped = tokio::time::timeout(Duration::from_millis(50), queue.pull(&name, 500, SOON)).await;
    }
    let (pulled, ()) = tokio::join!(queue.pull(&name, 500, SOON), async {
        tokio::time::sleep(BRIEFLY).await;
        queue.push(&name, text("a")).await.unwrap();
    });
    assert_eq!(pulled.unwrap().len(), 1);
    assert_eq!(door.count("ReceiveMessage"), 1);
    queue.remove(&name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_made_for_ten_messages_at_a_time() {
    let Some((door, queue)) = behind_a_door().await else { return };
    let name = fresh_name();
    Server::find().unwrap().open().await.declare(&name).await.unwrap();
    queue.push(&name, vec![Bytes::from_static(b"a"); 95]).await.unwrap();
    let mut taken = Vec::new();
    while taken.len() < 95 {
        taken.extend(queue.pull(&name, 95, SOON).await.unwrap());
    }
    queue.ack(&name, receipts(&taken)).await.unwrap();
    assert_eq!(door.count("SendMessageBatch"), 10);
    assert_eq!(door.count("DeleteMessageBatch"), 10);
    assert_eq!(door.count("GetQueueUrl"), 1, "the address is kept");
    queue.remove(&name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_answer_is_lost_is_repeated() {
    let Some(lab) = Lab::open().await else { return };
    lab.proxy.cut_at(b"the answer is lost", Cut::After);
    lab.queue.push(&lab.name, text("the answer is lost")).await.unwrap();
    assert!(lab.proxy.has_cut());
    let messages = lab.straight.pull(&lab.name, 10, SOON).await.unwrap();
    assert!((1..=2).contains(&messages.len()), "it may be there twice, and is there once at least");
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_names_the_service_and_ends() {
    let Some(lab) = Lab::open().await else { return };
    assert_eq!(lab.queue.trouble(), None);
    lab.proxy.refuse(true);
    let refused = [
        lab.queue.push(&lab.name, text("a")).await.unwrap_err(),
        lab.queue.pull(&lab.name, 1, SOON).await.unwrap_err(),
        lab.queue.depth(&lab.name).await.unwrap_err(),
        lab.queue.declare(&lab.name).await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    }
    let trouble = lab.queue.trouble().unwrap();
    assert!(trouble.contains(&lab.proxy.address().to_string()), "{trouble}");
    lab.proxy.refuse(false);
    lab.queue.push(&lab.name, text("a")).await.unwrap();
    assert_eq!(lab.queue.trouble(), None);
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_hangs_is_given_up() {
    let Some(lab) = Lab::open().await else { return };
    lab.proxy.hold();
    lab.queue.push(&lab.name, text("a")).await.unwrap();
    assert_eq!(lab.straight.pull(&lab.name, 1, SOON).await.unwrap().len(), 1);
    lab.proxy.release();
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_worked_on_for_long_does_not_come_again() {
    let Some(lab) = Lab::open_with(|options| options.visibility = Duration::from_secs(2)).await else { return };
    lab.straight.push(&lab.name, vec![Bytes::from_static(b"a"); 12]).await.unwrap();
    let mut taken = Vec::new();
    while taken.len() < 12 {
        taken.extend(lab.queue.pull(&lab.name, 12 - taken.len(), SOON).await.unwrap());
    }
    assert_eq!(lab.straight.pull(&lab.name, 1, Duration::from_secs(5)).await.unwrap(), []);
    lab.queue.ack(&lab.name, receipts(&taken)).await.unwrap();
    assert_eq!(lab.straight.pull(&lab.name, 1, Duration::from_secs(3)).await.unwrap(), []);
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_has_taken_that_fell_silent_comes_to_another() {
    let Some(lab) = Lab::open_with(|options| options.visibility = Duration::from_secs(2)).await else { return };
    lab.straight.push(&lab.name, text("one")).await.unwrap();
    assert_eq!(lab.queue.pull(&lab.name, 1, SOON).await.unwrap().len(), 1);
    lab.proxy.refuse(true);
    let inherited = lab.straight.pull(&lab.name, 1, SOON).await.unwrap();
    assert_eq!(inherited.len(), 1);
    lab.proxy.refuse(false);
    lab.close().await;
}

/// Long before the service would take the node for gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_is_dropped_while_messages_come_gives_them_back_at_once() {
    let Some(lab) = Lab::open_with(|options| options.visibility = Duration::from_secs(300)).await else { return };
    lab.straight.push(&lab.name, vec![Bytes::from_static(b"a"); 8]).await.unwrap();
    // The answer comes when nobody waits for it any more.
    lab.proxy.delay(Duration::from_millis(500));
    let _dropped = tokio::time::timeout(Duration::from_millis(100), lab.queue.pull(&lab.name, 8, SOON)).await;
    while lab.straight.depth(&lab.name).await.unwrap().taken < 8 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut count = 0;
    while count < 8 {
        let messages = lab.straight.pull(&lab.name, 8, SOON).await.unwrap();
        assert!(!messages.is_empty(), "only {count} came back");
        count += messages.len();
    }
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_cut_under_load_lose_nothing() {
    let Some(lab) = Lab::open_with(|options| options.visibility = Duration::from_secs(3)).await else { return };
    let other = open(&lab.options).await;
    let survived = survive(&lab.queue, &other, &lab.name, async {
        for round in 0..20 {
            tokio::time::sleep(Duration::from_millis(50 + round * 13 % 70)).await;
            match round % 4 {
                0 => lab.proxy.cut_at(b"SendMessageBatch", Cut::After),
                1 => lab.proxy.cut_at(b"DeleteMessageBatch", Cut::After),
                2 => lab.proxy.cut_at(b"ReceiveMessage", Cut::After),
                _ => lab.proxy.cut(),
            }
        }
        lab.proxy.refuse(true);
        tokio::time::sleep(Duration::from_secs(4)).await;
        lab.proxy.calm();
    })
    .await;
    println!("{survived:?}");
    assert!(survived.failures > 0, "nothing was cut");
    other.close().await.unwrap();
    lab.close().await;
}
