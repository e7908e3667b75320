//! The writer over a disk that loses what was not flushed, and that refuses writes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use bytes::Bytes;
use flare_contract::make;
use flare_core::{
    DocumentNumber, Error, ErrorKind, Result, Sequence,
    document::{Change, Progress, Version},
    port::{ChangeListener, Store},
    revision::Revision,
};
use flare_keyvalue::{KeyValue, Row, Table, Visit};
use flare_memory::Memory;
use futures_util::FutureExt;
use parking_lot::Mutex;

/// A map that keeps the log of its batches, so that a loss of power can be played.
#[derive(Default)]
struct Disk {
    live: Memory,
    log: Mutex<Vec<Vec<Row>>>,
    flushed: AtomicUsize,
    flushes: AtomicUsize,
    full: AtomicBool,
    /// A flush waits for this.
    gate: Mutex<()>,
    /// The next flush fails: the batch has reached the log all the same.
    fail_late: AtomicBool,
}

impl Disk {
    /// What a new process finds after the power was lost.
    fn after_power_loss(&self) -> Arc<Self> {
        let found = Self::default();
        for rows in &self.log.lock()[..self.flushed.load(Ordering::SeqCst)] {
            found.write(rows.clone()).unwrap();
        }
        found.sync().unwrap();
        Arc::new(found)
    }

    fn full() -> Error {
        Error::unavailable("the disk is full")
    }
}

impl KeyValue for Disk {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
        self.live.get(table, key)
    }

    fn scan(&self, table: Table, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        self.live.scan(table, from, to, visit)
    }

    fn write(&self, rows: Vec<Row>) -> Result<()> {
        if self.full.load(Ordering::SeqCst) {
            return Err(Self::full());
        }
        self.log.lock().push(rows.clone());
        self.live.write(rows)
    }

    fn sync(&self) -> Result<()> {
        drop(self.gate.lock());
        if self.fail_late.swap(false, Ordering::SeqCst) {
            self.full.store(true, Ordering::SeqCst);
        }
        if self.full.load(Ordering::SeqCst) {
            return Err(Self::full());
        }
        self.flushes.fetch_add(1, Ordering::SeqCst);
        self.flushed.store(self.log.lock().len(), Ordering::SeqCst);
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.full.load(Ordering::SeqCst) { Err(Self::full()) } else { Ok(()) }
    }
}

fn open(disk: &Arc<Disk>) -> Store {
    flare_keyvalue::open(disk.clone(), &Default::default()).unwrap()
}

#[tokio::test]
async fn what_is_acknowledged_survives_a_loss_of_power() {
    let disk = Arc::new(Disk::default());
    let store = open(&disk);
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    for revision in 1..50 {
        make::write(&store, make::put(&stream, "1", revision)).await.unwrap();
        let found = open(&disk.after_power_loss());
        let read = found.documents.get(stream.id, &make::url("1")).await.unwrap().unwrap();
        assert_eq!(read.revision, Revision::new(revision));
        found.engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn recorded_deliveries_are_lazy_and_flushed_with_the_next_write_or_at_the_close() {
    let disk = Arc::new(Disk::default());
    let store = open(&disk);
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let outlet = make::stored_outlet(&store, &stream).await.id;
    let version = Version { sequence: Sequence(1), revision: Revision::new(1), deleted: false };
    let record = |number| Progress::Version { outlet, number: DocumentNumber(number), version };
    let flushes = disk.flushes.load(Ordering::SeqCst);
    store.deliveries.record(vec![record(1)]).await.unwrap();
    assert_eq!(disk.flushes.load(Ordering::SeqCst), flushes, "a record alone does not wait for the disk");
    make::write(&store, make::put(&stream, "1", 1)).await.unwrap();
    let found = open(&disk.after_power_loss());
    assert_eq!(found.deliveries.version(outlet, DocumentNumber(1)).await.unwrap(), Some(version));
    store.deliveries.record(vec![record(2)]).await.unwrap();
    store.engine.close().await.unwrap();
    let found = open(&disk.after_power_loss());
    assert_eq!(found.deliveries.version(outlet, DocumentNumber(2)).await.unwrap(), Some(version));
}

#[tokio::test]
async fn concurrent_writers_share_a_flush() {
    let disk = Arc::new(Disk::default());
    let store = open(&disk);
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let before = disk.flushes.load(Ordering::SeqCst);
    let writes: Vec<_> =
        (0..1000).map(|n| store.documents.write(vec![make::put(&stream, &n.to_string(), 1)])).collect();
    futures_util::future::try_join_all(writes).await.unwrap();
    let flushes = disk.flushes.load(Ordering::SeqCst) - before;
    assert!(flushes < 500, "{flushes} flushes for 1000 writes");
}

#[tokio::test]
async fn a_full_disk_refuses_writes_with_the_reason_and_recovers_by_itself() {
    let disk = Arc::new(Disk::default());
    let store = open(&disk);
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    make::write(&store, make::put(&stream, "1", 1)).await.unwrap();
    disk.full.store(true, Ordering::SeqCst);
    let error = store.documents.write(vec![make::put(&stream, "1", 2)]).await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Unavailable, "the disk is full"));
    assert_eq!(store.engine.trouble().as_deref(), Some("the disk is full"));
    let read = store.documents.get(stream.id, &make::url("1")).await.unwrap().unwrap();
    assert_eq!(read.revision, Revision::new(1));
    disk.full.store(false, Ordering::SeqCst);
    while store.engine.trouble().is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    make::write(&store, make::put(&stream, "1", 2)).await.unwrap();
}

#[derive(Default)]
struct Heard {
    changed: Mutex<Vec<Sequence>>,
    missed: Mutex<Vec<Sequence>>,
}

impl ChangeListener for Heard {
    fn changed(&self, changes: Vec<Arc<Change>>) {
        self.changed.lock().extend(changes.iter().map(|change| change.sequence));
    }

    fn missed(&self, head: Sequence) {
        self.missed.lock().push(head);
    }
}

#[tokio::test]
async fn a_write_that_failed_but_reached_the_disk_takes_its_sequence_with_it() {
    let disk = Arc::new(Disk::default());
    let store = open(&disk);
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let heard = Arc::new(Heard::default());
    store.documents.listen(heard.clone());
    let first = make::write(&store, make::put(&stream, "1", 1)).await.unwrap();
    disk.fail_late.store(true, Ordering::SeqCst);
    store.documents.write(vec![make::put(&stream, "2", 1)]).await.unwrap_err();
    disk.full.store(false, Ordering::SeqCst);
    while store.engine.trouble().is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let missed = Sequence(first.sequence.0 + 1);
    assert_eq!(*heard.missed.lock(), [missed], "somebody must look for what was not told");
    let next = make::write(&store, make::put(&stream, "3", 1)).await.unwrap();
    assert!(next.sequence > missed, "the sequence of the lost write was given out again");
}

#[tokio::test]
#[allow(clippy::await_holding_lock, reason = "the flush is held back on purpose")]
async fn a_change_that_is_not_on_disk_yet_replaces_nothing_and_brings_nothing_older_back() {
    let disk = Arc::new(Disk::default());
    let store = open(&disk);
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    for revision in [1, 2] {
        make::write(&store, make::put(&stream, "1", revision)).await.unwrap();
    }
    let revisions = async || {
        let feed = make::feed(&store, stream.id, Sequence::START).await;
        feed.iter().map(|change| change.revision.value()).collect::<Vec<_>>()
    };
    let gate = disk.gate.lock();
    let writing = store.documents.write(vec![make::put(&stream, "1", 3)]);
    let mut writing = std::pin::pin!(writing);
    let written = || disk.live.get(Table::Meta, b"sequence").unwrap().is_some_and(|row| row[..] == 3u64.to_be_bytes());
    while !written() {
        assert!(writing.as_mut().now_or_never().is_none(), "it was acknowledged before it was on disk");
        tokio::task::yield_now().await;
    }
    assert_eq!(revisions().await, [2]);
    drop(gate);
    writing.await.unwrap();
    assert_eq!(revisions().await, [3]);
}

#[tokio::test]
async fn a_repeated_write_is_not_acknowledged_while_the_first_is_not_on_disk() {
    let disk = Arc::new(Disk::default());
    let store = open(&disk);
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    disk.fail_late.store(true, Ordering::SeqCst);
    let put = || vec![make::put(&stream, "1", 1)];
    store.documents.write(put()).await.unwrap_err();
    store.documents.write(put()).await.unwrap_err();
    disk.full.store(false, Ordering::SeqCst);
    while store.documents.write(put()).await.is_err() {}
    let found = open(&disk.after_power_loss());
    assert!(found.documents.get(stream.id, &make::url("1")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_store_of_a_newer_format_is_refused_with_both_numbers() {
    let disk = Arc::new(Disk::default());
    let newer = flare_keyvalue::FORMAT + 1;
    let value = Some(Bytes::copy_from_slice(&newer.to_be_bytes()));
    disk.write(vec![Row { table: Table::Meta, key: Bytes::from_static(b"format"), value }]).unwrap();
    let error = flare_keyvalue::open(disk, &Default::default()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let message = error.to_string();
    assert!(message.contains(&format!("format {newer}")) && message.contains("newer version"), "{message}");
}

#[tokio::test]
async fn a_deleted_stream_and_outlet_leave_nothing_behind() {
    let disk = Arc::new(Disk::default());
    let store = open(&disk);
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let outlet = make::stored_outlet(&store, &stream).await.id;
    let version = Version { sequence: Sequence(1), revision: Revision::new(1), deleted: false };
    for n in 0..3000 {
        let number = DocumentNumber(n);
        store.deliveries.record(vec![Progress::Version { outlet, number, version }]).await.unwrap();
        make::write(&store, make::put(&stream, &n.to_string(), 1)).await.unwrap();
    }
    store.outlets.delete(outlet).await.unwrap();
    store.streams.delete(stream.id).await.unwrap();
    let rows = |table| {
        let mut rows = 0;
        disk.scan(table, &[], &[0xff; 64], &mut |_, _| {
            rows += 1;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        rows
    };
    for table in [Table::Heads, Table::Changes, Table::Versions, Table::Cursors, Table::Retries] {
        while rows(table) > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
    store.engine.close().await.unwrap();
}
