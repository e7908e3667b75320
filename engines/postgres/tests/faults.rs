//! Connections that break at the worst moment: nothing acknowledged is lost, nothing is done twice, and nobody is told
//! that nothing was written of what is.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use flare_contract::{
    make,
    proxy::{Cut, Proxy},
};
use flare_core::{
    ErrorKind, Sequence,
    document::{Change, Progress, Written},
    outlet::Revisions,
    port::{ChangeListener, FeedQuery, Store},
    stream::Stream,
};
use parking_lot::Mutex;
use server::Server;

const COMMIT: &[u8] = b"COMMIT\0";
const ENDPOINT: &str = "http://api.test/users/{id}";

/// A store behind a proxy, and one that goes straight to the server.
struct Lab {
    server: Server,
    proxy: Proxy,
    store: Store,
    straight: Store,
    stream: Stream,
}

impl Lab {
    async fn open(name: &str) -> Option<Self> {
        Self::open_with(name, Duration::from_secs(5)).await
    }

    async fn open_with(name: &str, timeout: Duration) -> Option<Self> {
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

    async fn close(self) {
        self.proxy.refuse(false);
        self.store.engine.close().await.unwrap();
        self.straight.engine.close().await.unwrap();
        self.server.clean_up().await;
    }

    async fn history(&self) -> Vec<Change> {
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

async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < Duration::from_secs(30), "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn is_change(written: &[Written]) -> bool {
    matches!(written, [Written::Changed(_)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_counts_once() {
    let Some(lab) = Lab::open("lost").await else { return };
    make::write(&lab.store, make::put(&lab.stream, "1", 1)).await.unwrap();
    for (round, cut) in [Cut::After, Cut::Before, Cut::After].into_iter().enumerate() {
        let revision = round as i128 + 2;
        lab.proxy.cut_at(COMMIT, cut);
        let written = lab.store.documents.write(vec![make::put(&lab.stream, "1", revision)]).await.unwrap();
        assert!(lab.proxy.has_cut());
        assert!(is_change(&written), "{cut:?}: {written:?}");
        assert!(make::write(&lab.store, make::put(&lab.stream, "1", revision)).await.is_none());
    }
    let revisions: Vec<_> = lab.history().await.iter().map(|change| change.revision.value()).collect();
    assert_eq!(revisions, [1, 2, 3, 4]);
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entity_whose_commit_is_lost_is_made_once() {
    let Some(lab) = Lab::open("entity").await else { return };
    for cut in [Cut::After, Cut::Before] {
        lab.proxy.cut_at(COMMIT, cut);
        let stream = make::stream("http://api.test/orders/{id}");
        lab.store.streams.insert(&stream, None).await.unwrap();
        assert!(lab.proxy.has_cut());
        let error = lab.store.streams.insert(&stream, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
    }
    assert_eq!(lab.straight.streams.page(None, 10).await.unwrap().len(), 3);
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_outcome_is_unknown_others_are_refused_and_the_writer_waits() {
    let Some(lab) = Lab::open_with("doubt", Duration::from_secs(1)).await else { return };
    make::write(&lab.store, make::put(&lab.stream, "1", 1)).await.unwrap();
    lab.proxy.vanish_at(COMMIT, Cut::After);
    let (documents, write) = (lab.store.documents.clone(), make::put(&lab.stream, "1", 2));
    let in_doubt = tokio::spawn(async move { documents.write(vec![write]).await });
    until("the connection is cut", || lab.proxy.has_cut()).await;
    until("it is known that the server is away", || lab.store.engine.trouble().is_some()).await;
    for name in ["2", "3"] {
        let begun = Instant::now();
        let error = lab.store.documents.write(vec![make::put(&lab.stream, name, 1)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
    assert!(!in_doubt.is_finished(), "nobody can know the outcome yet");
    lab.proxy.refuse(false);
    assert!(is_change(&in_doubt.await.unwrap().unwrap()));
    // What was refused was not written, neither then nor later.
    let names: Vec<_> = lab.history().await.iter().map(|change| change.url.as_str().to_owned()).collect();
    assert!(names.iter().all(|name| name.ends_with("/1")), "{names:?}");
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_names_the_server_and_ends_by_itself() {
    let Some(lab) = Lab::open_with("trouble", Duration::from_secs(1)).await else { return };
    assert_eq!(lab.store.engine.trouble(), None);
    lab.proxy.refuse(true);
    until("trouble is noticed although nobody writes", || lab.store.engine.trouble().is_some()).await;
    let trouble = lab.store.engine.trouble().unwrap();
    assert!(trouble.contains(&lab.proxy.address().to_string()) && !trouble.contains('@'), "{trouble}");
    let begun = Instant::now();
    let error = lab.store.documents.write(vec![make::put(&lab.stream, "1", 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = lab.store.documents.get(lab.stream.id, &make::url("1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(4));
    lab.proxy.refuse(false);
    until("trouble ends although nobody writes", || lab.store.engine.trouble().is_none()).await;
    make::write(&lab.store, make::put(&lab.stream, "1", 1)).await.unwrap();
    lab.close().await;
}

/// What was sent on a connection that was given up, and comes through when newer progress is recorded, counts no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_comes_late_changes_nothing() {
    let Some(lab) = Lab::open_with("late", Duration::from_millis(500)).await else { return };
    let outlet = make::stored_outlet(&lab.straight, &lab.stream).await.id;
    let record = |cursor| lab.store.deliveries.record(vec![Progress::Cursor { outlet, cursor: Sequence(cursor) }]);
    record(1).await.unwrap();
    lab.proxy.hold();
    assert_eq!(record(2).await.unwrap_err().kind(), ErrorKind::Unavailable);
    record(9).await.unwrap();
    lab.proxy.release();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(lab.straight.deliveries.standing(outlet).await.unwrap().cursor, Sequence(9));
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_owner_is_told_so() {
    let Some(lab) = Lab::open("owner").await else { return };
    let outlet = make::stored_outlet(&lab.straight, &lab.stream).await.id;
    let step = |cursor| vec![Progress::Cursor { outlet, cursor: Sequence(cursor) }];
    lab.store.deliveries.seal(1).await.unwrap();
    lab.store.deliveries.record(step(1)).await.unwrap();
    lab.straight.deliveries.seal(2).await.unwrap();
    lab.straight.deliveries.record(step(7)).await.unwrap();
    let error = lab.store.deliveries.record(step(2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(lab.straight.deliveries.standing(outlet).await.unwrap().cursor, Sequence(7));
    lab.close().await;
}

#[derive(Default)]
struct Heard {
    sequences: Mutex<Vec<u64>>,
}

impl ChangeListener for Heard {
    fn changed(&self, changes: Vec<Arc<Change>>) {
        self.sequences.lock().extend(changes.iter().map(|change| change.sequence.0));
    }

    fn missed(&self, _: Sequence) {}
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
async fn survive(lab: &Lab, disturb: impl Future<Output = ()>) {
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

#[tokio::test(flavor = "multi_thread")]
async fn connections_cut_under_load_lose_and_double_nothing() {
    let Some(lab) = Lab::open("cuts").await else { return };
    survive(&lab, async {
        for round in 0..60 {
            tokio::time::sleep(Duration::from_millis(20 + round * 13 % 70)).await;
            match round % 4 {
                0 => lab.proxy.cut_at(COMMIT, Cut::After),
                1 => lab.proxy.cut_at(COMMIT, Cut::Before),
                _ => lab.proxy.cut(),
            }
        }
    })
    .await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_and_goes_loses_and_doubles_nothing() {
    let Some(lab) = Lab::open_with("outages", Duration::from_secs(1)).await else { return };
    survive(&lab, async {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            lab.proxy.vanish_at(COMMIT, Cut::After);
            tokio::time::sleep(Duration::from_millis(500)).await;
            lab.proxy.calm();
            tokio::time::sleep(Duration::from_millis(300)).await;
            lab.proxy.hold();
            tokio::time::sleep(Duration::from_millis(300)).await;
            lab.proxy.cut();
            lab.proxy.calm();
        }
    })
    .await;
    lab.close().await;
}

/// Only with a server that was started by `dev/servers`: FLARE_TEST_SERVERS=1.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_under_load_loses_and_doubles_nothing() {
    if std::env::var("FLARE_TEST_SERVERS").as_deref() != Ok("1") {
        println!("skipped: FLARE_TEST_SERVERS is not 1, so the server is not ours to kill");
        return;
    }
    let Some(lab) = Lab::open("killed").await else { return };
    survive(&lab, async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(700)).await;
            server::control("kill").await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            server::control("up").await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    })
    .await;
    lab.close().await;
}
