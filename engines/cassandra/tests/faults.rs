//! Connections that break at the worst moment: nothing acknowledged is lost, nothing is done twice, and nobody is told
//! that nothing was written of what is.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod common;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use common::Keyspaces;
use flare_cassandra::Options;
use flare_contract::{
    heard::Heard,
    make,
    proxy::{Cut, Proxy},
    server::{are_ours, control},
    wait::until,
};
use flare_core::{
    ErrorKind, Sequence,
    document::{Change, Progress, Retry, Written},
    outlet::Revisions,
    port::{DocumentQuery, FeedQuery, Store},
    stream::Stream,
};
use futures_util::future::join_all;
use parking_lot::Mutex;

/// Only the request that appends a group of changes to the log has this value.
const APPEND: &[u8] = b"\0\0\0\x07changes";
/// And only the one that appends rows of entities this one.
const APPEND_ROWS: &[u8] = b"\0\0\0\x04rows";
const ENDPOINT: &str = "http://api.test/users/{id}";
const PATIENCE: Duration = Duration::from_secs(60);

/// A store behind a proxy, and one that goes straight to the server.
struct Lab {
    keyspaces: Keyspaces,
    proxy: Proxy,
    store: Store,
    straight: Store,
    stream: Stream,
}

impl Lab {
    async fn open() -> Option<Self> {
        Self::open_with(Duration::from_secs(5)).await
    }

    async fn open_with(timeout: Duration) -> Option<Self> {
        let server = common::server()?;
        let keyspaces = Keyspaces::new(&server).await;
        let proxy = Proxy::start(&server.host).await;
        let straight = flare_cassandra::open(&keyspaces.options(0)).await.unwrap();
        let options = keyspaces.options(0);
        let hosts = vec![proxy.address().to_string()];
        let store = flare_cassandra::open(&Options { hosts, timeout, ..options }).await.unwrap();
        let stream = make::stored_stream(&straight, ENDPOINT).await;
        Some(Self { keyspaces, proxy, store, straight, stream })
    }

    async fn close(self) {
        self.proxy.refuse(false);
        self.store.engine.close().await.unwrap();
        self.straight.engine.close().await.unwrap();
        self.keyspaces.drop_all(0..1).await;
    }

    /// All changes, as a node sees them that went straight to the server.
    async fn history(&self) -> Vec<Change> {
        history(&self.straight, &self.stream, self.store.documents.head()).await
    }
}

async fn history(store: &Store, stream: &Stream, head: Sequence) -> Vec<Change> {
    until("the head of the other node is known", || store.documents.head() >= head).await;
    let (mut all, mut after) = (Vec::new(), Sequence::START);
    while after < store.documents.head() {
        let query = FeedQuery { after, revisions: Revisions::All, limit: 1000, bytes_max: 1 << 24 };
        let page = store.documents.feed(stream.id, query).await.unwrap();
        all.extend(page.changes);
        after = page.until;
    }
    all
}

fn is_change(written: &[Written]) -> bool {
    matches!(written, [Written::Changed(_)])
}

fn revisions(changes: &[Change]) -> Vec<i128> {
    changes.iter().map(|change| change.revision.value()).collect()
}

/// Writes until the connections are back.
async fn write_when_back(store: &Store, stream: &Stream, name: &str, revision: i128) -> Vec<Written> {
    let begun = Instant::now();
    loop {
        match store.documents.write(vec![make::put(stream, name, revision)]).await {
            Ok(written) => return written,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
        }
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_whose_answer_is_lost_counts_once() {
    let Some(lab) = Lab::open().await else { return };
    make::write(&lab.store, make::put(&lab.stream, "1", 1)).await.unwrap();
    for (round, cut) in [Cut::After, Cut::Before, Cut::After].into_iter().enumerate() {
        let revision = round as i128 + 2;
        lab.proxy.cut_at(APPEND, cut);
        let written = write_when_back(&lab.store, &lab.stream, "1", revision).await;
        assert!(lab.proxy.has_cut());
        assert!(is_change(&written), "{cut:?}: {written:?}");
    }
    for cut in [Cut::After, Cut::Before] {
        let stream = make::stream("http://api.test/orders/{id}");
        // The connections come back in their own time.
        while lab.store.streams.page(None, 1).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        lab.proxy.cut_at(APPEND_ROWS, cut);
        while let Err(error) = lab.store.streams.insert(&stream, None, None).await {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(lab.proxy.has_cut());
        let again = lab.straight.streams.insert(&stream, None, None).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Conflict);
    }
    assert_eq!(revisions(&lab.history().await), [1, 2, 3, 4]);
    lab.close().await;
}

/// A node is gone just after it has appended: the others bring it to an end, and hear of it.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_leaves_is_finished_by_others() {
    let Some(lab) = Lab::open_with(Duration::from_secs(1)).await else { return };
    make::write(&lab.store, make::put(&lab.stream, "1", 1)).await.unwrap();
    let heard = Arc::new(Heard::default());
    let first = lab.store.documents.head();
    until("the first change is known", || lab.straight.documents.head() == first).await;
    lab.straight.documents.listen(heard.clone());
    lab.proxy.vanish_at(APPEND, Cut::After);
    let (documents, write) = (lab.store.documents.clone(), make::put(&lab.stream, "1", 2));
    let in_doubt = tokio::spawn(async move { documents.write(vec![write]).await });
    until("the other node hears of it", || *heard.sequences.lock() == [first.0 + 1]).await;
    let read = lab.straight.documents.get(lab.stream.id, &make::url("1")).await.unwrap().unwrap();
    assert_eq!((read.revision.value(), read.replaces), (2, Some(first)));
    let query = DocumentQuery { limit: 10, ..Default::default() };
    assert_eq!(lab.straight.documents.page(lab.stream.id, &query).await.unwrap().total, 1);
    make::write(&lab.straight, make::put(&lab.stream, "2", 1)).await.unwrap();
    // The writer learns in the end what became of it.
    assert!(!in_doubt.is_finished(), "nobody could tell it");
    lab.proxy.refuse(false);
    assert!(is_change(&in_doubt.await.unwrap().unwrap()));
    assert_eq!(revisions(&lab.history().await), [1, 2, 1]);
    lab.close().await;
}

/// An append that was given up comes through when another node has taken its turn: it must not count any more.
#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_comes_late_changes_nothing() {
    let Some(lab) = Lab::open_with(Duration::from_secs(1)).await else { return };
    make::write(&lab.store, make::put(&lab.stream, "1", 1)).await.unwrap();
    let head = lab.store.documents.head();
    until("the first change is known", || lab.straight.documents.head() == head).await;
    lab.proxy.hold_at(APPEND);
    let (documents, write) = (lab.store.documents.clone(), make::put(&lab.stream, "1", 2));
    let late = tokio::spawn(async move { documents.write(vec![write]).await });
    until("it is on its way", || lab.proxy.has_cut()).await;
    let newer = make::write(&lab.straight, make::put(&lab.stream, "1", 3)).await.unwrap();
    assert_eq!(newer.replaces, Some(head));
    lab.proxy.release();
    // By now revision 3 is there, and 2 is old.
    assert!(matches!(late.await.unwrap().unwrap()[..], [Written::Unchanged]));
    assert_eq!(revisions(&lab.history().await), [1, 3]);
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_names_the_server_and_ends_by_itself() {
    let Some(lab) = Lab::open_with(Duration::from_secs(2)).await else { return };
    assert_eq!(lab.store.engine.trouble(), None);
    lab.proxy.refuse(true);
    until("trouble is noticed although nobody writes", || lab.store.engine.trouble().is_some()).await;
    let trouble = lab.store.engine.trouble().unwrap();
    assert!(trouble.contains(&lab.proxy.address().to_string()), "{trouble}");
    let begun = Instant::now();
    let error = lab.store.documents.write(vec![make::put(&lab.stream, "1", 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = lab.store.documents.get(lab.stream.id, &make::url("1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    lab.proxy.refuse(false);
    until("trouble ends although nobody writes", || lab.store.engine.trouble().is_none()).await;
    make::write(&lab.store, make::put(&lab.stream, "1", 1)).await.unwrap();
    lab.close().await;
}

/// What an owner that was replaced has sent comes through late.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_comes_late_changes_nothing() {
    let Some(lab) = Lab::open_with(Duration::from_secs(1)).await else { return };
    let outlet = make::stored_outlet(&lab.straight, &lab.stream).await.id;
    let number = make::write(&lab.straight, make::put(&lab.stream, "1", 1)).await.unwrap().number;
    let retry = |attempts| Retry { outlet, number, url: make::url("1"), attempts, due: make::at(60) };
    let cursor = |cursor| Progress::Cursor { outlet, cursor: Sequence(cursor) };
    let (old, new) = (&lab.store.deliveries, &lab.straight.deliveries);
    old.seal(1).await.unwrap();
    old.record(vec![Progress::Retry(retry(1)), cursor(1)]).await.unwrap();
    lab.proxy.hold();
    let error = old.record(vec![Progress::Settled { outlet, number }, cursor(2)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    new.seal(2).await.unwrap();
    new.record(vec![Progress::Retry(retry(2)), cursor(9)]).await.unwrap();
    lab.proxy.release();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let standing = new.standing(outlet).await.unwrap();
    assert_eq!((standing.cursor, standing.retries), (Sequence(9), vec![retry(2)]));
    // And it is told so when it goes on.
    let mut refused = old.record(vec![cursor(3)]).await;
    while refused.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        refused = old.record(vec![cursor(3)]).await;
    }
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
    lab.close().await;
}

/// What the writers of a load were told.
#[derive(Default)]
struct Answers {
    /// By sequence: the document and its revision.
    acknowledged: Mutex<BTreeMap<u64, (String, i128)>>,
    refused: Mutex<Vec<(String, i128)>>,
    revision: AtomicU64,
}

/// Writers that write new revisions of a few documents until they are told to stop. A revision is written once.
async fn load(store: &Store, stream: &Stream, answers: &Answers, is_over: &AtomicBool) {
    let writers = (0..8).map(|writer| async move {
        while !is_over.load(Ordering::Relaxed) {
            let revision = i128::from(answers.revision.fetch_add(1, Ordering::Relaxed)) + 1;
            let name = format!("{writer}-{}", revision % 3);
            match store.documents.write(vec![make::put(stream, &name, revision)]).await {
                Ok(written) => {
                    let [Written::Changed(change)] = &written[..] else { panic!("{written:?}") };
                    let before = answers.acknowledged.lock().insert(change.sequence.0, (name, revision));
                    assert_eq!(before, None, "a sequence was given out twice");
                }
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    answers.refused.lock().push((name, revision));
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                // Nobody knows: it may be there or not.
                Err(error) => assert_eq!(error.kind(), ErrorKind::Internal, "{error:?}"),
            }
        }
    });
    join_all(writers).await;
}

fn compare(history: &[Change], answers: &Answers) {
    let there: BTreeMap<u64, (String, i128)> = history
        .iter()
        .map(|change| {
            let name = change.url.as_str().rsplit('/').next().unwrap().to_owned();
            (change.sequence.0, (name, change.revision.value()))
        })
        .collect();
    assert_eq!(there.len(), history.len(), "a sequence is there twice");
    for (sequence, written) in answers.acknowledged.lock().iter() {
        assert_eq!(there.get(sequence), Some(written), "an acknowledged write is lost");
    }
    for refused in answers.refused.lock().iter() {
        assert!(!there.values().any(|written| written == refused), "{refused:?} was said not to be written");
    }
    let mut newest: BTreeMap<&str, (i128, Sequence)> = BTreeMap::new();
    for change in history {
        let before = newest.insert(change.url.as_str(), (change.revision.value(), change.sequence));
        assert_eq!(before.map(|(_, sequence)| sequence), change.replaces);
        assert!(before.is_none_or(|(revision, _)| revision < change.revision.value()), "a document went back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cuts_under_load_lose_nothing_and_double_nothing() {
    let Some(lab) = Lab::open().await else { return };
    let (answers, is_over) = (Answers::default(), AtomicBool::new(false));
    let heard = Arc::new(Heard::default());
    lab.store.documents.listen(heard.clone());
    let cuts = async {
        for round in 0..6 {
            tokio::time::sleep(Duration::from_millis(700)).await;
            match round % 3 {
                0 => lab.proxy.cut(),
                1 => lab.proxy.cut_at(APPEND, Cut::After),
                _ => lab.proxy.cut_at(APPEND, Cut::Before),
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(load(&lab.store, &lab.stream, &answers, &is_over), cuts);
    assert!(answers.acknowledged.lock().len() > 20, "there was no load");
    let history = lab.history().await;
    compare(&history, &answers);
    let all: Vec<u64> = history.iter().map(|change| change.sequence.0).collect();
    until("all is heard", || heard.sequences.lock().len() >= all.len()).await;
    assert_eq!(*heard.sequences.lock(), all, "heard in order, once");
    until("trouble is over", || lab.store.engine.trouble().is_none()).await;
    println!(
        "{} acknowledged, {} refused, {} in the log",
        answers.acknowledged.lock().len(),
        answers.refused.lock().len(),
        history.len()
    );
    lab.close().await;
}

/// The server itself is killed under load and started again, where the tests may do so.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_nothing() {
    if !are_ours() {
        return;
    }
    let Some(lab) = Lab::open().await else { return };
    let (answers, is_over) = (Answers::default(), AtomicBool::new(false));
    let killing = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        control("kill", "cassandra").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        control("up", "cassandra").await;
        let acknowledged = answers.acknowledged.lock().len();
        until("writes go on", || answers.acknowledged.lock().len() > acknowledged + 5).await;
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(load(&lab.straight, &lab.stream, &answers, &is_over), killing);
    until("trouble is over", || lab.store.engine.trouble().is_none()).await;
    let head = lab.straight.documents.head();
    compare(&history(&lab.store, &lab.stream, head).await, &answers);
    lab.close().await;
}
