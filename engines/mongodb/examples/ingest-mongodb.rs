//! How much of what the server can do the engine passes on: the same commands sent by a bare loop, and by the engine for
//! many concurrent callers.
//!
//! `FLARE_TEST_MONGODB_URL=… cargo run --release -p flare-mongodb --example ingest-mongodb [SECONDS]`

#![allow(clippy::unwrap_used, reason = "a benchmark ends where it cannot go on")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use flare_contract::make;
use flare_core::{
    DocumentNumber, OutletId, Sequence,
    document::{DocumentWrite, Progress, Version, WriteBody},
    port::Store,
    revision::Revision,
    stream::Stream,
};
use flare_mongodb::Options;
use futures_util::{TryStreamExt, future::join_all};
use mongodb::{
    Database,
    bson::{Bson, DateTime, Document, RawArrayBuf, RawDocumentBuf, doc, oid::ObjectId, raw::cstr, rawdoc},
};

const CALLERS: u64 = 64;
const CONTENT_BYTES: usize = 1024;

#[tokio::main]
async fn main() {
    let seconds = std::env::args().nth(1).map_or(10, |text| text.parse().unwrap());
    let time = Duration::from_secs(seconds);
    for variable in ["FLARE_TEST_MONGODB_URL", "FLARE_TEST_MONGODB_STANDALONE_URL"] {
        let Ok(url) = std::env::var(variable) else { continue };
        println!("{variable}: {CALLERS} callers, {CONTENT_BYTES} bytes, {seconds} s each");
        let bench = Bench::open(&url).await;
        let raw = bench.measure("documents, bare loop", bench.write_bare(time)).await;
        let ours = bench.measure("documents, engine", bench.write(time)).await;
        println!("  ratio {:.2}", ours / raw);
        let raw = bench.measure("deliveries, bare loop", bench.record_bare(time)).await;
        let ours = bench.measure("deliveries, engine", bench.record(time)).await;
        println!("  ratio {:.2}", ours / raw);
        bench.store.engine.close().await.unwrap();
        bench.database.drop().await.unwrap();
        bench.bare.drop().await.unwrap();
    }
}

struct Bench {
    store: Store,
    stream: Stream,
    outlet: OutletId,
    database: Database,
    /// The same layout, for the bare loop.
    bare: Database,
}

impl Bench {
    async fn open(url: &str) -> Self {
        let name = format!("flare_bench_{}", ObjectId::new().to_hex());
        let options = |name: String| Options { url: Some(url.into()), database: Some(name), ..Options::default() };
        let store = flare_mongodb::open(&options(name.clone())).await.unwrap();
        let bare = format!("{name}_bare");
        flare_mongodb::schema(&options(bare.clone())).await.unwrap().up().await.unwrap();
        let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
        let outlet = make::stored_outlet(&store, &stream).await.id;
        let client = mongodb::Client::with_uri_str(url).await.unwrap();
        Self { store, stream, outlet, database: client.database(&name), bare: client.database(&bare) }
    }

    /// Prints and gives back how many a second, and the round trips of each.
    async fn measure(&self, what: &str, work: impl Future<Output = u64>) -> f64 {
        let (before, start) = (self.requests().await, Instant::now());
        let done = work.await;
        let (seconds, trips) = (start.elapsed().as_secs_f64(), self.requests().await - before);
        let rate = done as f64 / seconds;
        println!("  {what:<24} {rate:>8.0} /s  {:>6.3} round trips each", trips as f64 / done as f64);
        rate
    }

    async fn requests(&self) -> i64 {
        let status = self.database.run_command(doc! { "serverStatus": 1 }).await.unwrap();
        let network = status.get_document("network").unwrap();
        network.get_i64("numRequests").or_else(|_| network.get_i32("numRequests").map(i64::from)).unwrap()
    }

    async fn write(&self, time: Duration) -> u64 {
        let (start, next) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let content = content();
        let caller = || async {
            while start.elapsed() < time {
                let name = next.fetch_add(1, Ordering::Relaxed).to_string();
                let body = WriteBody::Put { revision: Revision::new(1), content: content.clone() };
                let write = DocumentWrite { body, ..make::put(&self.stream, &name, 1) };
                self.store.documents.write(vec![write]).await.unwrap();
            }
        };
        join_all((0..CALLERS).map(|_| caller())).await;
        next.load(Ordering::Relaxed)
    }

    /// The commands of the engine in batches of as many documents as there are callers.
    async fn write_bare(&self, time: Duration) -> u64 {
        let (start, content) = (Instant::now(), String::from_utf8(content().to_vec()).unwrap());
        let stream = self.stream.id.to_string();
        let mut done = 0i64;
        while start.elapsed() < time {
            let urls: Vec<_> = (done..done + CALLERS as i64).map(|n| format!("http://api.test/users/{n}")).collect();
            let keys: Vec<Bson> = urls.iter().map(|url| doc! { "stream": &stream, "url": url }.into()).collect();
            let rows = self.bare.collection::<Document>("documents");
            let found = rows.find(doc! { "_id": { "$in": keys } });
            assert!(found.await.unwrap().try_collect::<Vec<_>>().await.unwrap().is_empty());
            let at = DateTime::now();
            let (mut changes, mut documents) = (RawArrayBuf::new(), RawArrayBuf::new());
            let mut updates = RawArrayBuf::new();
            for (sequence, url) in (done + 1..).zip(&urls) {
                changes.push(rawdoc! {
                    "_id": sequence, "stream": stream.as_str(), "number": sequence, "url": url.as_str(),
                    "revision": 1i64, "updatedAt": at, "total": sequence, "content": content.as_str(),
                });
                let row = rawdoc! {
                    "_id": { "stream": stream.as_str(), "url": url.as_str() }, "stream": stream.as_str(),
                    "number": sequence, "sequence": sequence, "revision": 1i64, "updatedAt": at, "deleted": false,
                };
                documents.push(row.clone());
                let id = rawdoc! { "stream": stream.as_str(), "url": url.as_str() };
                updates.push(rawdoc! {
                    "q": { "_id": id, "sequence": { "$lt": sequence } }, "u": row, "upsert": true,
                });
            }
            done += CALLERS as i64;
            let rows = rawdoc! { "changes": changes.clone(), "documents": documents };
            let set = rawdoc! { "$set": { "sequence": done, "last": { "rows": rows } }, "$inc": { "version": 1i64 } };
            let mut heads = RawArrayBuf::new();
            heads.push(rawdoc! { "q": { "_id": "head" }, "u": set });
            self.send("update", "head", heads, true).await;
            tokio::join!(
                self.send("insert", "changes", changes, false),
                self.send("update", "documents", updates, false)
            );
        }
        done as u64
    }

    async fn send(&self, verb: &str, table: &str, statements: RawArrayBuf, journal: bool) {
        let mut command = RawDocumentBuf::new();
        if verb == "insert" {
            command.append(cstr!("insert"), table);
            command.append(cstr!("documents"), statements);
        } else {
            command.append(cstr!("update"), table);
            command.append(cstr!("updates"), statements);
        }
        command.append(cstr!("ordered"), false);
        let concern = if journal {
            rawdoc! { "w": "majority", "j": true }
        } else {
            rawdoc! { "w": "majority" }
        };
        command.append(cstr!("writeConcern"), concern);
        let answer = self.bare.run_raw_command(command).await.unwrap();
        assert!(!answer.contains_key("writeErrors"), "{answer}");
    }

    async fn record(&self, time: Duration) -> u64 {
        let (start, next) = (Instant::now(), Arc::new(AtomicU64::new(1)));
        let caller = || async {
            while start.elapsed() < time {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let version = Version { sequence: Sequence(number), revision: Revision::new(1), deleted: false };
                let (outlet, cursor) = (self.outlet, Sequence(number));
                let steps = vec![
                    Progress::Version { outlet, number: DocumentNumber(number), version },
                    Progress::Cursor { outlet, cursor },
                ];
                self.store.deliveries.record(steps).await.unwrap();
            }
        };
        join_all((0..CALLERS).map(|_| caller())).await;
        next.load(Ordering::Relaxed)
    }

    async fn record_bare(&self, time: Duration) -> u64 {
        let (start, outlet) = (Instant::now(), self.outlet.to_string());
        let mut done = 0i64;
        while start.elapsed() < time {
            let mut versions = RawArrayBuf::new();
            for number in done..done + CALLERS as i64 {
                let id = rawdoc! { "outlet": outlet.as_str(), "number": number };
                let row = rawdoc! {
                    "_id": id.clone(), "sequence": number, "revision": 1i64, "deleted": false, "epoch": 0i64,
                };
                versions.push(rawdoc! { "q": { "_id": id, "epoch": { "$lte": 0i64 } }, "u": row, "upsert": true });
            }
            done += CALLERS as i64;
            self.send("update", "versions", versions, true).await;
            let mut cursors = RawArrayBuf::new();
            cursors
                .push(rawdoc! { "q": { "_id": outlet.as_str() }, "u": { "$set": { "cursor": done } }, "upsert": true });
            self.send("update", "cursors", cursors, true).await;
        }
        done as u64
    }
}

fn content() -> Bytes {
    let start = r#"{"name":"somebody","text":""#;
    Bytes::from(format!("{start}{}\"}}", "x".repeat(CONTENT_BYTES - start.len() - 2)))
}
