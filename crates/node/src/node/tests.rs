//! What an outlet lacks although it passed it is found, listed and repaired.

use std::{sync::Arc, time::Duration};

use flare_contract::make;
use flare_core::{
    OutletId, Sequence, StreamId,
    document::{Progress, Version, WriteBody},
    outlet::{Mode, Outlet, Revisions},
    port::Store,
    revision::Revision,
};
use flare_memory::open;

use super::{Created, NewOutlet, NewStream, Node};
use crate::{Message, Settings, Settle, Supervisor};

/// A node with a passive outlet, whose messages the test pulls: it needs no endpoint.
pub(super) struct Lab {
    pub node: Arc<Node>,
    pub stream: StreamId,
    pub outlet: OutletId,
}

impl Lab {
    async fn new() -> Self {
        Self::with(open(&flare_keyvalue::Options::default()).unwrap(), &Settings::default()).await
    }

    pub(super) async fn with(store: Store, settings: &Settings) -> Self {
        let node = Node::start(store, settings, &Supervisor::default()).await.unwrap();
        let sample = make::stream("http://api.test/users/{id}");
        let new = NewStream { endpoint: sample.endpoint.clone(), change: sample.change.clone() };
        let Created::New(stream) = node.create_stream(new, None).await.unwrap() else { panic!("it is new") };
        let Outlet { name, endpoint, content, data, .. } = make::outlet(&sample, Sequence::START);
        let delivery = Arc::new(flare_core::outlet::DeliveryPolicy {
            rate: None,
            ttl: None,
            ..(*make::outlet(&sample, Sequence::START).delivery).clone()
        });
        let new = NewOutlet {
            name,
            mode: Mode::Passive,
            endpoint,
            delivery,
            content,
            data,
            filter: None,
            revisions: Revisions::Last,
            snapshot: false,
            secret: None,
            signature: None,
        };
        let Created::New(outlet) = node.create_outlet(stream.id, new, None).await.unwrap() else { panic!("it is new") };
        Self { node, stream: stream.id, outlet: outlet.id }
    }

    pub(super) async fn put(&self, name: &str, revision: i128) {
        let body = WriteBody::Put { revision: Revision::new(revision), content: bytes::Bytes::from_static(b"{}") };
        let write = flare_core::document::DocumentWrite {
            stream: self.stream,
            url: make::url(name),
            body,
            at: make::at(0),
            trace: None,
        };
        self.node.store.documents.write(vec![write]).await.unwrap();
    }

    pub(super) async fn pull(&self) -> Vec<Message> {
        let (wait, lease) = (Duration::from_millis(200), Duration::from_secs(60));
        self.node.pull(self.stream, self.outlet, 100, wait, lease).await.unwrap()
    }

    pub(super) async fn acknowledge(&self, messages: &[Message]) {
        let receipts = messages.iter().map(|message| message.receipt.clone()).collect();
        let results = self.node.settle(self.stream, self.outlet, receipts, Settle::Acknowledge).await.unwrap();
        assert!(results.iter().all(Result::is_ok));
    }
}

#[tokio::test]
async fn a_lost_record_is_found_and_repaired_by_a_resync() {
    let lab = Lab::new().await;
    for name in ["a", "b", "c"] {
        lab.put(name, 1).await;
    }
    let messages = lab.pull().await;
    assert_eq!(messages.len(), 3);
    lab.acknowledge(&messages).await;
    // The cursor is recorded from time to time; a resync looks at what is before it.
    let cursor = Progress::Cursor { outlet: lab.outlet, cursor: lab.node.store.documents.head() };
    let resync = async || {
        lab.node.store.deliveries.record(vec![cursor.clone()]).await.unwrap();
        lab.node.resync(lab.stream, lab.outlet).await.unwrap().repaired
    };
    assert_eq!(resync().await, 0);
    let lost = &messages[1].change;
    let version = Version { sequence: Sequence::START, revision: Revision::new(0), deleted: false };
    let lose = Progress::Forgotten { outlet: lab.outlet, number: lost.number, version };
    lab.node.store.deliveries.record(vec![lose]).await.unwrap();
    assert_eq!(resync().await, 1);
    let behind = lab.node.documents_behind(lab.stream, lab.outlet, 0, 10).await.unwrap();
    assert_eq!(behind.iter().map(|document| &document.url).collect::<Vec<_>>(), [&lost.url]);
    assert_eq!(lab.node.lag(lab.stream, lab.outlet).await.unwrap().documents, 1);
    let again = lab.pull().await;
    assert_eq!(again.iter().map(|message| &message.change.url).collect::<Vec<_>>(), [&lost.url]);
    lab.acknowledge(&again).await;
    assert_eq!(lab.node.lag(lab.stream, lab.outlet).await.unwrap().documents, 0);
    assert_eq!(resync().await, 0);
}
