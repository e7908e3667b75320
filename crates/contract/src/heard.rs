//! A listener that remembers what it was told.

use std::sync::Arc;

use flare_core::{Sequence, document::Change, port::ChangeListener};
use parking_lot::Mutex;

#[derive(Default)]
pub struct Heard {
    pub sequences: Mutex<Vec<u64>>,
    /// The heads up to which it was sent to the feed.
    pub missed: Mutex<Vec<Sequence>>,
}

impl ChangeListener for Heard {
    fn changed(&self, changes: Vec<Arc<Change>>) {
        self.sequences.lock().extend(changes.iter().map(|change| change.sequence.0));
    }

    fn missed(&self, head: Sequence) {
        self.missed.lock().push(head);
    }
}
