//! The log over the ends of its partitions, and for nodes that are far behind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use common::Keyspaces;
use flare_cassandra::Options;
use flare_contract::make;
use flare_core::{
    Sequence,
    document::Change,
    port::{ChangeListener, Store},
    stream::Stream,
};

async fn write_some(store: &Store, stream: &Stream, names: std::ops::Range<u32>) -> Vec<u64> {
    let mut sequences = Vec::new();
    for name in names {
        sequences.push(make::write(store, make::put(stream, &name.to_string(), 1)).await.unwrap().sequence.0);
    }
    sequences
}

/// Turns are appended to one partition after another, by two nodes.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_goes_on_in_the_next_partition() {
    let Some(server) = common::server() else { return };
    let keyspaces = Keyspaces::new(&server).await;
    let name = keyspaces.name(0);
    flare_cassandra::schema(&keyspaces.options(0)).await.unwrap().up().await.unwrap();
    // As if 995 turns had been taken, with 5000 changes.
    keyspaces.define(&format!("UPDATE {name}.log SET head = 995 WHERE bucket = 0")).await;
    let state = format!("UPDATE {name}.state USING TIMESTAMP 995 SET turn = 995, sequence = 5000 WHERE name = 'log'");
    keyspaces.define(&state).await;
    let one = flare_cassandra::open(&keyspaces.options(0)).await.unwrap();
    let two = flare_cassandra::open(&keyspaces.options(0)).await.unwrap();
    assert_eq!(one.documents.head(), Sequence(5000));
    let stream = make::stored_stream(&one, "http://api.test/users/{id}").await;
    let mut sequences = write_some(&one, &stream, 0..3).await;
    sequences.extend(write_some(&two, &stream, 3..6).await);
    sequences.extend(write_some(&one, &stream, 6..9).await);
    assert_eq!(sequences, (5001..5010).collect::<Vec<_>>());
    let three = flare_cassandra::open(&keyspaces.options(0)).await.unwrap();
    assert_eq!(three.documents.head(), Sequence(5009));
    assert_eq!(make::feed(&three, stream.id, Sequence::START).await.len(), 9);
    for store in [one, two, three] {
        store.engine.close().await.unwrap();
    }
    keyspaces.drop_all(0..1).await;
}

#[derive(Default)]
struct Missed(AtomicU64);

impl ChangeListener for Missed {
    fn changed(&self, _: Vec<Arc<Change>>) {}

    fn missed(&self, head: Sequence) {
        self.0.fetch_max(head.0, Ordering::Relaxed);
    }
}

/// A node whose next turns are removed from the log already goes on from the tables.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_far_behind_takes_up_where_the_tables_are() {
    let Some(server) = common::server() else { return };
    let keyspaces = Keyspaces::new(&server).await;
    let asleep = Options { follow_interval: Duration::from_secs(3600), ..keyspaces.options(0) };
    let behind = flare_cassandra::open(&asleep).await.unwrap();
    let stream = make::stored_stream(&behind, "http://api.test/users/{id}").await;
    let missed = Arc::new(Missed::default());
    behind.documents.listen(missed.clone());
    let ahead = flare_cassandra::open(&keyspaces.options(0)).await.unwrap();
    write_some(&ahead, &stream, 0..5).await;
    let log = format!("DELETE FROM {}.log WHERE bucket = 0 AND turn > 1 AND turn < 1000", keyspaces.name(0));
    keyspaces.define(&log).await;
    assert_eq!(write_some(&behind, &stream, 5..7).await, [6, 7]);
    assert!(make::write(&behind, make::put(&stream, "3", 1)).await.is_none());
    assert_eq!(make::feed(&behind, stream.id, Sequence::START).await.len(), 7);
    let mut waited = 0;
    while missed.0.load(Ordering::Relaxed) < 5 {
        waited += 1;
        assert!(waited < 1000, "nobody told that changes were missed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    behind.engine.close().await.unwrap();
    ahead.engine.close().await.unwrap();
    keyspaces.drop_all(0..1).await;
}
