//! Many callers, one round trip: what waits while a batch is on its way goes with the next one.
//!
//! Nobody waits for company: a lone job goes at once. Under load the batches grow by themselves, up to a maximum, and a
//! caller past `waiting_max` waits for a place.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flare_core::{Error, Result};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// How much goes together.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Jobs in one batch.
    pub jobs_max: usize,
    /// The weight of one batch, but at least one job.
    pub weight_max: usize,
    /// Jobs that may wait for a batch; further callers wait for a place.
    pub waiting_max: usize,
    /// Batches on their way at once. With one, batches are done in the order in which jobs came.
    pub lanes: usize,
}

struct Waiting<J, A> {
    job: J,
    weight: usize,
    answer: oneshot::Sender<Result<A>>,
    /// A batch has taken the job, or its caller has taken it back: whoever is first.
    is_taken: Arc<AtomicBool>,
}

/// Gathers jobs into batches.
pub struct Batcher<J, A> {
    jobs: mpsc::Sender<Waiting<J, A>>,
}

impl<J: Send + 'static, A: Send + 'static> Batcher<J, A> {
    /// `run` does a batch and answers its jobs in order, each by itself or all with one error.
    pub fn start<F, R>(limits: BatchLimits, run: F) -> Self
    where
        F: Fn(Vec<J>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<Result<A>>>> + Send + 'static,
    {
        let (jobs, waiting) = mpsc::channel(limits.waiting_max);
        spawn(gather(waiting, limits, Arc::new(run)));
        Self { jobs }
    }

    /// Does one job with whatever others wait.
    pub async fn run(&self, job: J, weight: usize) -> Result<A> {
        self.run_within(Duration::MAX, job, weight, || Error::unavailable("the store is busy")).await
    }

    /// Like [`Batcher::run`], but a job that no batch has taken in this time is not done at all; `late` is its answer.
    pub async fn run_within(
        &self,
        patience: Duration,
        job: J,
        weight: usize,
        late: impl FnOnce() -> Error,
    ) -> Result<A> {
        let (answer, mut answered) = oneshot::channel();
        let is_taken = Arc::new(AtomicBool::new(false));
        let closed = || Error::unavailable("the store is closed");
        let waiting = Waiting { job, weight, answer, is_taken: is_taken.clone() };
        let deadline = tokio::time::sleep(patience);
        tokio::pin!(deadline);
        tokio::select! {
            biased;
            sent = self.jobs.send(waiting) => sent.map_err(|_| closed())?,
            () = &mut deadline => return Err(late()),
        }
        let unfinished = |_| Error::internal("a call to the store did not finish");
        tokio::select! {
            biased;
            outcome = &mut answered => return outcome.map_err(unfinished)?,
            () = &mut deadline => {}
        }
        if !is_taken.swap(true, Ordering::AcqRel) {
            return Err(late());
        }
        // It is on its way, and only its batch knows how it ends.
        answered.await.map_err(unfinished)?
    }
}

/// Ends when all callers are gone and what they left is done.
async fn gather<J, A, F, R>(mut waiting: mpsc::Receiver<Waiting<J, A>>, limits: BatchLimits, run: Arc<F>)
where
    J: Send + 'static,
    A: Send + 'static,
    F: Fn(Vec<J>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Vec<Result<A>>>> + Send + 'static,
{
    let lanes = Arc::new(Semaphore::new(limits.lanes));
    let mut left_over = None;
    loop {
        let Ok(lane) = lanes.clone().acquire_owned().await else { return };
        let Some(first) = (match left_over.take() {
            Some(waiting) => Some(waiting),
            None => waiting.recv().await,
        }) else {
            return;
        };
        if first.is_taken.swap(true, Ordering::AcqRel) {
            continue;
        }
        let mut weight = first.weight;
        let mut batch = vec![first];
        while batch.len() < limits.jobs_max
            && let Ok(next) = waiting.try_recv()
        {
            // What is left over may still be taken back.
            let is_left_over = weight + next.weight > limits.weight_max;
            if !is_left_over && next.is_taken.swap(true, Ordering::AcqRel) {
                continue;
            }
            if is_left_over {
                left_over = Some(next);
                break;
            }
            weight += next.weight;
            batch.push(next);
        }
        let run = run.clone();
        spawn(async move {
            let (jobs, callers): (Vec<J>, Vec<_>) =
                batch.into_iter().map(|waiting| (waiting.job, waiting.answer)).unzip();
            let outcome = run(jobs).await;
            // The next batch is prepared while the callers of this one go on.
            drop(lane);
            answer(outcome, callers);
        });
    }
}

/// A caller that is gone needs no answer.
fn answer<A>(outcome: Result<Vec<Result<A>>>, callers: Vec<oneshot::Sender<Result<A>>>) {
    match outcome {
        Ok(answers) => {
            for (answer, caller) in answers.into_iter().zip(callers) {
                let _gone = caller.send(answer);
            }
        }
        Err(error) => {
            for caller in callers {
                let _gone = caller.send(Err(error.clone()));
            }
        }
    }
}

/// A task of the engine: it ends with its batcher, and a fault in it is the callers' answer.
#[allow(clippy::disallowed_methods, reason = "engines know no supervisor; the callers learn how the task ended")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;
    use tokio::sync::Notify;

    use super::*;

    const LIMITS: BatchLimits = BatchLimits { jobs_max: 4, weight_max: 100, waiting_max: 100, lanes: 1 };

    /// Batches as they were made, and a gate that holds the first one.
    struct Seen {
        batches: Mutex<Vec<Vec<u32>>>,
        gate: Notify,
    }

    fn start(limits: BatchLimits) -> (Arc<Batcher<u32, u32>>, Arc<Seen>) {
        let seen = Arc::new(Seen { batches: Mutex::default(), gate: Notify::new() });
        let seen_by_run = seen.clone();
        let batcher = Batcher::start(limits, move |jobs: Vec<u32>| {
            let seen = seen_by_run.clone();
            async move {
                let is_first = seen.batches.lock().is_empty();
                seen.batches.lock().push(jobs.clone());
                if is_first {
                    seen.gate.notified().await;
                }
                Ok(jobs.into_iter().map(|job| Ok(job * 10)).collect())
            }
        });
        (Arc::new(batcher), seen)
    }

    async fn call_all(batcher: &Arc<Batcher<u32, u32>>, jobs: &[(u32, usize)]) -> Vec<tokio::task::JoinHandle<u32>> {
        let mut calls = Vec::new();
        for &(job, weight) in jobs {
            let batcher = batcher.clone();
            #[allow(clippy::disallowed_methods, reason = "a test")]
            calls.push(tokio::spawn(async move { batcher.run(job, weight).await.unwrap() }));
            tokio::task::yield_now().await;
        }
        calls
    }

    #[tokio::test]
    async fn what_waits_goes_together_in_order_up_to_the_maximum() {
        let (batcher, seen) = start(LIMITS);
        let jobs: Vec<_> = (1..=7).map(|job| (job, 1)).collect();
        let calls = call_all(&batcher, &jobs).await;
        seen.gate.notify_one();
        for (call, (job, _)) in calls.into_iter().zip(jobs) {
            assert_eq!(call.await.unwrap(), job * 10);
        }
        assert_eq!(*seen.batches.lock(), [vec![1], vec![2, 3, 4, 5], vec![6, 7]]);
    }

    #[tokio::test]
    async fn heavy_jobs_go_in_batches_of_their_own() {
        let (batcher, seen) = start(LIMITS);
        let calls = call_all(&batcher, &[(1, 1), (2, 60), (3, 60), (4, 500), (5, 1)]).await;
        seen.gate.notify_one();
        for call in calls {
            call.await.unwrap();
        }
        assert_eq!(*seen.batches.lock(), [vec![1], vec![2], vec![3], vec![4], vec![5]]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_waits_too_long_is_taken_back_and_not_done() {
        let (batcher, seen) = start(LIMITS);
        let calls = call_all(&batcher, &[(1, 1)]).await;
        let late = || Error::unavailable("too late");
        let patience = Duration::from_secs(1);
        assert_eq!(batcher.run_within(patience, 2, 1, late).await.unwrap_err().to_string(), "too late");
        seen.gate.notify_one();
        for call in calls {
            call.await.unwrap();
        }
        assert_eq!(batcher.run_within(patience, 3, 1, late).await.unwrap(), 30);
        assert_eq!(*seen.batches.lock(), [vec![1], vec![3]]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_is_on_its_way_is_waited_for() {
        let (batcher, seen) = start(LIMITS);
        let gate = seen.clone();
        #[allow(clippy::disallowed_methods, reason = "a test")]
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            gate.gate.notify_one();
        });
        let late = || Error::unavailable("too late");
        assert_eq!(batcher.run_within(Duration::from_secs(1), 1, 1, late).await.unwrap(), 10);
    }

    #[tokio::test]
    async fn a_failed_batch_answers_all_its_callers() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let batcher = Batcher::<u32, u32>::start(LIMITS, move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Err(Error::unavailable("down")) }
        });
        assert_eq!(batcher.run(1, 1).await.unwrap_err().to_string(), "down");
        assert_eq!(batcher.run(2, 1).await.unwrap_err().to_string(), "down");
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_batch_that_panics_is_an_error_for_its_callers_and_not_the_end() {
        let batcher = Batcher::<u32, u32>::start(LIMITS, |jobs| async move {
            assert!(jobs != [1], "a fault");
            Ok(jobs.into_iter().map(Ok).collect())
        });
        assert!(batcher.run(1, 1).await.is_err());
        assert_eq!(batcher.run(2, 1).await.unwrap(), 2);
    }
}
