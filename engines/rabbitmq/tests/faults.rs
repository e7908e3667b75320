//! Connections that break at the worst moment: nothing confirmed is lost, and everything works again by itself.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use flare_contract::{receipts, wait::until};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use flare_contract::proxy::{Cut, Proxy};
use flare_core::{
    ErrorKind,
    queue::{Declared, Queue, QueueName},
};
use flare_rabbitmq::Options;
use server::{
    Server, fresh_name,
    load::{pull_all, survive},
};

const SOON: Duration = Duration::from_secs(20);

/// A queue behind a proxy, and the same past it.
struct Lab {
    proxy: Proxy,
    queue: Arc<dyn Queue>,
    straight: Arc<dyn Queue>,
    name: QueueName,
}

impl Lab {
    async fn open() -> Option<Self> {
        let server = Server::find()?;
        let proxy = Proxy::start(&server.host()).await;
        let url = Some(server.url_at(&proxy.address().to_string()));
        let (timeout, heartbeat) = (Duration::from_secs(2), Duration::from_secs(1));
        let queue = flare_rabbitmq::open(&Options { url, timeout, heartbeat, ..Options::default() }).await.unwrap();
        let (straight, name) = (server.open().await, fresh_name());
        assert_eq!(queue.declare(&name).await.unwrap(), Declared::Made);
        Some(Self { proxy, queue, straight, name })
    }

    async fn push(&self, text: &str) -> flare_core::Result<()> {
        self.queue.push(&self.name, vec![Bytes::from(text.to_owned())]).await
    }

    async fn pull(&self) -> Vec<String> {
        let messages = self.queue.pull(&self.name, 100, SOON).await.unwrap();
        self.queue.ack(&self.name, receipts(&messages)).await.unwrap();
        messages.iter().map(|message| String::from_utf8(message.body.to_vec()).unwrap()).collect()
    }

    async fn close(self) {
        self.straight.remove(&self.name).await.unwrap();
        self.queue.close().await.unwrap();
        self.straight.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_names_the_broker_and_ends_by_itself() {
    let Some(lab) = Lab::open().await else { return };
    assert_eq!(lab.queue.trouble(), None);
    lab.proxy.refuse(true);
    until("trouble is noticed although nobody does anything", || lab.queue.trouble().is_some()).await;
    let address = lab.proxy.address().to_string();
    let refused = [
        lab.push("1").await.unwrap_err(),
        lab.queue.pull(&lab.name, 1, Duration::from_secs(1)).await.unwrap_err(),
        lab.queue.declare(&lab.name).await.unwrap_err(),
        lab.queue.remove(&lab.name).await.unwrap_err(),
        lab.queue.depth(&lab.name).await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
        assert!(error.chain().contains(&address) && !error.chain().contains('@'), "{}", error.chain());
    }
    assert!(lab.queue.trouble().unwrap().contains(&address));
    lab.proxy.refuse(false);
    until("trouble ends although nobody does anything", || lab.queue.trouble().is_none()).await;
    lab.push("2").await.unwrap();
    assert_eq!(lab.pull().await, ["2"]);
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_confirm_is_lost_is_not_told_to_be_done() {
    let Some(lab) = Lab::open().await else { return };
    lab.proxy.cut_at(b"before the cut", Cut::After);
    let error = lab.push("before the cut").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    assert!(lab.proxy.has_cut());
    lab.push("after the cut").await.unwrap();
    let mut seen = BTreeSet::new();
    while !seen.contains("after the cut") {
        seen.extend(lab.pull().await);
    }
    lab.close().await;
}

/// What was taken before the connection broke comes again, and its receipts do no harm.
#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_from_before_a_reconnect_is_ignored() {
    let Some(lab) = Lab::open().await else { return };
    lab.push("1").await.unwrap();
    lab.push("2").await.unwrap();
    let before = pull_all(&lab.queue, &lab.name, 2).await;
    lab.proxy.cut();
    until("the connection is gone", || lab.queue.trouble().is_some()).await;
    until("the connection is back", || lab.queue.trouble().is_none()).await;
    let again = pull_all(&lab.queue, &lab.name, 2).await;
    lab.queue.ack(&lab.name, receipts(&before)).await.unwrap();
    lab.queue.nack(&lab.name, receipts(&before)).await.unwrap();
    assert_eq!(lab.queue.depth(&lab.name).await.unwrap().taken, 2, "the old receipts name nothing");
    lab.queue.ack(&lab.name, receipts(&again)).await.unwrap();
    assert_eq!(lab.queue.pull(&lab.name, 1, Duration::from_millis(300)).await.unwrap(), []);
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_waits_goes_on_after_a_reconnect() {
    let Some(lab) = Lab::open().await else { return };
    let (waiting, _) = tokio::join!(lab.queue.pull(&lab.name, 1, SOON), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        lab.proxy.cut();
    });
    let error = waiting.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.chain().contains(&lab.proxy.address().to_string()), "{}", error.chain());
    lab.straight.push(&lab.name, vec![Bytes::from_static(b"1")]).await.unwrap();
    assert_eq!(lab.pull().await, ["1"]);
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_says_nothing_is_given_up_and_found_again() {
    let Some(lab) = Lab::open().await else { return };
    lab.proxy.hold();
    let error = lab.push("1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    // The connections are still held; only new ones get through.
    until("it has connected anew", || lab.proxy.connections() >= 5 && lab.queue.trouble().is_none()).await;
    lab.push("2").await.unwrap();
    let mut seen = BTreeSet::new();
    while !seen.contains("2") {
        seen.extend(lab.pull().await);
    }
    lab.proxy.release();
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_network_only_takes_time() {
    let Some(lab) = Lab::open().await else { return };
    lab.proxy.delay(Duration::from_millis(50));
    for text in ["1", "2"] {
        lab.push(text).await.unwrap();
        assert_eq!(lab.pull().await, [text]);
    }
    lab.proxy.calm();
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_vanished_is_missed_by_those_who_use_it() {
    let Some(lab) = Lab::open().await else { return };
    let pulling = lab.queue.pull(&lab.name, 1, SOON);
    let (pulled, removed) = tokio::join!(pulling, async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        lab.straight.remove(&lab.name).await
    });
    removed.unwrap();
    assert_eq!(pulled.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(lab.push("1").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(lab.queue.depth(&lab.name).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(lab.queue.declare(&lab.name).await.unwrap(), Declared::Made);
    lab.push("2").await.unwrap();
    assert_eq!(lab.pull().await, ["2"]);
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_cut_under_load_lose_nothing() {
    let Some(lab) = Lab::open().await else { return };
    let is_over = AtomicBool::new(false);
    let faults = async {
        for round in 0..40 {
            tokio::time::sleep(Duration::from_millis(50 + round * 13 % 170)).await;
            match round % 4 {
                0 => lab.proxy.cut_at(b"{\"pusher\"", Cut::After),
                1 => lab.proxy.cut_at(b"{\"pusher\"", Cut::Before),
                2 => lab.proxy.lose_answers(),
                _ => {
                    lab.proxy.cut();
                    lab.proxy.calm();
                }
            }
        }
        lab.proxy.cut();
        lab.proxy.calm();
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(survive(&lab.queue, &lab.name, &is_over), faults);
    lab.close().await;
}
