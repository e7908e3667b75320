//! The walk over the keys of a table: where chunks end.
//!
//! Small chunks are many, and a query for the end of each would cost more than the rows. So one query finds several, as
//! long as it does not pass over too many rows, and what was not asked for yet is kept.

use std::collections::VecDeque;

use super::{identifier, identifiers};
use crate::key::Key;

/// How many rows one query passes over, unless the chunk itself has more.
const ROWS_MAX: u64 = 100_000;
const STEPS_MAX: u64 = 64;

/// Ends of chunks that are known and have not been asked for.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// What is asked for next: a chunk of so many rows after this key.
    next: Option<(Option<Key>, Option<Key>, u64)>,
    keys: VecDeque<Key>,
    /// How many were looked for at last. The first query is a small one, so that the copy begins soon.
    steps: u64,
}

impl Ends {
    /// The end of the chunk, if it is known.
    pub fn take(&mut self, after: Option<&Key>, upper: Option<&Key>, rows: u64) -> Option<Key> {
        if !self.is_next(after, upper, rows) {
            *self = Self::default();
        }
        let key = self.keys.pop_front()?;
        self.next = Some((Some(key.clone()), upper.cloned(), rows));
        Some(key)
    }

    /// How many ends to look for now.
    pub fn steps(&mut self, rows: u64) -> u64 {
        self.steps = (self.steps * 2).clamp(1, (ROWS_MAX / rows.max(1)).clamp(1, STEPS_MAX));
        self.steps
    }

    /// Keeps what was found after this key.
    pub fn keep(&mut self, keys: VecDeque<Key>, after: Option<&Key>, upper: Option<&Key>, rows: u64) {
        self.keys = keys;
        self.next = Some((after.cloned(), upper.cloned(), rows));
    }

    fn is_next(&self, after: Option<&Key>, upper: Option<&Key>, rows: u64) -> bool {
        self.next.as_ref().is_some_and(|(key, end, count)| (key.as_ref(), end.as_ref(), *count) == (after, upper, rows))
    }
}

/// The query for the last keys of `steps` chunks: each begins where the one before ended. `first` and `upper` are
/// conditions on the rows of all and of the later chunks.
pub(super) fn statement(table: &str, columns: &[String], rows: u64, steps: u64, first: &str, upper: &str) -> String {
    let of = |side: &str| {
        let names: Vec<String> = columns.iter().map(|name| format!("{side}.{}", identifier(name))).collect();
        names.join(", ")
    };
    let texts: Vec<String> = columns.iter().map(|name| format!("walk.{}::text", identifier(name))).collect();
    let (keys, order, before) = (identifiers(columns), of("t"), of("walk"));
    let end = format!("ORDER BY {order} OFFSET {} LIMIT 1", rows.saturating_sub(1));
    format!(
        "WITH RECURSIVE walk AS ((SELECT {order}, 1 AS flare_step FROM {table} AS t{first} {end}) UNION ALL \
         (SELECT found.*, walk.flare_step + 1 FROM walk CROSS JOIN LATERAL \
         (SELECT {order} FROM {table} AS t WHERE ({keys}) > ({before}){upper} {end}) AS found \
         WHERE walk.flare_step < {steps})) SELECT {} FROM walk ORDER BY walk.flare_step",
        texts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_handed_out_to_the_walk_that_they_were_found_for() {
        let key = |at| Some(Key::int(at));
        let mut ends = Ends::default();
        assert_eq!(ends.take(None, None, 10), None);
        ends.keep((1..5).map(|at| Key::int(at * 10)).collect(), None, None, 10);
        assert_eq!(ends.take(None, None, 10), key(10));
        assert_eq!(ends.take(key(10).as_ref(), None, 10), key(20));
        assert_eq!(ends.take(key(20).as_ref(), None, 5), None, "other rows than were looked for");
        assert_eq!(ends.take(key(20).as_ref(), None, 10), None, "what was found is forgotten");
    }

    #[test]
    fn a_query_looks_for_more_each_time_but_never_far() {
        let check = |rows, expected: &[u64]| {
            let mut ends = Ends::default();
            let found: Vec<u64> = expected.iter().map(|_| ends.steps(rows)).collect();
            assert_eq!(found, expected);
        };
        check(1_000, &[1, 2, 4, 8, 16, 32, 64, 64]);
        check(10_000, &[1, 2, 4, 8, 10, 10]);
        check(1_000_000, &[1, 1]);
    }
}
