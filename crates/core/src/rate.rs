//! A pace: so many starts per second, evenly, with a small burst.
//!
//! The generic cell rate algorithm: one time per outlet instead of a bucket that somebody has to fill. It has no clock of
//! its own.

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

/// How much of a second's allowance may be used at once.
const BURST_SHARE: u32 = 10;

#[derive(Clone, Debug)]
pub struct Pace {
    rate: NonZeroU32,
    interval: Duration,
    tolerance: Duration,
    /// When the next start would be due if all came evenly.
    due: Option<Instant>,
}

impl Pace {
    pub fn new(rate: NonZeroU32) -> Self {
        let interval = Duration::from_secs(1) / rate.get();
        let burst = (rate.get() / BURST_SHARE).max(1);
        Self { rate, interval, tolerance: interval * (burst - 1), due: None }
    }

    pub fn rate(&self) -> NonZeroU32 {
        self.rate
    }

    /// When the next start is allowed; none if it is allowed now.
    pub fn wait_until(&self, now: Instant) -> Option<Instant> {
        self.due.and_then(|due| due.checked_sub(self.tolerance)).filter(|allowed| *allowed > now)
    }

    /// Counts a start that is allowed.
    pub fn start(&mut self, now: Instant) {
        self.due = Some(self.due.map_or(now, |due| due.max(now)) + self.interval);
    }

    /// Takes back a start that did not happen.
    pub fn give_back(&mut self) {
        self.due = self.due.and_then(|due| due.checked_sub(self.interval));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_second_has_more_starts_than_the_rate_and_its_burst(
            rate in 1u32..500,
            waits in proptest::collection::vec(0u64..30_000, 1..400),
        ) {
            let mut pace = Pace::new(NonZeroU32::new(rate).unwrap());
            let mut now = Instant::now();
            let mut starts = Vec::new();
            for wait in waits {
                now += Duration::from_micros(wait);
                if pace.wait_until(now).is_none() {
                    pace.start(now);
                    starts.push(now);
                }
            }
            let most = (rate + (rate / BURST_SHARE).max(1)) as usize;
            for (index, first) in starts.iter().enumerate() {
                let within = starts[index..].iter().take_while(|start| **start < *first + Duration::from_secs(1)).count();
                prop_assert!(within <= most, "{within} starts in a second at a rate of {rate}");
            }
        }

        #[test]
        fn whoever_waits_as_told_gets_the_whole_rate(rate in 1u32..2000) {
            let mut pace = Pace::new(NonZeroU32::new(rate).unwrap());
            let begin = Instant::now();
            let mut now = begin;
            for _ in 0..rate {
                now = pace.wait_until(now).unwrap_or(now);
                prop_assert!(pace.wait_until(now).is_none());
                pace.start(now);
            }
            prop_assert!(now - begin <= Duration::from_secs(1));
        }
    }
}
