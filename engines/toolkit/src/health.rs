//! Whether the server behind an engine answers, and how long to wait before it is asked again.

use std::time::Duration;

use flare_core::{Error, Result};
use parking_lot::Mutex;

/// What the last calls to a server came to.
#[derive(Default)]
pub struct Health {
    trouble: Mutex<Option<String>>,
}

impl Health {
    /// Why calls fail at present, if they do.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    /// Notes what came of a call, and hands it on.
    pub fn note<T>(&self, outcome: Result<T>) -> Result<T> {
        match &outcome {
            Ok(_) => self.is_well(),
            Err(error) if error.kind() == flare_core::ErrorKind::Unavailable => self.is_ill(error),
            // The server has answered.
            Err(_) => {}
        }
        outcome
    }

    pub fn is_well(&self) {
        let mut trouble = self.trouble.lock();
        if trouble.take().is_some() {
            tracing::info!("the server answers again");
        }
    }

    pub fn is_ill(&self, error: &Error) {
        let mut trouble = self.trouble.lock();
        if trouble.is_none() {
            tracing::warn!(reason = error.chain(), "the server does not answer");
        }
        *trouble = Some(error.chain());
    }
}

/// The error of one who opens a store: for good, if a cause says that trying again is no use, as with a login that is
/// refused. A store that is open waits for that too, because others can help it.
pub fn at_opening(error: Error, is_for_good: impl Fn(&(dyn std::error::Error + 'static)) -> bool) -> Error {
    let mut causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
    if causes.any(is_for_good) { Error::invalid(error.chain()) } else { error }
}

/// How long to wait before the next attempt: longer each time, up to a maximum, and never the same for two nodes.
pub struct Backoff {
    min: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    pub fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, failures: 0 }
    }

    /// The wait after one more failure; `chance` is between 0 and 1.
    pub fn next(&mut self, chance: f64) -> Duration {
        let longest = self.min.saturating_mul(1 << self.failures.min(16)).min(self.max);
        self.failures += 1;
        self.min + longest.saturating_sub(self.min).mul_f64(chance.clamp(0.0, 1.0))
    }

    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use flare_core::ErrorKind;

    use super::*;

    #[test]
    fn trouble_is_what_was_unavailable_last_and_ends_with_a_success() {
        let health = Health::default();
        assert_eq!(health.trouble(), None);
        let _noted = health.note::<()>(Err(Error::unavailable("no route to the server")));
        let _noted = health.note::<()>(Err(Error::conflict("taken")));
        assert_eq!(health.trouble().as_deref(), Some("no route to the server"));
        let _noted = health.note(Ok(()));
        assert_eq!(health.trouble(), None);
    }

    #[test]
    fn what_is_for_good_at_opening_is_found_among_the_causes() {
        let refused = || std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let is_refusal = |cause: &(dyn std::error::Error + 'static)| {
            cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::PermissionDenied)
        };
        let error = at_opening(Error::unavailable("could not open").because(refused()), is_refusal);
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Invalid, "could not open: permission denied".into()));
        let error = at_opening(Error::unavailable("away"), is_refusal);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn waits_grow_to_the_maximum_and_differ_by_chance() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        let longest: Vec<_> = (0..8).map(|_| backoff.next(1.0).as_millis()).collect();
        assert_eq!(longest, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(backoff.next(0.0), Duration::from_millis(100));
        assert!(backoff.next(0.5) < Duration::from_secs(3));
        backoff.reset();
        assert_eq!(backoff.next(1.0), Duration::from_millis(100));
    }
}
