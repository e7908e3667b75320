//! The queue through which outlets may get their changes, and the messages in it.

mod late;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use flare_core::{
    DocumentNumber, OutletId, Result, Sequence,
    document::Change,
    queue::{Queue, QueueName},
    url::DocumentUrl,
};
use futures_util::future::BoxFuture;
use late::LateQueue;
use serde::{Deserialize, Serialize};

/// How outlets get their changes through a queue.
#[derive(Clone)]
pub struct TaskSettings {
    /// The name of the engine in the configuration.
    pub engine: &'static str,
    pub open: OpenQueue,
    /// What the names of all queues begin with.
    pub prefix: String,
    pub queues: QueuePer,
    /// Hints of one outlet that may be in its queue at a time.
    pub window: usize,
}

/// Connects to the queue: once for each time that a node works.
pub type OpenQueue = Arc<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Queue>>> + Send + Sync>;

impl fmt::Debug for TaskSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { engine, open: _, prefix, queues, window } = self;
        let mut shown = formatter.debug_struct("TaskSettings");
        shown.field("engine", engine).field("prefix", prefix).field("queues", queues).field("window", window);
        shown.finish()
    }
}

impl TaskSettings {
    /// One that cannot be reached now is reached later. Any other mistake is told at once.
    pub(crate) async fn open(&self) -> Result<Tasks> {
        let queue = LateQueue::open(self.engine, self.open.clone()).await?;
        Ok(Tasks { queue: Arc::new(queue), prefix: self.prefix.clone(), queues: self.queues, window: self.window })
    }

    /// Whether the names of all queues will be right.
    pub fn check(&self) -> Result<()> {
        outlet_queue(&self.prefix, OutletId::generate())?;
        slot_queue(&self.prefix, u16::MAX, u16::MAX)?;
        Ok(())
    }
}

/// A queue, and how it is used.
pub(crate) struct Tasks {
    pub queue: Arc<dyn Queue>,
    prefix: String,
    pub queues: QueuePer,
    pub window: usize,
}

/// Who has a queue of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePer {
    Outlet,
    Slot,
}

impl Tasks {
    pub fn outlet_queue(&self, outlet: OutletId) -> Result<QueueName> {
        outlet_queue(&self.prefix, outlet)
    }

    pub fn slot_queue(&self, slot: u16, slots: u16) -> Result<QueueName> {
        slot_queue(&self.prefix, slot, slots)
    }
}

fn outlet_queue(prefix: &str, outlet: OutletId) -> Result<QueueName> {
    QueueName::new(format!("{prefix}-{outlet}"))
}

/// With another number of slots outlets belong to others: their queues have other names.
fn slot_queue(prefix: &str, slot: u16, slots: u16) -> Result<QueueName> {
    QueueName::new(format!("{prefix}-{slot}-of-{slots}"))
}

/// A message: an outlet may be behind on a document. Readable by people who look into the queue.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
pub(crate) struct HintMessage {
    subscription: String,
    document: String,
    number: u64,
    sequence: u64,
}

/// What a message says.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct HintRead {
    pub outlet: OutletId,
    pub url: DocumentUrl,
    pub number: DocumentNumber,
    pub sequence: Sequence,
}

pub(crate) fn encode(outlet: OutletId, change: &Change) -> Bytes {
    let message = HintMessage {
        subscription: outlet.to_string(),
        document: change.url.to_string(),
        number: change.number.0,
        sequence: change.sequence.0,
    };
    serde_json::to_vec(&message).map(Bytes::from).expect("strings and numbers are JSON")
}

/// None for what nobody of Flare has written.
pub(crate) fn decode(body: &[u8]) -> Option<HintRead> {
    let message: HintMessage = serde_json::from_slice(body).ok()?;
    Some(HintRead {
        outlet: message.subscription.parse().ok()?,
        url: DocumentUrl::parse(&message.document).ok()?,
        number: DocumentNumber(message.number),
        sequence: Sequence(message.sequence),
    })
}

#[cfg(test)]
mod tests {
    use flare_contract::make;
    use flare_core::{StreamId, document::WrittenChange, revision::Revision};

    use super::*;

    #[test]
    fn a_message_reads_back() {
        let outlet = OutletId::generate();
        let written = WrittenChange {
            sequence: Sequence(7),
            number: DocumentNumber(3),
            revision: Revision::new(1),
            replaces: None,
        };
        let change = Change::new(StreamId::generate(), &written, make::url("a%22%20b?x=1"), make::at(0), None);
        let read =
            HintRead { outlet, url: make::url("a%22%20b?x=1"), number: DocumentNumber(3), sequence: Sequence(7) };
        assert_eq!(decode(&encode(outlet, &change)), Some(read));
    }

    #[test]
    fn what_others_put_into_a_queue_is_no_hint() {
        let good =
            format!(r#"{{"subscription":"{}","document":"http://a/1","number":1,"sequence":1}}"#, OutletId::generate());
        assert!(decode(good.as_bytes()).is_some());
        for bad in ["", "hello", "{}", "[1]", &good.replace("http:", "?"), &good.replace("-", "x"), &good[..20]] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
    }
}
