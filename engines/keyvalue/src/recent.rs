//! Rows that transactions have lately read or written: most writes are of documents that changed a short while ago, and
//! a look into the tables costs more than all the rest of a transaction.

use std::collections::HashMap;

use bytes::Bytes;

use crate::Table;

/// Rows of one generation; there are two.
const GENERATION_ROWS_MAX: usize = 65_536;
/// Longer rows are not kept: they are of outlets, and seldom read.
const ROW_BYTES_MAX: usize = 256;

pub(crate) type Place = (Table, Bytes);

/// Belongs to the one thread that writes, so it is never stale.
#[derive(Default)]
pub(crate) struct Recent {
    young: HashMap<Place, Option<Bytes>>,
    old: HashMap<Place, Option<Bytes>>,
}

impl Recent {
    /// The row as it was last seen: `Some(None)` is known to be absent, `None` is not known.
    pub fn get(&self, place: &Place) -> Option<&Option<Bytes>> {
        self.young.get(place).or_else(|| self.old.get(place))
    }

    pub fn learn(&mut self, place: Place, value: Option<Bytes>) {
        if value.as_ref().is_some_and(|value| value.len() > ROW_BYTES_MAX) {
            self.young.remove(&place);
            self.old.remove(&place);
            return;
        }
        if self.young.len() >= GENERATION_ROWS_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(place, value);
    }

    pub fn forget_all(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learnt_last_is_known_and_the_number_of_rows_is_bounded() {
        let place = |n: usize| (Table::Heads, Bytes::from(n.to_string()));
        let mut recent = Recent::default();
        for n in 0..5 * GENERATION_ROWS_MAX {
            recent.learn(place(n % (3 * GENERATION_ROWS_MAX)), Some(Bytes::from(n.to_string())));
            assert_eq!(recent.get(&place(n % (3 * GENERATION_ROWS_MAX))), Some(&Some(Bytes::from(n.to_string()))));
        }
        assert!(recent.young.len() + recent.old.len() <= 2 * GENERATION_ROWS_MAX);
        recent.learn(place(7), None);
        assert_eq!(recent.get(&place(7)), Some(&None));
        recent.learn(place(7), Some(Bytes::from(vec![0; ROW_BYTES_MAX + 1])));
        assert_eq!(recent.get(&place(7)), None, "a long row leaves nothing stale behind");
        recent.forget_all();
        assert_eq!(recent.get(&place(1)), None);
    }
}
