//! Connections that break, and nodes that fall silent.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use flare_contract::{receipts, wait::until};
use std::time::Duration;

use bytes::Bytes;
use flare_contract::{proxy::Cut, queue_load::survive};
use flare_core::ErrorKind;
use server::{Lab, open};

const SOON: Duration = Duration::from_secs(20);

fn text(text: &'static str) -> Vec<Bytes> {
    vec![Bytes::from_static(text.as_bytes())]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_answer_is_lost_fails_and_the_message_is_there() {
    let Some(lab) = Lab::open().await else { return };
    lab.queue.push(&lab.name, text("first")).await.unwrap();
    lab.proxy.cut_at(b"the answer is lost", Cut::After);
    let error = lab.queue.push(&lab.name, text("the answer is lost")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    assert!(lab.proxy.has_cut());
    lab.proxy.cut_at(b"never sent", Cut::Before);
    until("it is connected", || lab.queue.trouble().is_none()).await;
    let error = lab.queue.push(&lab.name, text("never sent")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    let messages = lab.straight.pull(&lab.name, 10, SOON).await.unwrap();
    let bodies: Vec<_> = messages.iter().map(|message| message.body.clone()).collect();
    assert_eq!(bodies, ["first", "the answer is lost"]);
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_whose_answer_is_lost_fails() {
    let Some(lab) = Lab::open_with(|options| options.ack_wait = Duration::from_secs(1)).await else { return };
    lab.straight.push(&lab.name, text("one")).await.unwrap();
    let taken = lab.queue.pull(&lab.name, 1, SOON).await.unwrap();
    lab.proxy.cut_at(b"+ACK", Cut::Before);
    let error = lab.queue.ack(&lab.name, receipts(&taken)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    // The server has not heard of it, and nobody holds the message any more.
    let again = lab.straight.pull(&lab.name, 1, SOON).await.unwrap();
    assert_eq!(again.len(), 1);
    lab.straight.ack(&lab.name, receipts(&again)).await.unwrap();
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_names_the_server_and_ends_by_itself() {
    let Some(lab) = Lab::open().await else { return };
    assert_eq!(lab.queue.trouble(), None);
    lab.proxy.refuse(true);
    until("trouble is noticed although nobody asks", || lab.queue.trouble().is_some()).await;
    let trouble = lab.queue.trouble().unwrap();
    assert!(trouble.contains(&lab.proxy.address().to_string()), "{trouble}");
    let refused = [
        lab.queue.push(&lab.name, text("a")).await.unwrap_err(),
        lab.queue.pull(&lab.name, 1, SOON).await.unwrap_err(),
        lab.queue.depth(&lab.name).await.unwrap_err(),
        lab.queue.declare(&lab.name).await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    }
    lab.proxy.refuse(false);
    until("trouble ends although nobody asks", || lab.queue.trouble().is_none()).await;
    lab.queue.push(&lab.name, text("a")).await.unwrap();
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_ends_when_the_connection_is_lost_and_the_next_one_works() {
    let Some(lab) = Lab::open().await else { return };
    let (pulled, ()) = tokio::join!(lab.queue.pull(&lab.name, 1, Duration::from_secs(500)), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        lab.proxy.cut();
    });
    assert_eq!(pulled.unwrap_err().kind(), ErrorKind::Unavailable);
    until("it is connected", || lab.queue.trouble().is_none()).await;
    lab.straight.push(&lab.name, text("a")).await.unwrap();
    assert_eq!(lab.queue.pull(&lab.name, 1, SOON).await.unwrap().len(), 1);
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_hangs_is_given_up() {
    let Some(lab) = Lab::open().await else { return };
    lab.proxy.hold();
    let error = lab.queue.push(&lab.name, text("held back")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    assert!(lab.queue.trouble().is_some());
    let before = lab.proxy.connections();
    until("there is a new connection", || lab.proxy.connections() > before).await;
    until("it is well", || lab.queue.trouble().is_none()).await;
    lab.queue.push(&lab.name, text("a")).await.unwrap();
    lab.proxy.release();
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_worked_on_for_long_does_not_come_again() {
    let Some(lab) = Lab::open_with(|options| options.ack_wait = Duration::from_secs(1)).await else { return };
    lab.straight.push(&lab.name, text("one")).await.unwrap();
    let taken = lab.queue.pull(&lab.name, 1, SOON).await.unwrap();
    assert_eq!(lab.straight.pull(&lab.name, 1, Duration::from_secs(4)).await.unwrap(), []);
    lab.queue.ack(&lab.name, receipts(&taken)).await.unwrap();
    assert_eq!(lab.straight.pull(&lab.name, 1, Duration::from_secs(2)).await.unwrap(), []);
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_has_taken_that_fell_silent_comes_to_another() {
    let Some(lab) = Lab::open_with(|options| options.ack_wait = Duration::from_secs(1)).await else { return };
    lab.straight.push(&lab.name, text("one")).await.unwrap();
    assert_eq!(lab.queue.pull(&lab.name, 1, SOON).await.unwrap().len(), 1);
    lab.proxy.refuse(true);
    let inherited = lab.straight.pull(&lab.name, 1, SOON).await.unwrap();
    assert_eq!(inherited.len(), 1);
    lab.proxy.refuse(false);
    lab.close().await;
}

/// Long before the server would take the node for gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_is_dropped_while_messages_come_gives_them_back_at_once() {
    let Some(lab) = Lab::open_with(|options| options.ack_wait = Duration::from_secs(300)).await else { return };
    lab.proxy.delay(Duration::from_millis(200));
    lab.straight.push(&lab.name, vec![Bytes::from_static(b"a"); 50]).await.unwrap();
    for wait in [150, 250, 350, 450, 550] {
        let pulling = lab.queue.pull(&lab.name, 50, SOON);
        if let Ok(pulled) = tokio::time::timeout(Duration::from_millis(wait), pulling).await {
            lab.queue.nack(&lab.name, receipts(&pulled.unwrap())).await.unwrap();
        }
    }
    let mut count = 0;
    while count < 50 {
        let messages = lab.straight.pull(&lab.name, 50, SOON).await.unwrap();
        assert!(!messages.is_empty(), "only {count} came back");
        count += messages.len();
    }
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_cut_under_load_lose_nothing() {
    let Some(lab) = Lab::open_with(|options| options.ack_wait = Duration::from_secs(2)).await else { return };
    let options = flare_nats::Options {
        addrs: vec![lab.proxy.address().to_string()],
        ack_wait: Duration::from_secs(2),
        ..lab.server.options()
    };
    let other = open(&options).await;
    let survived = survive(&lab.queue, &other, &lab.name, async {
        for round in 0..30 {
            tokio::time::sleep(Duration::from_millis(50 + round * 13 % 70)).await;
            match round % 5 {
                0 => lab.proxy.cut_at(b"message", Cut::After),
                1 => lab.proxy.cut_at(b"+ACK", Cut::Before),
                2 => lab.proxy.cut_at(b"+ACK", Cut::After),
                3 => lab.proxy.cut_at(b"MSG.NEXT", Cut::After),
                _ => lab.proxy.cut(),
            }
        }
        lab.proxy.calm();
    })
    .await;
    println!("{survived:?}");
    assert!(survived.failures > 0, "nothing was cut");
    other.close().await.unwrap();
    lab.close().await;
}
