//! The suites that every engine must pass.
//!
//! An engine's own test opens an empty store for each case and hands it in; a bug found in one engine becomes a case for
//! all. Cases are private, so a case that is not listed is dead code and does not compile cleanly.

#![allow(clippy::unwrap_used, reason = "a suite fails by panicking, as tests do")]

mod coordination;
mod deliveries;
mod delivery_log;
mod documents;
mod entities;
pub mod heard;
pub mod login;
pub mod make;
pub mod proxy;
mod queue;
pub mod queue_load;
mod reopening;
pub mod server;
mod sharing;
pub mod tls;
mod tokens;
pub mod upgrade;
pub mod wait;

pub use queue::receipts;

use std::{future::Future, pin::Pin, sync::Arc};

use flare_core::{port::Store, queue::Queue};

/// A case: a name for people, and what it does with a fresh store.
struct Case {
    name: &'static str,
    run: fn(Store) -> Pin<Box<dyn Future<Output = ()>>>,
}

macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        &[$($crate::Case { name: stringify!($case), run: |store| Box::pin($case(store)) }),*]
    };
}
use cases;

/// Every port of a store: `open` gives an empty one for each case.
pub async fn check_store<F: Future<Output = Store>>(open: impl Fn() -> F) {
    let suites =
        [entities::CASES, documents::CASES, deliveries::CASES, delivery_log::CASES, tokens::CASES, coordination::CASES];
    for case in suites.concat() {
        println!("  {}", case.name);
        let store = open().await;
        (case.run)(store.clone()).await;
        let _closed_by_the_case = store.engine.close().await;
    }
}

/// What must survive when a store is closed, or dropped without a word, and opened again. `open` opens the same data each
/// time with the same number.
pub async fn check_reopening<F: Future<Output = Store>>(open: impl Fn(usize) -> F) {
    reopening::check(open).await;
}

/// What must hold when several nodes work on the same data: `open` opens it anew each time with the same number.
pub async fn check_sharing<F: Future<Output = Store>>(open: impl Fn(usize) -> F) {
    sharing::check(open).await;
}

/// What every queue must do: `open` gives a new connection to the same broker each time.
pub async fn check_queue<F: Future<Output = Arc<dyn Queue>>>(open: impl Fn() -> F) {
    queue::check(open).await;
}

#[allow(clippy::disallowed_methods, reason = "a test, not a server")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> tokio::task::AbortHandle {
    tokio::spawn(task).abort_handle()
}

impl Clone for Case {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for Case {}
