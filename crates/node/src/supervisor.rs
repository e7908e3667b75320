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

use crate::lease::Deadline;

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
    /// All tasks of this supervisor and of no other, whatever their end means.
    own: TaskTracker,
    abandoned: CancellationToken,
    /// Past it, nothing more may leave the node.
    deadline: Deadline,
}

impl Supervisor {
    /// One for a part of the node, which can be abandoned without the rest, and must be at the deadline.
    pub(crate) fn part(&self, deadline: Deadline) -> Self {
        Self { own: TaskTracker::new(), abandoned: self.abandoned.child_token(), deadline, ..self.clone() }
    }

    /// Returns at once before the deadline; past it never: the tasks are about to be dropped.
    pub(crate) async fn in_time(&self) {
        if self.deadline.is_over() {
            std::future::pending().await
        }
    }

    /// Drops all tasks where they are, and returns when nothing is left of them.
    pub(crate) async fn abandon(&self) {
        self.abandoned.cancel();
        self.own.close();
        self.own.wait().await;
    }

    /// Tells that the tasks were, or are about to be, dropped.
    pub(crate) fn abandoned(&self) -> &CancellationToken {
        &self.abandoned
    }

    /// Runs `task` until it ends. A stop is the task's own affair: it holds whatever token tells it to.
    #[allow(clippy::disallowed_methods, reason = "this is the one place that spawns")]
    pub fn spawn(&self, name: &'static str, failure: Failure, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.spawned.fetch_add(1, Ordering::Relaxed);
        self.running.lock().insert(id, name);
        let supervisor = self.clone();
        let watched = self.own.track_future(async move {
            let task = supervisor.abandoned.run_until_cancelled(AssertUnwindSafe(task).catch_unwind());
            let outcome = task.await.unwrap_or(Ok(()));
            supervisor.running.lock().remove(&id);
            if outcome.is_err() {
                tracing::error!(task = name, "a task panicked");
                if failure == Failure::StopsNode {
                    supervisor.failed.cancel();
                }
            }
        });
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
    async fn a_part_that_is_abandoned_leaves_nothing_and_the_rest_alone() {
        let whole = Supervisor::default();
        let part = whole.part(Deadline::never());
        let held = Arc::new(());
        for (supervisor, failure) in
            [(&part, Failure::StopsNode), (&part, Failure::IsLogged), (&whole, Failure::StopsNode)]
        {
            let held = held.clone();
            supervisor.spawn("holder", failure, async move {
                std::future::pending::<()>().await;
                drop(held);
            });
        }
        part.abandon().await;
        assert_eq!(Arc::strong_count(&held), 2, "that of the whole and that of the test");
        assert!(!whole.has_failed());
        part.spawn("late", Failure::StopsNode, async move { drop(held) });
        part.abandon().await;
        assert_eq!(whole.running.lock().len(), 1);
    }

    #[test]
    fn past_the_deadline_of_a_part_nothing_goes_on() {
        let (whole, deadline) = (Supervisor::default(), Deadline::never());
        let part = whole.part(deadline.clone());
        assert!(part.in_time().now_or_never().is_some());
        deadline.pass();
        assert!(part.in_time().now_or_never().is_none());
        assert!(whole.in_time().now_or_never().is_some());
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
