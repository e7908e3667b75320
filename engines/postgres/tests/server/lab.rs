//! A store that is disturbed while many write to it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use flare_contract::{heard::Heard, make, proxy::Proxy, wait::until};
use flare_core::{
    ErrorKind, Sequence,
    document::{Change, Written},
    outlet::Revisions,
    port::{FeedQuery, Store},
    stream::Stream,
};

use super::Server;

const ENDPOINT: &str = "http://api.test/users/{id}";

/// A store behind a proxy, and one that goes straight to the server.
pub struct Lab {
    server: Server,
    pub proxy: Proxy,
    pub store: Store,
    pub straight: Store,
    pub stream: Stream,
}

impl Lab {
    pub async fn open(name: &str) -> Option<Self> {
        Self::open_with(name, Duration::from_secs(5)).await
    }

    pub async fn open_with(name: &str, timeout: Duration) -> Option<Self> {
        let server = Server::find()?;
        let proxy = Proxy::start(&server.host()).await;
        let straight = server.open(name).await;
        let options = server.options(name);
        let url = server.url.replace(&server.host(), &proxy.address().to_string());
        let store =
            flare_postgres::open(&flare_postgres::Options { url: Some(url), timeout, ..options }).await.unwrap();
        let stream = make::stored_stream(&straight, ENDPOINT).await;
        Some(Self { server, proxy, store, straight, stream })
    }

    pub async fn close(self) {
        self.proxy.refuse(false);
        self.store.engine.close().await.unwrap();
        self.straight.engine.close().await.unwrap();
        self.server.clean_up().await;
    }

    pub async fn history(&self) -> Vec<Change> {
        let mut all = Vec::new();
        let mut after = Sequence::START;
        // The node that did not write hears of it soon.
        until("the nodes agree", || self.store.documents.head() <= self.straight.documents.head()).await;
        let head = self.straight.documents.head();
        while after < head {
            let query = FeedQuery { after, revisions: Revisions::All, limit: 1000, bytes_max: 1 << 24 };
            let page = self.straight.documents.feed(self.stream.id, query).await.unwrap();
            all.extend(page.changes);
            after = page.until;
        }
        all
    }
}

pub fn is_change(written: &[Written]) -> bool {
    matches!(written, [Written::Changed(_)])
}

/// Writes revision after revision of one document. Whoever is told that nothing was written may write it again, and
/// then it must be a change: nobody else writes this document.
async fn write_on(store: Store, stream: Stream, name: String, over: Arc<AtomicBool>, failed: Arc<AtomicU64>) -> i128 {
    let mut revision = 0;
    while !over.load(Ordering::Relaxed) {
        let write = make::put(&stream, &name, revision + 1);
        match store.documents.write(vec![write]).await {
            Ok(written) => {
                assert!(is_change(&written), "{name} {}: written, although it was said that it was not", revision + 1);
                revision += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                failed.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
    revision
}

/// Writers on both nodes while `disturb` does what it likes, then a look at what is there.
pub async fn survive(lab: &Lab, disturb: impl Future<Output = ()>) {
    const WRITERS: usize = 24;
    let heard = Arc::new(Heard::default());
    lab.store.documents.listen(heard.clone());
    let (over, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let store = if number % 6 == 0 { &lab.straight } else { &lab.store };
            tokio::spawn(write_on(store.clone(), lab.stream.clone(), number.to_string(), over.clone(), failed.clone()))
        })
        .collect();
    disturb.await;
    lab.proxy.calm();
    over.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.push(writer.await.unwrap());
    }
    let written: i128 = acknowledged.iter().sum();
    // One that was refused asks again a little later.
    for store in [&lab.store, &lab.straight] {
        until("the store is well", || store.engine.trouble().is_none()).await;
    }
    until("the nodes agree", || lab.store.documents.head() == lab.straight.documents.head()).await;
    let history = lab.history().await;
    assert!(history.windows(2).all(|pair| pair[0].sequence < pair[1].sequence));
    for (number, acknowledged) in acknowledged.iter().enumerate() {
        let url = make::url(&number.to_string());
        let revisions: Vec<i128> =
            history.iter().filter(|change| change.url == url).map(|change| change.revision.value()).collect();
        assert_eq!(revisions, (1..=*acknowledged).collect::<Vec<_>>(), "document {number}");
    }
    assert_eq!(history.len() as i128, written);
    until("all is heard", || heard.sequences.lock().len() as i128 >= written).await;
    assert_eq!(*heard.sequences.lock(), history.iter().map(|change| change.sequence.0).collect::<Vec<_>>());
    println!("{written} changes, {} refusals, {} connections", failed.load(Ordering::Relaxed), lab.proxy.connections());
    assert!(written > 0);
}
