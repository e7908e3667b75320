//! A change that an outlet has taken up: from the feed, or through its queue.

use std::sync::Arc;

use flare_core::{DocumentNumber, Sequence, document::Change, queue::Receipt, url::DocumentUrl};

use crate::delivery::attempt::Source;

pub(crate) enum Item {
    Change(Arc<Change>),
    Hint(Box<QueuedHint>),
}

/// A message of a queue: the outlet may be behind on a document because of this change.
pub(crate) struct QueuedHint {
    pub number: DocumentNumber,
    pub url: DocumentUrl,
    pub sequence: Sequence,
    pub receipt: Receipt,
}

impl Item {
    pub fn number(&self) -> DocumentNumber {
        match self {
            Self::Change(change) => change.number,
            Self::Hint(hint) => hint.number,
        }
    }

    pub fn sequence(&self) -> Sequence {
        match self {
            Self::Change(change) => change.sequence,
            Self::Hint(hint) => hint.sequence,
        }
    }

    pub fn url(&self) -> &DocumentUrl {
        match self {
            Self::Change(change) => &change.url,
            Self::Hint(hint) => &hint.url,
        }
    }

    /// The newer change of the same document comes by itself. What a hint is about is only known when it is looked up.
    pub fn is_superseded(&self) -> bool {
        matches!(self, Self::Change(change) if change.is_superseded())
    }

    pub fn into_hint(self) -> Option<QueuedHint> {
        match self {
            Self::Change(_) => None,
            Self::Hint(hint) => Some(*hint),
        }
    }

    pub fn into_receipt(self) -> Option<Receipt> {
        self.into_hint().map(|hint| hint.receipt)
    }

    /// What an attempt at it sets out with, and the message to release when it is done.
    pub fn start(self, fresh: bool, doubtful: bool) -> (Source, Option<Receipt>) {
        match self {
            Self::Change(change) => (Source::Change { change, fresh, doubtful }, None),
            Self::Hint(hint) => {
                let QueuedHint { url, sequence, receipt, .. } = *hint;
                (Source::Hint { url, sequence, fresh, doubtful }, Some(receipt))
            }
        }
    }
}
