//! What a resync costs: truth against versions, for subscriptions that have every document of a large resource.
//!
//! `cargo run --release -p flare-embedded --example resync [DOCUMENTS [SUBSCRIPTIONS]]`

#![allow(clippy::unwrap_used, reason = "a measurement, not a server")]

use std::time::Instant;

use flare_contract::make;
use flare_core::{
    DocumentNumber, OutletId, Sequence,
    document::{Progress, Version, Written},
    port::{Span, Store},
    revision::Revision,
    stream::Stream,
};

const BATCH: u64 = 1000;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let (documents, outlets) = (arguments.next().unwrap_or(1_000_000), arguments.next().unwrap_or(10));
    let folder = tempfile::tempdir_in(".").unwrap();
    let options = flare_embedded::Options {
        path: folder.path().join("data"),
        cache_bytes: 64 << 20,
        reserve_bytes: 0,
        store: Default::default(),
    };
    let store = flare_embedded::open(&options).unwrap();
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    let mut ids = Vec::new();
    for _ in 0..outlets {
        ids.push(make::stored_outlet(&store, &stream).await.id);
    }
    fill(&store, &stream, &ids, documents).await;

    let start = Instant::now();
    for id in &ids {
        let span = Span { after: Sequence::START, until: store.documents.head() };
        let missing = store.deliveries.missing(stream.id, *id, span, 100).await.unwrap();
        assert!(missing.is_empty(), "{} of {documents} documents are missing", missing.len());
    }
    println!("{documents} documents, {outlets} subscriptions: resync in {:.2} s", start.elapsed().as_secs_f64());
}

/// Writes the documents, and that every subscription has them.
async fn fill(store: &Store, stream: &Stream, outlets: &[OutletId], documents: u64) {
    let start = Instant::now();
    for first in (0..documents).step_by(BATCH as usize) {
        let names = first..(first + BATCH).min(documents);
        let writes = names.map(|name| make::put(stream, &name.to_string(), 1)).collect();
        let mut steps = Vec::new();
        for written in store.documents.write(writes).await.unwrap() {
            let Written::Changed(change) = written else { panic!("every document is new") };
            let version = Version { sequence: change.sequence, revision: Revision::new(1), deleted: false };
            let number = DocumentNumber(change.number.0);
            steps.extend(outlets.iter().map(|outlet| Progress::Version { outlet: *outlet, number, version }));
        }
        store.deliveries.record(steps).await.unwrap();
    }
    store.engine.flush().await.unwrap();
    println!("filled in {:.0} s", start.elapsed().as_secs_f64());
}
