//! What a connection is doing: reading a head, answering, or nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Written by the socket and by the requests, read by the connection; all of it is about one connection, and a value
/// that is a moment old only moves a timeout by that moment.
pub(crate) struct Pulse {
    pub read_timeout: Duration,
    pub idle_timeout: Duration,
    start: Instant,
    in_flight: AtomicUsize,
    /// When the head that is being read began; zero when none is.
    head_since: AtomicU64,
    /// When something was last answered.
    quiet_since: AtomicU64,
    /// HTTP/2 has frames between requests, so bytes do not mean that a head is coming.
    is_http2: AtomicBool,
}

impl Pulse {
    /// A new connection is expected to ask something.
    pub fn new(read_timeout: Duration, idle_timeout: Duration) -> Self {
        Self {
            read_timeout,
            idle_timeout,
            start: Instant::now(),
            in_flight: AtomicUsize::new(0),
            head_since: AtomicU64::new(1),
            quiet_since: AtomicU64::new(1),
            is_http2: AtomicBool::new(false),
        }
    }

    /// Bytes came in.
    pub fn received(&self) {
        if self.in_flight.load(Relaxed) == 0 && self.head_since.load(Relaxed) == 0 && !self.is_http2.load(Relaxed) {
            self.head_since.store(self.now(), Relaxed);
        }
    }

    /// Bytes went out.
    pub fn sent(&self) {
        self.quiet_since.store(self.now(), Relaxed);
    }

    /// A head is complete: its request is in flight until the guard is dropped.
    pub fn begin(self: &Arc<Self>, is_http2: bool) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        self.head_since.store(0, Relaxed);
        self.is_http2.store(is_http2, Relaxed);
        InFlight(self.clone())
    }

    /// When the connection has been waited for long enough; none while a request is in flight.
    pub fn due(&self) -> Option<Instant> {
        if self.in_flight.load(Relaxed) > 0 {
            return None;
        }
        let (since, patience) = match self.head_since.load(Relaxed) {
            0 => (self.quiet_since.load(Relaxed), self.idle_timeout),
            since => (since, self.read_timeout),
        };
        Some(self.start + Duration::from_millis(since - 1) + patience)
    }

    /// Milliseconds since the start, plus one.
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }
}

pub(crate) struct InFlight(Arc<Pulse>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.sent();
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_head_a_request_and_silence_have_their_own_times() {
        let pulse = Arc::new(Pulse::new(Duration::from_secs(10), Duration::from_secs(75)));
        let left = || pulse.due().map(|due| (due - Instant::now()).as_secs());
        assert_eq!(left(), Some(10), "the first head");
        let request = pulse.begin(false);
        assert_eq!(left(), None, "a request in flight");
        drop(request);
        assert_eq!(left(), Some(75), "idle");
        tokio::time::advance(Duration::from_secs(5)).await;
        pulse.received();
        assert_eq!(left(), Some(10), "the next head");
        tokio::time::advance(Duration::from_secs(3)).await;
        pulse.received();
        assert_eq!(left(), Some(7), "more of it does not help");
        drop(pulse.begin(true));
        pulse.received();
        assert_eq!(left(), Some(75), "bytes between requests of HTTP/2");
    }
}
