use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use flare_contract::make;
use flare_core::{
    StreamId,
    document::{DocumentWrite, WriteBody, Written},
    outlet::Mode,
    port::{DocumentPage, DocumentQuery, Documents, FeedPage, FeedQuery, Store},
    revision::Revision,
    url::DocumentUrl,
};
use jiff::Timestamp;
use parking_lot::Mutex;

use super::*;
use crate::Settings;

/// Another node writes a document just before this one begins to listen.
struct Crowded {
    documents: Arc<dyn Documents>,
    write: Mutex<Option<DocumentWrite>>,
}

#[async_trait]
impl Documents for Crowded {
    async fn write(&self, writes: Vec<DocumentWrite>) -> Result<Vec<Written>> {
        self.documents.write(writes).await
    }

    async fn get(&self, stream: StreamId, url: &DocumentUrl) -> Result<Option<Change>> {
        self.documents.get(stream, url).await
    }

    async fn change_at(&self, stream: StreamId, sequence: Sequence) -> Result<Option<Change>> {
        self.documents.change_at(stream, sequence).await
    }

    async fn next_change(&self, stream: StreamId, url: &DocumentUrl, after: Sequence) -> Result<Option<Change>> {
        self.documents.next_change(stream, url, after).await
    }

    async fn page(&self, stream: StreamId, query: &DocumentQuery) -> Result<DocumentPage> {
        self.documents.page(stream, query).await
    }

    async fn feed(&self, stream: StreamId, query: FeedQuery) -> Result<FeedPage> {
        self.documents.feed(stream, query).await
    }

    async fn sequence_at(&self, time: Timestamp) -> Result<Sequence> {
        self.documents.sequence_at(time).await
    }

    async fn sweep(&self, older_than: Timestamp) -> Result<u64> {
        self.documents.sweep(older_than).await
    }

    fn head(&self) -> Sequence {
        self.documents.head()
    }

    fn listen(&self, listener: Arc<dyn ChangeListener>) {
        let write = self.write.lock().take();
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(self.documents.write(write.into_iter().collect()))
        })
        .unwrap();
        self.documents.listen(listener);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_write_while_the_work_begins_is_delivered() {
    let store = flare_memory::open(&flare_keyvalue::Options::default()).unwrap();
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let delivery = (*make::outlet(&stream, Sequence::START).delivery).clone();
    let outlet = Outlet {
        mode: Mode::Passive,
        filter: None,
        delivery: Arc::new(flare_core::outlet::DeliveryPolicy { rate: None, ttl: None, ..delivery }),
        ..make::outlet(&stream, store.documents.head())
    };
    store.outlets.insert(&outlet, None).await.unwrap();
    let body = WriteBody::Put { revision: Revision::new(1), content: Bytes::from_static(b"{}") };
    let write = DocumentWrite { stream: stream.id, url: make::url("1"), body, at: make::at(0), trace: None };
    let documents = Arc::new(Crowded { documents: store.documents.clone(), write: Mutex::new(Some(write)) });
    let store = Store { documents, ..store };
    let node = Node::start(store, &Settings::default(), &Supervisor::default()).await.unwrap();
    let (wait, lease) = (Duration::from_secs(1), Duration::from_secs(60));
    let messages = node.pull(stream.id, outlet.id, 10, wait, lease).await.unwrap();
    assert_eq!(messages.len(), 1);
}
