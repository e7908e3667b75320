//! What a durable write costs: the store as Flare uses it, against the least that any store could do.
//!
//! `cargo run --release -p flare-embedded --example ingest [SECONDS]`
//!
//! - *log*: a thread that appends whatever is waiting to a file and flushes it, nothing else. No store can be cheaper.
//! - *embedded*: `Documents::write` of 1 KiB documents, new and changed in turns, over the real engine.
//!
//! Both are driven by 64 and by 512 writers, each waiting for its write to be on disk before the next.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement, not a server")]

use std::{
    fs::File,
    io::Write,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use flare_contract::make;
use flare_core::{
    document::{DocumentWrite, WriteBody},
    revision::Revision,
};
use tokio::sync::{mpsc, oneshot};

const DOCUMENTS: u64 = 100_000;

#[tokio::main]
async fn main() {
    let seconds = std::env::args().nth(1).map_or(5, |seconds| seconds.parse().expect("SECONDS is a number"));
    let folder = tempfile::tempdir_in(".").unwrap();
    println!("{:<10} {:>8} {:>10} {:>10}", "store", "writers", "writes/s", "CPU µs");
    for writers in [64, 512] {
        log(folder.path(), writers, Duration::from_secs(seconds)).await;
        embedded(folder.path(), writers, Duration::from_secs(seconds)).await;
    }
}

async fn log(folder: &Path, writers: u64, time: Duration) {
    let mut file = File::create(folder.join("log")).unwrap();
    file.set_len(1 << 30).unwrap();
    let (send, mut waiting) = mpsc::channel::<(Vec<u8>, oneshot::Sender<()>)>(1024);
    let thread = std::thread::spawn(move || {
        while let Some(first) = waiting.blocking_recv() {
            let mut group = vec![first];
            while let Ok(more) = waiting.try_recv() {
                group.push(more);
            }
            let bytes: Vec<u8> = group.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect();
            file.write_all(&bytes).unwrap();
            file.sync_data().unwrap();
            for (_, done) in group {
                let _gone = done.send(());
            }
        }
    });
    drive("log", writers, time, move |_| {
        let send = send.clone();
        async move {
            let (done, written) = oneshot::channel();
            send.send((vec![b'x'; 1100], done)).await.unwrap();
            written.await.unwrap();
        }
    })
    .await;
    thread.join().unwrap();
}

async fn embedded(folder: &Path, writers: u64, time: Duration) {
    let options = flare_embedded::Options {
        path: folder.join(format!("embedded-{writers}")),
        cache_bytes: 16 << 20,
        reserve_bytes: 0,
        store: Default::default(),
    };
    let store = flare_embedded::open(&options).unwrap();
    let stream = Arc::new(make::stored_stream(&store, "http://api.test/users/{id}").await);
    let content = Bytes::from(vec![b'x'; 1024]);
    let documents = store.documents.clone();
    drive("embedded", writers, time, move |number| {
        let (documents, stream, content) = (documents.clone(), stream.clone(), content.clone());
        async move {
            let revision = Revision::new(i128::from(number / DOCUMENTS + 1));
            let url = make::url(&(number % DOCUMENTS).to_string());
            let body = WriteBody::Put { revision, content };
            documents
                .write(vec![DocumentWrite { stream: stream.id, url, body, at: make::at(0), trace: None }])
                .await
                .unwrap();
        }
    })
    .await;
    store.engine.close().await.unwrap();
}

/// Writes as fast as the writers can for a while, and prints the rate and the CPU time of a write.
async fn drive<F>(name: &str, writers: u64, time: Duration, write: impl Fn(u64) -> F + Send + Sync + 'static)
where
    F: Future<Output = ()> + Send,
{
    let (write, written, over) = (Arc::new(write), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (cpu, started) = (cpu_micros(), Instant::now());
    let tasks: Vec<_> = (0..writers)
        .map(|_| {
            let (write, written, over) = (write.clone(), written.clone(), over.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let number = written.fetch_add(1, Ordering::Relaxed);
                    write(number).await;
                }
            })
        })
        .collect();
    tokio::time::sleep(time).await;
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let writes = written.load(Ordering::Relaxed) as f64;
    let rate = writes / started.elapsed().as_secs_f64();
    println!("{name:<10} {writers:>8} {rate:>10.0} {:>10.1}", (cpu_micros() - cpu) / writes);
}

/// CPU time of this process, from the kernel's count of clock ticks of 10 ms.
fn cpu_micros() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks * 10_000.0
}
