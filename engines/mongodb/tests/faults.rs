//! What holds when the network or the server fails under load.

#![allow(clippy::unwrap_used, reason = "a test")]

mod server;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use flare_contract::{
    heard::Heard,
    make,
    proxy::Proxy,
    server::{are_ours, control, host},
    wait::until,
};
use flare_core::{
    ErrorKind, Sequence,
    document::Written,
    outlet::Revisions,
    port::{FeedQuery, Store},
    stream::Stream,
};
use flare_mongodb::Options;
use mongodb::bson::doc;
use server::{REPLICA_SET, SEVERAL, STANDALONE, Scratch};

const WRITERS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(60);

/// Writers, each with a document of its own and ever newer revisions, two of which go in one call.
struct Load {
    store: Store,
    stream: Stream,
    heard: Arc<Heard>,
    goes_on: Arc<AtomicBool>,
    writers: Vec<tokio::task::JoinHandle<Told>>,
}

/// What writers were told: the document and revision of each change, and how many calls failed.
#[derive(Default)]
struct Told {
    changes: BTreeMap<u64, (String, i128)>,
    failures: usize,
}

impl Load {
    async fn start(store: Store) -> Self {
        let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
        let heard = Arc::new(Heard::default());
        store.documents.listen(heard.clone());
        let goes_on = Arc::new(AtomicBool::new(true));
        let writers = (0..WRITERS)
            .map(|writer| {
                let (store, stream, goes_on) = (store.clone(), stream.clone(), goes_on.clone());
                #[allow(clippy::disallowed_methods, reason = "a test")]
                tokio::spawn(async move { write(&store, &stream, writer, &goes_on).await })
            })
            .collect();
        Self { store, stream, heard, goes_on, writers }
    }

    /// Everything that was acknowledged is there once, in order, and nothing else is.
    async fn check(self) -> usize {
        self.goes_on.store(false, Ordering::Relaxed);
        let mut told = Told::default();
        for writer in self.writers {
            let mut one = tokio::time::timeout(PATIENCE, writer).await.expect("a writer got no answer").unwrap();
            told.failures += one.failures;
            told.changes.append(&mut one.changes);
        }
        println!("{} changes, {} failed calls", told.changes.len(), told.failures);
        assert!(told.changes.len() > WRITERS, "nothing could be written");
        let mut there = BTreeMap::new();
        let mut after = Sequence::START;
        while after < self.store.documents.head() {
            let query = FeedQuery { after, revisions: Revisions::All, limit: 1000, bytes_max: 16 << 20 };
            let page = self.store.documents.feed(self.stream.id, query).await.unwrap();
            after = page.until;
            for change in page.changes {
                there.insert(change.sequence.0, (change.url.as_str().to_owned(), change.revision.value()));
            }
        }
        assert_eq!(there, told.changes, "what was acknowledged and what is there");
        let total = make::feed(&self.store, self.stream.id, Sequence::START).await.len();
        let listed = self.store.documents.page(self.stream.id, &Default::default()).await.unwrap();
        assert_eq!(listed.total, total);
        until("all is heard", || self.heard.sequences.lock().len() >= there.len()).await;
        assert!(self.heard.missed.lock().is_empty());
        assert_eq!(*self.heard.sequences.lock(), there.keys().copied().collect::<Vec<_>>());
        told.failures
    }
}

async fn write(store: &Store, stream: &Stream, writer: usize, goes_on: &AtomicBool) -> Told {
    let mut told = Told::default();
    let mut revision = 0;
    let names = [format!("{writer}-a"), format!("{writer}-b")];
    while goes_on.load(Ordering::Relaxed) {
        // A revision that failed is never tried again: if it is there all the same, somebody was lied to.
        revision += 1;
        let writes = names.iter().map(|name| make::put(stream, name, revision)).collect();
        match store.documents.write(writes).await {
            Ok(written) => {
                for (written, name) in written.into_iter().zip(&names) {
                    let Written::Changed(change) = written else { panic!("{revision} was not new") };
                    told.changes.insert(change.sequence.0, (make::url(name).as_str().to_owned(), revision));
                }
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                told.failures += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    told
}

/// A store behind a proxy.
async fn behind(proxy: &Proxy, scratch: &Scratch) -> Store {
    let options =
        Options { url: Some(scratch.url_at(proxy.address())), timeout: Duration::from_secs(1), ..scratch.options(0) };
    flare_mongodb::open(&options).await.unwrap()
}

async fn nothing_is_lost_or_doubled_when_connections_are_cut(variable: &str) {
    let Some(url) = server::url(variable) else { return };
    let (scratch, proxy) = (Scratch::new(&url), Proxy::start(host(&url)).await);
    let store = behind(&proxy, &scratch).await;
    let load = Load::start(store.clone()).await;
    for round in 0..24 {
        tokio::time::sleep(Duration::from_millis(150 + 37 * (round % 5))).await;
        match round % 4 {
            0 => {}
            1 => proxy.lose_answers(),
            2 => proxy.hold(),
            _ => proxy.delay(Duration::from_millis(5)),
        }
        tokio::time::sleep(Duration::from_millis(60 + 23 * (round % 3))).await;
        proxy.cut();
        proxy.calm();
    }
    until("the store is well", || store.engine.trouble().is_none()).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    load.check().await;
    store.engine.close().await.unwrap();
    scratch.drop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_set_loses_and_doubles_nothing_when_connections_are_cut() {
    nothing_is_lost_or_doubled_when_connections_are_cut(REPLICA_SET).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_server_loses_and_doubles_nothing_when_connections_are_cut() {
    nothing_is_lost_or_doubled_when_connections_are_cut(STANDALONE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_is_told_and_ends_by_itself() {
    let Some(url) = server::url(STANDALONE) else { return };
    let (scratch, proxy) = (Scratch::new(&url), Proxy::start(host(&url)).await);
    let store = behind(&proxy, &scratch).await;
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    assert_eq!(store.engine.trouble(), None);
    proxy.refuse(true);
    proxy.cut();
    until("trouble is told", || store.engine.trouble().is_some()).await;
    let start = Instant::now();
    let failed = store.documents.get(stream.id, &make::url("1")).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Unavailable);
    let failed = store.documents.write(vec![make::put(&stream, "1", 1)]).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Unavailable);
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    assert!(failed.chain().contains(&proxy.address().to_string()), "{failed:?}");
    proxy.calm();
    until("trouble has ended, though nobody writes", || store.engine.trouble().is_none()).await;
    assert!(make::write(&store, make::put(&stream, "1", 1)).await.is_some());
    store.engine.close().await.unwrap();
    scratch.drop().await;
}

async fn a_server_is_killed_under_load(variable: &str, name: &str) {
    let Some(url) = server::url(variable) else { return };
    if !are_ours() {
        return;
    }
    let scratch = Scratch::new(&url);
    let options = Options { timeout: Duration::from_secs(2), ..scratch.options(0) };
    let store = flare_mongodb::open(&options).await.unwrap();
    let load = Load::start(store.clone()).await;
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        control("kill", name).await;
        control("up", name).await;
    }
    until("the store is well", || store.engine.trouble().is_none()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(load.check().await > 0, "nobody noticed");
    store.engine.close().await.unwrap();
    scratch.drop().await;
}

/// Ends the process of the member that takes writes.
async fn kill_the_primary(client: &mongodb::Client) {
    let status = client.database("admin").run_command(doc! { "serverStatus": 1 }).await.unwrap();
    let (pid, host) = (status.get_i64("pid").unwrap(), status.get_str("host").unwrap());
    println!("killing {host}");
    // The shell's own `kill`: there is no system call for it without `unsafe`.
    let killed = std::process::Command::new("sh").args(["-c", &format!("kill -KILL {pid}")]).status().unwrap();
    assert!(killed.success());
}

/// The others choose another one, and it is back as one of them when that one is killed.
#[tokio::test(flavor = "multi_thread")]
async fn the_primary_of_several_members_is_killed_under_load() {
    let Some(url) = server::url(SEVERAL) else { return };
    if !are_ours() {
        return;
    }
    let scratch = Scratch::new(&url);
    let client = mongodb::Client::with_uri_str(&url).await.unwrap();
    let options = Options { timeout: Duration::from_secs(5), ..scratch.options(0) };
    let store = flare_mongodb::open(&options).await.unwrap();
    let load = Load::start(store.clone()).await;
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let head = store.documents.head();
        kill_the_primary(&client).await;
        until("writes go on at another member", || store.documents.head().0 > head.0 + 100).await;
    }
    until("the store is well", || store.engine.trouble().is_none()).await;
    load.check().await;
    store.engine.close().await.unwrap();
    scratch.drop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_set_is_killed_under_load() {
    a_server_is_killed_under_load(REPLICA_SET, "mongodb").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_server_is_killed_under_load() {
    a_server_is_killed_under_load(STANDALONE, "mongodb-standalone").await;
}
