//! What the writer knows of the store, as long as nobody else writes: most writes are of documents that changed a short
//! while ago, and looking them up takes a round trip.

use std::collections::HashMap;

use flare_core::{StreamId, url::DocumentUrl};
use jiff::Timestamp;

use crate::rows::DocumentHead;

/// Documents of one generation; there are two.
const GENERATION_MAX: usize = 65_536;

pub(crate) type DocumentKey = (StreamId, DocumentUrl);

#[derive(Default)]
pub(crate) struct Cache {
    young: HashMap<DocumentKey, Option<DocumentHead>>,
    old: HashMap<DocumentKey, Option<DocumentHead>>,
    /// How many documents each stream has; none for a stream that is not there.
    totals: HashMap<StreamId, Option<u64>>,
    /// When the clock was last noted.
    pub clock: Option<Timestamp>,
}

impl Cache {
    /// `Some(None)` is known to be absent, `None` is not known.
    pub fn document(&self, key: &DocumentKey) -> Option<Option<DocumentHead>> {
        self.young.get(key).or_else(|| self.old.get(key)).copied()
    }

    pub fn learn_document(&mut self, key: DocumentKey, head: Option<DocumentHead>) {
        if self.young.len() >= GENERATION_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, head);
    }

    pub fn total(&self, stream: StreamId) -> Option<Option<u64>> {
        self.totals.get(&stream).copied()
    }

    pub fn learn_total(&mut self, stream: StreamId, total: Option<u64>) {
        self.totals.insert(stream, total);
    }

    pub fn forget_stream(&mut self, stream: StreamId) {
        self.totals.remove(&stream);
    }

    pub fn forget_all(&mut self) {
        *self = Self { clock: self.clock, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use flare_contract::make;

    use super::*;

    #[test]
    fn what_was_learnt_last_is_known_and_the_number_of_documents_is_bounded() {
        let stream = make::stream("http://api.test/users/{id}").id;
        let key = |n: usize| (stream, make::url(&n.to_string()));
        let mut cache = Cache::default();
        for n in 0..3 * GENERATION_MAX {
            cache.learn_document(key(n), None);
            assert_eq!(cache.document(&key(n)), Some(None));
        }
        assert!(cache.young.len() + cache.old.len() <= 2 * GENERATION_MAX);
        assert_eq!(cache.document(&key(0)), None);
        cache.forget_all();
        assert_eq!(cache.document(&key(3 * GENERATION_MAX - 1)), None);
    }
}
