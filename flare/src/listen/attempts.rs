//! How often each message has been tried, for `--fail-first`.

use std::collections::{HashMap, VecDeque};

/// How many messages are remembered; past it the oldest are forgotten.
const MESSAGES_MAX: usize = 100_000;

/// The number of attempts of each message.
#[derive(Debug, Default)]
pub struct Attempts {
    counts: HashMap<String, u32>,
    /// The messages, oldest first.
    order: VecDeque<String>,
}

impl Attempts {
    /// Counts an attempt of the message and returns which one it is, from 1.
    pub fn count(&mut self, message: &str) -> u32 {
        if let Some(count) = self.counts.get_mut(message) {
            *count = count.saturating_add(1);
            return *count;
        }
        if self.order.len() >= MESSAGES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
        }
        self.order.push_back(message.to_owned());
        self.counts.insert(message.to_owned(), 1);
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_by_message_and_the_memory_is_bounded() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.count("a"), 1);
        assert_eq!(attempts.count("a"), 2);
        assert_eq!(attempts.count("b"), 1);
        for message in 0..MESSAGES_MAX {
            attempts.count(&message.to_string());
        }
        assert_eq!(attempts.counts.len(), MESSAGES_MAX);
        assert_eq!(attempts.count("a"), 1);
    }
}
