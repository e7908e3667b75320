//! The port of a queue: small messages that are harmless when they come twice, late or in another order.
//!
//! A message that was pulled belongs to the one who pulled it until it is acknowledged, given back, or until the queue
//! takes him for gone. An engine keeps messages that take long from being handed out again while its process lives.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{Error, Result};

#[async_trait]
pub trait Queue: Send + Sync {
    /// The name in the configuration.
    fn name(&self) -> &'static str;

    /// What it can do.
    fn limits(&self) -> QueueLimits;

    /// Why it does not work at present, if it does not.
    fn trouble(&self) -> Option<String>;

    /// Makes the queue where it is missing. `Invalid` if there is one of that name that does not fit, or that may not
    /// be made.
    async fn declare(&self, queue: &QueueName) -> Result<Declared>;

    /// Removes the queue with all that is in it; nothing if it is not there.
    async fn remove(&self, queue: &QueueName) -> Result<()>;

    /// Adds messages: text (UTF-8) without control characters. In batches as large as the engine likes. With `Ok` all of them are durable; after an error some of
    /// them may be there. `NotFound` if there is no such queue.
    async fn push(&self, queue: &QueueName, messages: Vec<Bytes>) -> Result<()>;

    /// Takes up to `max` messages, and waits up to `wait` for the first. May be dropped at any time: what it would have
    /// given comes again.
    async fn pull(&self, queue: &QueueName, max: usize, wait: Duration) -> Result<Vec<Message>>;

    /// These messages are done with. After an error some of them may come again. A receipt that is not valid any more
    /// is no error.
    async fn ack(&self, queue: &QueueName, receipts: Vec<Receipt>) -> Result<()>;

    /// Gives messages back: they come again at once.
    async fn nack(&self, queue: &QueueName, receipts: Vec<Receipt>) -> Result<()>;

    /// About how many messages there are.
    async fn depth(&self, queue: &QueueName) -> Result<Depth>;

    /// Lets go of connections; what was pulled and not acknowledged comes again to others. Later calls fail with
    /// `Unavailable`.
    async fn close(&self) -> Result<()>;
}

/// What an engine can do. A twist of an engine is a member here, and never a question for its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueLimits {
    /// The longest message.
    pub message_bytes_max: usize,
    /// Messages that may be pulled and not acknowledged, of one queue.
    pub taken_max: usize,
}

/// Whether a queue was there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Declared {
    Made,
    There,
}

/// A message that was pulled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub body: Bytes,
    pub receipt: Receipt,
}

/// The claim to a message that was pulled; only the engine that gave it can read it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Receipt(pub Box<str>);

/// Messages of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Depth {
    /// They wait to be pulled.
    pub ready: u64,
    /// They were pulled and not acknowledged: by whoever asks, and by others where the broker tells.
    pub taken: u64,
}

/// The name of a queue: letters, digits, `-` and `_`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct QueueName(Box<str>);

impl QueueName {
    /// What every engine allows.
    pub const BYTES_MAX: usize = 80;

    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || name.len() > Self::BYTES_MAX || !name.bytes().all(is_plain) {
            return Err(Error::invalid(format!(
                "the name of a queue must be 1 to {} letters, digits, - or _, not {name:?}",
                Self::BYTES_MAX
            )));
        }
        Ok(Self(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_every_engine_allows() {
        let longest = "a".repeat(QueueName::BYTES_MAX);
        for good in ["a", "flare-subscription-delivery_0", &longest] {
            assert_eq!(QueueName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a.b", "é", &format!("{longest}a")] {
            assert!(QueueName::new(bad).is_err(), "{bad:?}");
        }
    }
}
