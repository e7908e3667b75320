//! When a failed delivery is tried again: the delivery policy of AWS SNS, with its four phases.
//!
//! After the first attempt fails come retries without delay, then some at the minimum delay, then a backoff from the
//! minimum to the maximum, then some at the maximum. The backoff has what the other phases leave of all retries.
//! Time and randomness come from the caller; that a message is too old to be retried is decided elsewhere.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// The longest delay between two attempts, in seconds.
pub const DELAY_SECONDS_MAX: u32 = 3600;

/// The most retries of one message.
pub const RETRIES_MAX: u32 = 100;

/// The numbers of a policy, named as in SNS. Delays are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetrySettings {
    pub min_delay_target: u32,
    pub max_delay_target: u32,
    /// All retries, those of the other three counts included.
    pub num_retries: u32,
    pub num_no_delay_retries: u32,
    pub num_min_delay_retries: u32,
    pub num_max_delay_retries: u32,
    pub backoff_function: BackoffFunction,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            min_delay_target: 1,
            max_delay_target: 3600,
            num_retries: 50,
            num_no_delay_retries: 3,
            num_min_delay_retries: 2,
            num_max_delay_retries: 35,
            backoff_function: BackoffFunction::Exponential,
        }
    }
}

/// How the delay grows from the minimum a to the maximum b; retry i of n, counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackoffFunction {
    /// a + (b − a) · i / (n − 1)
    Linear,
    /// a + (b − a) · i (i + 1) / (n (n − 1))
    Arithmetic,
    /// a · (b / a) ^ (i / (n − 1))
    Geometric,
    /// min(b, a · 2 ^ i)
    Exponential,
}

impl BackoffFunction {
    const ALL: [Self; 4] = [Self::Linear, Self::Arithmetic, Self::Geometric, Self::Exponential];

    pub fn parse(name: &str) -> Result<Self, RetryError> {
        let known = Self::ALL.into_iter().find(|function| function.as_str() == name);
        known.ok_or_else(|| RetryError::BackoffFunction { name: crate::url::excerpt(name) })
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Arithmetic => "arithmetic",
            Self::Geometric => "geometric",
            Self::Exponential => "exponential",
        }
    }

    /// The delay of retry `i` out of `n`, in seconds. A backoff of one retry has the minimum delay.
    fn delay_seconds(self, i: u32, n: u32, min: f64, max: f64) -> f64 {
        let (i, n) = (f64::from(i), f64::from(n));
        let last = (n - 1.0).max(1.0);
        match self {
            Self::Linear => min + (max - min) * i / last,
            Self::Arithmetic => min + (max - min) * i * (i + 1.0) / (n * last),
            Self::Geometric => min * (max / min).powf(i / last),
            Self::Exponential => min * i.exp2(),
        }
        .clamp(min, max)
    }
}

impl fmt::Display for BackoffFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A policy that holds together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryPolicy(RetrySettings);

impl RetryPolicy {
    /// Delays are 1 to 3600 seconds, the minimum not above the maximum; at most 100 retries, which the phases share.
    pub fn new(settings: RetrySettings) -> Result<Self, RetryError> {
        check("minDelayTarget", settings.min_delay_target, 1, DELAY_SECONDS_MAX)?;
        check("maxDelayTarget", settings.max_delay_target, settings.min_delay_target, DELAY_SECONDS_MAX)?;
        check("numRetries", settings.num_retries, 0, RETRIES_MAX)?;
        // Each phase may have what the ones before it leave, so the sum cannot exceed the total nor overflow.
        let mut left = settings.num_retries;
        for (field, count) in [
            ("numNoDelayRetries", settings.num_no_delay_retries),
            ("numMinDelayRetries", settings.num_min_delay_retries),
            ("numMaxDelayRetries", settings.num_max_delay_retries),
        ] {
            if count > left {
                return Err(RetryError::Phases { field, count, left, retries: settings.num_retries });
            }
            left -= count;
        }
        Ok(Self(settings))
    }

    pub fn settings(&self) -> &RetrySettings {
        &self.0
    }

    /// How long to wait before a retry, counted from zero after the first attempt; `None` when there are no more.
    ///
    /// `jitter` is a random number from 0 to 1. It spreads the delay evenly over its upper half, so that clients that
    /// failed together do not come back together: a delay that is not zero stays between half the minimum and the
    /// maximum, and 1 gives the whole delay.
    pub fn delay(&self, retry: u32, jitter: f64) -> Option<Duration> {
        let seconds = self.delay_seconds(retry)?;
        let jitter = if jitter.is_nan() { 1.0 } else { jitter.clamp(0.0, 1.0) };
        Some(Duration::from_secs_f64(seconds * (0.5 + jitter / 2.0)))
    }

    fn delay_seconds(&self, retry: u32) -> Option<f64> {
        let settings = &self.0;
        let pre_backoff = settings.num_no_delay_retries;
        let backoff = pre_backoff + settings.num_min_delay_retries;
        let post_backoff = settings.num_retries - settings.num_max_delay_retries;
        let (min, max) = (f64::from(settings.min_delay_target), f64::from(settings.max_delay_target));
        match retry {
            _ if retry < pre_backoff => Some(0.0),
            _ if retry < backoff => Some(min),
            _ if retry < post_backoff => {
                let (i, n) = (retry - backoff, post_backoff - backoff);
                Some(settings.backoff_function.delay_seconds(i, n, min, max))
            }
            _ if retry < settings.num_retries => Some(max),
            _ => None,
        }
    }
}

/// Which number of a policy is wrong, and what is allowed. Fields are named as in the API.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetryError {
    #[error("{field} is {value}, it must be between {min} and {max}")]
    Range { field: &'static str, value: u32, min: u32, max: u32 },
    #[error("{field} is {count}, it must be at most {left}: the phases together cannot exceed numRetries, {retries}")]
    Phases { field: &'static str, count: u32, left: u32, retries: u32 },
    #[error("backoffFunction is {name:?}, it must be linear, arithmetic, geometric or exponential")]
    BackoffFunction { name: String },
}

fn check(field: &'static str, value: u32, min: u32, max: u32) -> Result<(), RetryError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(RetryError::Range { field, value, min, max }) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WHOLE: f64 = 1.0;

    fn backoff(function: BackoffFunction, min: u32, max: u32, retries: u32) -> Vec<f64> {
        let settings = RetrySettings {
            min_delay_target: min,
            max_delay_target: max,
            num_retries: retries,
            num_no_delay_retries: 0,
            num_min_delay_retries: 0,
            num_max_delay_retries: 0,
            backoff_function: function,
        };
        let policy = RetryPolicy::new(settings).unwrap();
        (0..retries).map(|retry| policy.delay(retry, WHOLE).unwrap().as_secs_f64()).collect()
    }

    #[test]
    fn the_default_goes_through_its_four_phases() {
        let policy = RetryPolicy::new(RetrySettings::default()).unwrap();
        assert_eq!(policy, RetryPolicy::default());
        let delays: Vec<_> = (0..50).map(|retry| policy.delay(retry, WHOLE).unwrap().as_secs()).collect();
        assert_eq!(delays[..15], [0, 0, 0, 1, 1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert!(delays[15..].iter().all(|delay| *delay == 3600));
        assert_eq!(policy.delay(50, WHOLE), None);
        assert_eq!(policy.delay(u32::MAX, WHOLE), None);
    }

    #[test]
    fn each_function_grows_as_its_formula_says() {
        assert_eq!(backoff(BackoffFunction::Linear, 10, 50, 5), [10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(backoff(BackoffFunction::Arithmetic, 10, 50, 5), [10.0, 14.0, 22.0, 34.0, 50.0]);
        assert_eq!(backoff(BackoffFunction::Geometric, 1, 16, 5), [1.0, 2.0, 4.0, 8.0, 16.0]);
        assert_eq!(backoff(BackoffFunction::Exponential, 3, 20, 5), [3.0, 6.0, 12.0, 20.0, 20.0]);
        for function in BackoffFunction::ALL {
            assert_eq!(backoff(function, 7, 20, 1), [7.0], "{function}");
            assert_eq!(BackoffFunction::parse(function.as_str()), Ok(function));
        }
    }

    #[test]
    fn jitter_takes_up_to_half_of_the_delay() {
        let policy = RetryPolicy::default();
        let check = |retry, jitter, milliseconds| {
            assert_eq!(policy.delay(retry, jitter), Some(Duration::from_millis(milliseconds)), "{retry} {jitter}");
        };
        check(0, 0.0, 0);
        check(3, 0.0, 500);
        check(3, 0.5, 750);
        check(49, 0.0, 1_800_000);
        check(49, 7.0, 3_600_000);
        check(49, -7.0, 1_800_000);
        check(49, f64::NAN, 3_600_000);
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused_by_name() {
        let refuse = |change: fn(&mut RetrySettings), message: &str| {
            let mut settings = RetrySettings::default();
            change(&mut settings);
            assert_eq!(RetryPolicy::new(settings).unwrap_err().to_string(), message);
        };
        refuse(|s| s.min_delay_target = 0, "minDelayTarget is 0, it must be between 1 and 3600");
        refuse(|s| s.max_delay_target = 3601, "maxDelayTarget is 3601, it must be between 1 and 3600");
        refuse(
            |s| (s.min_delay_target, s.max_delay_target) = (20, 10),
            "maxDelayTarget is 10, it must be between 20 and 3600",
        );
        refuse(|s| s.num_retries = 101, "numRetries is 101, it must be between 0 and 100");
        refuse(
            |s| s.num_max_delay_retries = 46,
            "numMaxDelayRetries is 46, it must be at most 45: the phases together cannot exceed numRetries, 50",
        );
        refuse(
            |s| s.num_no_delay_retries = u32::MAX,
            "numNoDelayRetries is 4294967295, it must be at most 50: the phases together cannot exceed numRetries, 50",
        );
        let error = BackoffFunction::parse("quadratic").unwrap_err().to_string();
        assert_eq!(error, "backoffFunction is \"quadratic\", it must be linear, arithmetic, geometric or exponential");
    }

    fn any_policy() -> impl Strategy<Value = RetryPolicy> {
        let function = prop::sample::select(&BackoffFunction::ALL[..]);
        (1..=3600_u32, 1..=3600_u32, [0..=33_u32, 0..=33_u32, 0..=33_u32], 0..=100_u32, function).prop_map(
            |(one, other, [none, min, max], retries, backoff_function)| {
                let settings = RetrySettings {
                    min_delay_target: one.min(other),
                    max_delay_target: one.max(other),
                    num_retries: retries.max(none + min + max),
                    num_no_delay_retries: none,
                    num_min_delay_retries: min,
                    num_max_delay_retries: max,
                    backoff_function,
                };
                RetryPolicy::new(settings).unwrap()
            },
        )
    }

    proptest! {
        #[test]
        fn there_are_exactly_as_many_retries_as_set(policy in any_policy(), jitter in 0.0..=1.0) {
            let retries = (0..=RETRIES_MAX).filter(|retry| policy.delay(*retry, jitter).is_some()).count();
            prop_assert_eq!(retries, policy.settings().num_retries as usize);
        }

        #[test]
        fn delays_grow_when_there_is_no_jitter(policy in any_policy()) {
            let delays: Vec<_> = (0..RETRIES_MAX).map_while(|retry| policy.delay(retry, WHOLE)).collect();
            prop_assert!(delays.is_sorted(), "{:?}", delays);
        }

        #[test]
        fn delays_stay_within_half_the_minimum_and_the_maximum(policy in any_policy(), jitter in -0.5..=1.5) {
            let RetrySettings { min_delay_target, max_delay_target, num_no_delay_retries, .. } = *policy.settings();
            for retry in 0..RETRIES_MAX {
                let Some(delay) = policy.delay(retry, jitter) else { break };
                let seconds = delay.as_secs_f64();
                let is_immediate = retry < num_no_delay_retries;
                let min = if is_immediate { 0.0 } else { f64::from(min_delay_target) / 2.0 };
                let max = if is_immediate { 0.0 } else { f64::from(max_delay_target) };
                prop_assert!(min <= seconds && seconds <= max, "{} {}", retry, seconds);
            }
        }
    }
}
