use std::{
    sync::atomic::{AtomicBool, AtomicU64},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use flare_contract::make;
use flare_core::{
    ErrorKind, Sequence,
    outlet::{Mode, Revisions},
    port::{AgreedRow, Agreement, Coordination, Engine, Limits},
    token::Scope,
};

use super::*;
use crate::{
    DocumentNews, Membership, NewToken, Roles, Settings, Settle, Supervisor,
    node::{Created, NewOutlet, NewStream, Work},
};

const LEASE: Duration = Duration::from_secs(1);

/// A store in memory that several nodes have.
struct Together {
    engine: Arc<dyn Engine>,
    /// How often everything there is was read.
    revisions_read: AtomicU64,
}

#[async_trait]
impl Engine for Together {
    fn name(&self) -> &'static str {
        "together"
    }

    fn limits(&self) -> Limits {
        Limits { is_shared: true }
    }

    fn trouble(&self) -> Option<String> {
        None
    }

    async fn entities_revision(&self) -> Result<u64> {
        self.revisions_read.fetch_add(1, Ordering::Relaxed);
        self.engine.entities_revision().await
    }

    async fn flush(&self) -> Result<()> {
        self.engine.flush().await
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// Rows that cannot be reached at times.
struct Distant {
    rows: Arc<dyn Coordination>,
    is_away: AtomicBool,
}

impl Distant {
    fn check(&self) -> Result<()> {
        if self.is_away.load(Ordering::Relaxed) { Err(Error::unavailable("away")) } else { Ok(()) }
    }
}

#[async_trait]
impl Coordination for Distant {
    async fn get(&self, key: &str) -> Result<Option<AgreedRow>> {
        self.check()?;
        self.rows.get(key).await
    }

    async fn compare_and_set(&self, key: &str, seen: Option<u64>, value: Bytes) -> Result<Agreement> {
        self.check()?;
        self.rows.compare_and_set(key, seen, value).await
    }
}

struct Lab {
    store: Store,
    distant: Arc<Distant>,
}

const API: Roles = Roles { api: true, worker: false };
const WORKER: Roles = Roles { api: false, worker: true };

impl Lab {
    fn new() -> Self {
        let store = flare_memory::open(&flare_keyvalue::Options::default()).unwrap();
        let distant = Arc::new(Distant { rows: store.coordination.clone(), is_away: AtomicBool::new(false) });
        let engine = Arc::new(Together { engine: store.engine.clone(), revisions_read: AtomicU64::new(0) });
        Self { store: Store { coordination: distant.clone(), engine, ..store }, distant }
    }

    async fn node(&self, roles: Roles) -> Arc<Node> {
        let membership = Membership::new(roles, "http://127.0.0.1:1".into(), LEASE).unwrap();
        let follow_interval = Duration::from_secs(3600);
        let settings = Settings { membership, follow_interval, ..Settings::default() };
        Node::start(self.store.clone(), &settings, &Supervisor::default()).await.unwrap()
    }
}

async fn until(what: &str, is_true: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(30), async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "in vain: {what}");
}

fn new_stream(endpoint: &str) -> NewStream {
    let Stream { endpoint, change, .. } = make::stream(endpoint);
    NewStream { endpoint, change }
}

async fn make_stream(node: &Node, endpoint: &str) -> Arc<Stream> {
    match node.create_stream(new_stream(endpoint), None).await.unwrap() {
        Created::New(stream) | Created::Before(stream) => stream,
    }
}

fn new_outlet(stream: &Stream) -> NewOutlet {
    let Outlet { name, endpoint, content, data, delivery, .. } = make::outlet(stream, Sequence::START);
    NewOutlet {
        name,
        mode: Mode::Passive,
        endpoint,
        delivery: Arc::new(flare_core::outlet::DeliveryPolicy { rate: None, ttl: None, ..(*delivery).clone() }),
        content,
        data,
        filter: None,
        revisions: Revisions::Last,
        snapshot: false,
        secret: None,
        signature: None,
    }
}

async fn make_outlet(node: &Node, stream: &Stream) -> Arc<Outlet> {
    match node.create_outlet(stream.id, new_outlet(stream), None).await.unwrap() {
        Created::New(outlet) | Created::Before(outlet) => outlet,
    }
}

async fn put(node: &Node, name: &str, revision: i128) {
    let content = Bytes::from(format!("{{\"meta\":{{\"updatedAt\":\"2026-01-31T12:00:{revision:02}Z\"}}}}"));
    node.take(DocumentNews::Put { url: make::url(name), content }, None).await.unwrap();
}

#[tokio::test]
async fn what_one_node_makes_changes_and_removes_the_other_knows() {
    let lab = Lab::new();
    let (one, two) = (lab.node(API).await, lab.node(API).await);
    let stream = make_stream(&one, "http://api.test/users/{id}").await;
    let outlet = make_outlet(&one, &stream).await;
    let new = NewToken { name: "ci".into(), scope: Scope::Read, streams: vec![], expires_in: None };
    let (token, text) = one.create_token(new).await.unwrap();
    assert!(two.stream(stream.id).is_none() && two.tokens().presented(text.reveal().as_bytes()).is_none());
    two.look_again().await.unwrap();
    assert_eq!(two.stream(stream.id).unwrap().endpoint, stream.endpoint);
    assert!(two.outlet(stream.id, outlet.id).is_some());
    assert_eq!(two.tokens().presented(text.reveal().as_bytes()), Some(token.clone()));
    assert_eq!((one.entities_revision(), two.entities_revision()), (3, 3));

    // Each begins with what the other has done.
    two.pause_outlet(stream.id, outlet.id).await.unwrap();
    let renamed = NewOutlet { name: "renamed".into(), ..new_outlet(&stream) };
    let renamed = one.update_outlet(stream.id, outlet.id, renamed).await.unwrap();
    assert!(!renamed.status.is_active(), "the pause was not lost");
    two.look_again().await.unwrap();
    assert_eq!(two.outlet(stream.id, outlet.id).unwrap().name, "renamed");

    two.revoke_token(token.id).await.unwrap();
    two.delete_outlet(stream.id, outlet.id).await.unwrap();
    two.delete_stream(stream.id).await.unwrap();
    one.look_again().await.unwrap();
    assert!(one.stream(stream.id).is_none() && one.tokens().get(token.id).is_none());
    assert_eq!(one.status().outlets, 0);
}

#[tokio::test]
async fn own_writes_and_what_is_only_new_do_not_cause_everything_to_be_read() {
    let lab = Lab::new();
    let (one, two) = (lab.node(API).await, lab.node(API).await);
    let stream = make_stream(&one, "http://api.test/users/{id}").await;
    let outlet = make_outlet(&one, &stream).await;
    let known = async |node: &Node, expected: bool| {
        let known = node.administration.lock().await;
        let revision = lab.store.engine.entities_revision().await.unwrap();
        let news = node.read_news(&known, revision).await.unwrap();
        assert_eq!(news.is_some(), expected);
    };
    one.look_again().await.unwrap();
    known(&two, true).await;
    two.look_again().await.unwrap();
    // As much is new here as was changed there: one is not taken for the other.
    two.pause_outlet(stream.id, outlet.id).await.unwrap();
    known(&one, false).await;
    one.look_again().await.unwrap();
    assert!(!one.outlet(stream.id, outlet.id).unwrap().status.is_active());
    known(&one, true).await;
}

#[tokio::test]
async fn of_two_nodes_that_make_resources_for_the_same_urls_at_once_one_is_refused() {
    let lab = Lab::new();
    let (one, two) = (lab.node(API).await, lab.node(API).await);
    for round in 0..20 {
        let (first, second) =
            (format!("http://api.test/{round}/users/{{id}}"), format!("http://api.test/{round}/{{kind}}/1"));
        let (first, second) =
            tokio::join!(one.create_stream(new_stream(&first), None), two.create_stream(new_stream(&second), None));
        let refused: Vec<_> = [first, second].into_iter().filter_map(Result::err).collect();
        assert_eq!(refused.iter().map(Error::kind).collect::<Vec<_>>(), [ErrorKind::Conflict], "{refused:?}");
    }
    assert_eq!(lab.node(API).await.status().streams, 20);
}

#[tokio::test]
async fn what_is_made_and_written_on_one_node_is_delivered_by_the_other() {
    let lab = Lab::new();
    let (api, worker) = (lab.node(API).await, lab.node(WORKER).await);
    until("the worker works", || worker.works()).await;
    assert_eq!((api.works(), api.duty().work, worker.duty().work), (false, Work::StandsBy, Work::Works));
    let stream = make_stream(&api, "http://api.test/users/{id}").await;
    let outlet = make_outlet(&api, &stream).await;
    put(&api, "1", 1).await;
    let wait = Duration::from_millis(200);
    let refused = api.pull(stream.id, outlet.id, 1, wait, LEASE).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    worker.look_again().await.unwrap();
    let messages = worker.pull(stream.id, outlet.id, 10, wait, LEASE).await.unwrap();
    assert_eq!(messages.len(), 1);
    until("the node that stands by knows who works", || api.duty().worker.is_some()).await;
    assert_eq!(api.duty().worker.unwrap().node, worker.membership().node);

    api.delete_outlet(stream.id, outlet.id).await.unwrap();
    worker.look_again().await.unwrap();
    let gone = worker.pull(stream.id, outlet.id, 10, wait, LEASE).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    worker.finish().await;
    until("its end is heard of", || api.duty().worker.is_none()).await;
    assert!(api.duty().absence().contains(&worker.membership().node.to_string()), "{}", api.duty().absence());
}

#[tokio::test]
async fn one_who_loses_its_turn_stops_in_place_goes_on_answering_and_takes_it_again() {
    let lab = Lab::new();
    let node = lab.node(Roles::BOTH).await;
    until("it works", || node.works()).await;
    assert_eq!(node.duty().worker.unwrap().epoch, 1);
    let stream = make_stream(&node, "http://api.test/users/{id}").await;
    let outlet = make_outlet(&node, &stream).await;
    put(&node, "1", 1).await;
    put(&node, "2", 1).await;
    let pull = async || node.pull(stream.id, outlet.id, 10, Duration::from_millis(200), LEASE).await;
    let messages = pull().await.unwrap();
    assert_eq!(messages.len(), 2);
    let settled = node.settle(stream.id, outlet.id, vec![messages[0].receipt.clone()], Settle::Acknowledge).await;
    settled.unwrap()[0].as_ref().unwrap();
    node.lag(stream.id, outlet.id).await.unwrap();

    // A long pull is under way when the turn is lost.
    let long = node.pull(stream.id, outlet.id, 10, Duration::from_secs(60), LEASE);
    lab.distant.is_away.store(true, Ordering::Relaxed);
    assert_eq!(long.await.unwrap_err().kind(), ErrorKind::Unavailable);
    until("it does not work any more", || !node.works()).await;
    until("it says so", || node.duty().work == Work::Waits).await;
    assert!(node.duty().worker.is_none());
    put(&node, "3", 1).await;
    make_outlet(&node, &stream).await;
    assert_eq!(pull().await.unwrap_err().kind(), ErrorKind::Unavailable);

    lab.distant.is_away.store(false, Ordering::Relaxed);
    until("it works again", || node.works()).await;
    let urls: Vec<_> = pull().await.unwrap().iter().map(|message| message.change.url.clone()).collect();
    assert_eq!(urls.len(), 2, "{urls:?}");
    assert!(!urls.contains(&messages[0].change.url), "what was acknowledged before is not sent again");
    assert!(urls.contains(&make::url("3")));
    until("the new epoch is known", || node.duty().worker.is_some_and(|worker| worker.epoch == 2)).await;
}

#[tokio::test]
async fn one_who_waits_answers_and_takes_over_when_the_other_leaves() {
    let lab = Lab::new();
    let first = lab.node(Roles::BOTH).await;
    until("the first works", || first.works()).await;
    let second = lab.node(Roles::BOTH).await;
    let stream = make_stream(&second, "http://api.test/users/{id}").await;
    until("the second knows for whom it waits", || second.duty().worker.is_some()).await;
    assert_eq!((second.works(), second.duty().worker.unwrap().node), (false, first.membership().node));
    first.look_again().await.unwrap();
    let outlet = make_outlet(&first, &stream).await;
    put(&second, "1", 1).await;
    first.finish().await;
    until("the second works", || second.works()).await;
    let messages = second.pull(stream.id, outlet.id, 10, Duration::from_secs(5), LEASE).await.unwrap();
    assert_eq!(messages.len(), 1);
    assert!(!first.works());
}
