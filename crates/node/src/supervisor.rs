//! Owns every task of the process: each has a name, and it is known what its end means.

use std::{
    collections::BTreeMap,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// What a panic of a task means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The node cannot go on without it: it stops, and whoever started it starts it again.
    StopsNode,
    /// It concerns one connection or one request only.
    IsLogged,
}

/// Cheap to clone; all clones are one supervisor.
#[derive(Clone, Default)]
pub struct Supervisor {
    tasks: TaskTracker,
    failed: CancellationToken,
    running: Arc<Mutex<BTreeMap<u64, &'static str>>>,
    spawned: Arc<AtomicU64>,
}

impl Supervisor {
    /// Runs `task` until it ends. A stop is the task's own affair: it holds whatever token tells it to.
    #[allow(clippy::disallowed_methods, reason = "this is the one place that spawns")]
    pub fn spawn(&self, name: &'static str, failure: Failure, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.spawned.fetch_add(1, Ordering::Relaxed);
        self.running.lock().insert(id, name);
        let supervisor = self.clone();
        let watched = async move {
            let outcome = AssertUnwindSafe(task).catch_unwind().await;
            supervisor.running.lock().remove(&id);
            if outcome.is_err() {
                tracing::error!(task = name, "a task panicked");
                if failure == Failure::StopsNode {
                    supervisor.failed.cancel();
                }
            }
        };
        match failure {
            Failure::StopsNode => tokio::spawn(self.tasks.track_future(watched)),
            Failure::IsLogged => tokio::spawn(watched),
        };
    }

    /// Resolves when a task that the node needs has failed.
    pub async fn failed(&self) {
        self.failed.cancelled().await;
    }

    pub fn has_failed(&self) -> bool {
        self.failed.is_cancelled()
    }

    /// Waits until all tasks that the node needs have ended, for at most `grace`; names what has not. Connections end
    /// with the process: whoever cares for one has waited for it.
    pub async fn finish(&self, grace: Duration) {
        self.tasks.close();
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_err() {
            let mut left: BTreeMap<&'static str, usize> = BTreeMap::new();
            self.running.lock().values().for_each(|name| *left.entry(name).or_default() += 1);
            tracing::warn!(?left, "tasks did not end within the grace period");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_of_a_needed_task_stops_the_node() {
        let supervisor = Supervisor::default();
        supervisor.spawn("needed", Failure::StopsNode, async { panic!("on purpose") });
        supervisor.failed().await;
        supervisor.finish(Duration::from_secs(5)).await;
        assert!(supervisor.running.lock().is_empty());
    }

    #[tokio::test]
    async fn a_panic_of_one_connection_stops_nothing() {
        let supervisor = Supervisor::default();
        supervisor.spawn("connection", Failure::IsLogged, async { panic!("on purpose") });
        while !supervisor.running.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(!supervisor.has_failed());
    }
}
