//! How long something may not answer, and how often it is asked again.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, Result};

const DELAY_MIN: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(5);
/// The longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Counts the time since something last went well.
#[derive(Debug)]
pub(crate) struct Patience {
    limit: Duration,
    since: Option<Instant>,
    delay: Duration,
}

impl Patience {
    pub fn new(limit: Duration) -> Self {
        Self { limit, since: None, delay: DELAY_MIN }
    }

    /// How long to wait before the next attempt; `None` when it is enough.
    pub fn next_delay(&mut self) -> Option<Duration> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let left = self.limit.checked_sub(since.elapsed())?;
        let delay = self.delay.min(left.max(Duration::from_millis(1)));
        self.delay = (self.delay * 2).min(DELAY_MAX);
        Some(delay)
    }
}

/// How long one answer is waited for.
pub(crate) fn answer_limit(give_up_after: Duration) -> Duration {
    (give_up_after / 2).clamp(Duration::from_millis(500), ANSWER_MAX)
}

/// The answer, or that there is none.
pub(crate) async fn answered<T>(
    limit: Option<Duration>,
    who: &str,
    answer: impl Future<Output = Result<T>>,
) -> Result<T> {
    let Some(limit) = limit else { return answer.await };
    match tokio::time::timeout(limit, answer).await {
        Ok(result) => result,
        Err(_) => Err(Error::unavailable(format!("the {who} has not answered for {} s", limit.as_secs_f32()))),
    }
}
