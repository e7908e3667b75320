//! A node that ends at any step of a write, or comes back late: against real servers.

use std::time::Duration;

use flare_contract::make;
use flare_core::{
    port::{DocumentQuery, Store},
    revision::Revision,
    stream::Stream,
};
use mongodb::bson::oid::ObjectId;

use super::*;
use crate::{Options, table::Table};

/// A node of which each step can be taken by itself.
struct Node {
    options: Options,
    writer: Writer,
    store: Store,
    stream: Stream,
}

impl Node {
    async fn open(url: &str) -> Self {
        let database = Some(format!("flare_test_{}", ObjectId::new().to_hex()));
        let options = Options { url: Some(url.to_owned()), database, ..Options::default() };
        let store = crate::open(&options).await.unwrap();
        let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
        let connection = Arc::new(Connection::open(&options).await.unwrap());
        let log = Arc::new(Log::new(connection.clone()));
        let follower = Arc::new(Follower::new(Sequence::START));
        let writer = Writer { connection, log, follower, state: Mutex::default() };
        Self { options, writer, store, stream }
    }

    async fn plan(&self, name: &str, revision: i128) -> Plan {
        self.plan_all(vec![make::put(&self.stream, name, revision)]).await
    }

    async fn plan_all(&self, writes: Vec<DocumentWrite>) -> Plan {
        let position = self.writer.log.recover().await.unwrap();
        self.writer.plan_documents(&mut Cache::default(), position, &[writes]).await.unwrap()
    }

    async fn commit(&self, plan: &Plan) -> bool {
        self.writer.log.commit(&plan.group).await.map_err(Failure::into_error).unwrap()
    }

    async fn outcome(&self, plan: &Plan) -> Outcome {
        self.writer.log.outcome(&plan.group).await.unwrap()
    }

    /// Applies the rows of some tables only, as one does who ends in the middle.
    async fn apply(&self, plan: &Plan, tables: &[Table]) {
        self.writer.log.apply(&plan.group.rows.only(tables)).await.map_err(Failure::into_error).unwrap();
    }

    async fn revision(&self, store: &Store, name: &str) -> Option<Revision> {
        store.documents.get(self.stream.id, &make::url(name)).await.unwrap().map(|change| change.revision)
    }

    async fn end(self) {
        self.store.engine.close().await.unwrap();
        self.writer.connection.database().drop().await.unwrap();
    }
}

/// Runs the case on every kind of server that there is.
async fn on_each<F: Future<Output = ()>>(case: impl Fn(Node) -> F) {
    for variable in ["FLARE_TEST_MONGODB_URL", "FLARE_TEST_MONGODB_STANDALONE_URL"] {
        match std::env::var(variable) {
            Ok(url) => case(Node::open(&url).await).await,
            Err(_) if std::env::var("CI").is_ok_and(|ci| ci == "true") => panic!("{variable} is not set"),
            Err(_) => println!("skipped: {variable} is not set; dev/servers starts the server and prints it"),
        }
    }
}

async fn until(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(30), async {
        while !is_true().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(waited.await.is_ok(), "in vain: {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_committed_is_finished_by_others_wherever_its_writer_ended() {
    let applied: [&[Table]; 4] = [&[], &[Table::Changes], &[Table::Documents], &[Table::Changes, Table::Documents]];
    for tables in applied {
        on_each(|node| async move {
            make::write(&node.store, make::put(&node.stream, "1", 1)).await.unwrap();
            let plan = node.plan("1", 2).await;
            assert!(node.commit(&plan).await);
            node.apply(&plan, tables).await;
            // One that opens the store sees it at once.
            let other = crate::open(&node.options).await.unwrap();
            assert_eq!(other.documents.head(), plan.group.sequence);
            assert_eq!(node.revision(&other, "1").await, Some(Revision::new(2)));
            let written = make::write(&node.store, make::put(&node.stream, "1", 3)).await.unwrap();
            assert_eq!(written.replaces, Some(plan.group.sequence));
            other.engine.close().await.unwrap();
            node.end().await;
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_only_wait_find_what_was_left_half_done() {
    on_each(|node| async move {
        let plan = node.plan("1", 1).await;
        assert!(node.commit(&plan).await);
        until("the other node hears of it", async || node.store.documents.head() == plan.group.sequence).await;
        assert_eq!(node.revision(&node.store, "1").await, Some(Revision::new(1)));
        node.end().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_a_document_whose_change_is_not_there_yet_waits_for_it() {
    on_each(|node| async move {
        let plan = node.plan("1", 1).await;
        assert!(node.commit(&plan).await);
        node.apply(&plan, &[Table::Documents]).await;
        assert_eq!(node.revision(&node.store, "1").await, Some(Revision::new(1)));
        node.end().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_overtaken_commits_nothing() {
    on_each(|node| async move {
        let plan = node.plan("1", 1).await;
        make::write(&node.store, make::put(&node.stream, "2", 1)).await.unwrap();
        assert!(!node.commit(&plan).await);
        assert_eq!(node.revision(&node.store, "1").await, None);
        assert_eq!(node.outcome(&plan).await, Outcome::Lost);
        node.end().await;
    })
    .await;
}

/// Its rows arrive a second time, after newer ones: nothing goes back, and nothing that was deleted comes back.
#[tokio::test(flavor = "multi_thread")]
async fn who_applies_late_changes_nothing() {
    on_each(|node| async move {
        let plan = node.plan("1", 1).await;
        assert!(node.commit(&plan).await);
        let newer = make::write(&node.store, make::put(&node.stream, "1", 2)).await.unwrap();
        let outlet = make::outlet(&node.stream, newer.sequence);
        let body = flare_toolkit::rows::encode_outlet(&outlet).unwrap();
        let write = EntityWrite::InsertOutlet {
            id: outlet.id,
            stream: node.stream.id,
            body,
            start: newer.sequence,
            once: None,
        };
        let position = node.writer.log.recover().await.unwrap();
        let inserted = node.writer.plan_entity(position, &write).await.unwrap();
        assert!(node.commit(&inserted).await);
        node.store.outlets.delete(outlet.id).await.unwrap();
        node.apply(&plan, &Table::OF_GROUPS).await;
        node.apply(&inserted, &[Table::Outlets]).await;
        assert_eq!(node.revision(&node.store, "1").await, Some(Revision::new(2)));
        assert!(node.store.outlets.page(None, 10, &|_| None).await.unwrap().is_empty());
        let all = make::history(&node.store, node.stream.id, Sequence::START).await;
        assert_eq!(all.iter().map(|change| change.revision.value()).collect::<Vec<_>>(), [1, 2]);
        node.end().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_was_not_answered_is_known_to_be_committed() {
    on_each(|node| async move {
        let plan = node.plan("1", 1).await;
        assert!(node.commit(&plan).await);
        assert_eq!(node.outcome(&plan).await, Outcome::Committed);
        for revision in 2..5 {
            make::write(&node.store, make::put(&node.stream, "1", revision)).await.unwrap();
        }
        assert_eq!(node.outcome(&plan).await, Outcome::Committed, "others have written since");
        node.end().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_still_on_its_way_is_stopped_for_good() {
    on_each(|node| async move {
        let plan = node.plan("1", 1).await;
        assert_eq!(node.outcome(&plan).await, Outcome::Lost);
        assert!(!node.commit(&plan).await, "it came after all");
        assert_eq!(node.revision(&node.store, "1").await, None);
        assert!(make::write(&node.store, make::put(&node.stream, "1", 1)).await.is_some());
        node.end().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_larger_than_a_document_is_all_or_nothing() {
    on_each(|node| async move {
        let content = bytes::Bytes::from(format!(r#"{{"text":"{}"}}"#, "x".repeat(1 << 20)));
        let large = |count: usize, revision: i128| -> Vec<DocumentWrite> {
            let put = |n: usize| {
                let body = flare_core::document::WriteBody::Put {
                    revision: Revision::new(revision),
                    content: content.clone(),
                };
                DocumentWrite { body, ..make::put(&node.stream, &n.to_string(), revision) }
            };
            (0..count).map(put).collect()
        };
        let total =
            async |store: &Store| store.documents.page(node.stream.id, &DocumentQuery::default()).await.unwrap().total;
        assert_eq!(node.store.documents.write(large(30, 1)).await.unwrap().len(), 30);
        assert_eq!(total(&node.store).await, 30);
        // One writer ends before the commit, another after it.
        let lost = node.plan_all(large(40, 2)).await;
        node.writer.log.write_parts(&lost.group).await.map_err(Failure::into_error).unwrap();
        assert_eq!(node.revision(&node.store, "0").await, Some(Revision::new(1)));
        let plan = node.plan_all(large(40, 3)).await;
        assert!(node.commit(&plan).await);
        let other = crate::open(&node.options).await.unwrap();
        assert_eq!(total(&other).await, 40);
        for name in ["0", "29", "39"] {
            assert_eq!(node.revision(&other, name).await, Some(Revision::new(3)));
        }
        let read = other.documents.get(node.stream.id, &make::url("39")).await.unwrap().unwrap();
        assert_eq!(read.content, Some(content.clone()));
        other.engine.close().await.unwrap();
        node.end().await;
    })
    .await;
}
