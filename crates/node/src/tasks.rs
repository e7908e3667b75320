//! The queue through which outlets may get their changes, and the messages in it.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use flare_core::{
    DocumentNumber, OutletId, Result, Sequence,
    document::Change,
    queue::{Queue, QueueName},
    url::DocumentUrl,
};
use serde::{Deserialize, Serialize};

/// A queue, and how it is used.
#[derive(Clone)]
pub struct Tasks {
    pub queue: Arc<dyn Queue>,
    /// What the names of all queues begin with.
    pub prefix: String,
    pub queues: QueuePer,
    /// Hints of one outlet that may be in its queue at a time.
    pub window: usize,
}

impl fmt::Debug for Tasks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, prefix, queues, window } = self;
        let mut shown = formatter.debug_struct("Tasks");
        shown.field("engine", &queue.name()).field("prefix", prefix).field("queues", queues).field("window", window);
        shown.finish()
    }
}

/// Who has a queue of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePer {
    Outlet,
    Slot,
}

impl Tasks {
    pub(crate) fn outlet_queue(&self, outlet: OutletId) -> Result<QueueName> {
        QueueName::new(format!("{}-{outlet}", self.prefix))
    }

    /// With another number of slots outlets belong to others: their queues have other names.
    pub(crate) fn slot_queue(&self, slot: u16, slots: u16) -> Result<QueueName> {
        QueueName::new(format!("{}-{slot}-of-{slots}", self.prefix))
    }

    /// Whether the names of all queues will be right.
    pub fn check(&self) -> Result<()> {
        self.outlet_queue(OutletId::generate())?;
        self.slot_queue(u16::MAX, u16::MAX)?;
        Ok(())
    }
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
