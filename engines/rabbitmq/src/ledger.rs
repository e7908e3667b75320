//! Which deliveries of a channel are still open, and how to settle some of them with few frames.
//!
//! The broker numbers the deliveries of a channel 1, 2, 3 … across all its consumers. A number that is settled twice
//! closes the channel, so only open ones may be named. One frame can settle all numbers up to one, which is used where
//! nothing below is open, or on its way from the driver to here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// How many open deliveries a queue has.
pub(crate) type Held = Arc<AtomicU64>;

#[derive(Default)]
pub(crate) struct Ledger {
    open: BTreeMap<u64, Held>,
    /// All deliveries up to here have come.
    complete: u64,
    /// Those past it that have come.
    early: BTreeSet<u64>,
}

/// One frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Settlement {
    pub number: u64,
    /// This delivery and all before it.
    pub with_all_before: bool,
}

impl Ledger {
    pub fn came(&mut self, number: u64, held: &Held) {
        held.fetch_add(1, Ordering::Relaxed);
        self.open.insert(number, held.clone());
        self.early.insert(number);
        while self.early.first() == Some(&(self.complete + 1)) {
            self.early.pop_first();
            self.complete += 1;
        }
    }

    /// What to send so that these are settled; those that are not open are left out.
    pub fn settle(&mut self, mut numbers: Vec<u64>) -> Vec<Settlement> {
        numbers.sort_unstable();
        numbers.retain(|number| {
            let Some(held) = self.open.remove(number) else { return false };
            held.fetch_sub(1, Ordering::Relaxed);
            true
        });
        let first_open = self.open.first_key_value().map_or(u64::MAX, |(number, _)| *number);
        let together = numbers.partition_point(|number| *number < first_open && *number <= self.complete);
        let (together, single) = numbers.split_at(together);
        let together =
            together.last().map(|number| Settlement { number: *number, with_all_before: together.len() > 1 });
        let single = single.iter().map(|number| Settlement { number: *number, with_all_before: false });
        together.into_iter().chain(single).collect()
    }
}

/// The deliveries of a channel that is gone are nobody's.
impl Drop for Ledger {
    fn drop(&mut self) {
        for held in self.open.values() {
            held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ledger(numbers: impl IntoIterator<Item = u64>) -> (Ledger, Held) {
        let (mut ledger, held) = (Ledger::default(), Held::default());
        numbers.into_iter().for_each(|number| ledger.came(number, &held));
        (ledger, held)
    }

    fn check(ledger: &mut Ledger, numbers: &[u64], expected: &[(u64, bool)]) {
        let settled: Vec<_> =
            ledger.settle(numbers.to_vec()).iter().map(|frame| (frame.number, frame.with_all_before)).collect();
        assert_eq!(settled, expected, "{numbers:?}");
    }

    #[test]
    fn what_is_in_order_takes_one_frame() {
        let (mut ledger, held) = ledger(1..=10);
        check(&mut ledger, &[3, 1, 2], &[(3, true)]);
        check(&mut ledger, &[4], &[(4, false)]);
        check(&mut ledger, &[5, 6, 7, 8, 9, 10], &[(10, true)]);
        assert_eq!(held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_others_hold_is_not_settled_with_the_rest() {
        let (mut ledger, held) = ledger(1..=6);
        check(&mut ledger, &[1, 2, 4, 6], &[(2, true), (4, false), (6, false)]);
        check(&mut ledger, &[3, 5], &[(5, true)]);
        assert_eq!(held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_has_not_come_yet_is_not_settled_with_the_rest() {
        let (mut ledger, held) = ledger([1, 2, 4, 5]);
        check(&mut ledger, &[1, 2, 4, 5], &[(2, true), (4, false), (5, false)]);
        ledger.came(3, &held);
        ledger.came(6, &held);
        check(&mut ledger, &[3, 6], &[(6, true)]);
    }

    #[test]
    fn nothing_is_settled_twice() {
        let (mut ledger, held) = ledger(1..=3);
        check(&mut ledger, &[2, 2], &[(2, false)]);
        check(&mut ledger, &[2, 9], &[]);
        check(&mut ledger, &[1, 2, 3], &[(3, true)]);
        assert_eq!(held.load(Ordering::Relaxed), 0);
    }

    proptest! {
        /// Against a broker that settles what a frame says and closes the channel over a number that is not open.
        #[test]
        fn exactly_what_was_named_is_settled(
            order in Just((1..=12_u64).collect::<Vec<_>>()).prop_shuffle(),
            calls in prop::collection::vec((0..=4_usize, prop::collection::vec(1..=13_u64, 0..6)), 1..8),
        ) {
            let (mut ledger, held) = ledger([]);
            // The broker has sent all; they come here in any order.
            let mut open: BTreeSet<u64> = order.iter().copied().collect();
            let (mut order, mut here) = (order.into_iter(), BTreeSet::new());
            for (coming, numbers) in calls {
                for number in order.by_ref().take(coming) {
                    ledger.came(number, &held);
                    here.insert(number);
                }
                let named: BTreeSet<u64> = numbers.iter().copied().filter(|number| here.contains(number)).collect();
                let expected: BTreeSet<u64> = open.difference(&named).copied().collect();
                for frame in ledger.settle(numbers) {
                    prop_assert!(open.remove(&frame.number), "{frame:?} closes the channel");
                    open.retain(|number| !frame.with_all_before || *number > frame.number);
                }
                prop_assert_eq!(&open, &expected);
            }
        }
    }

    #[test]
    fn a_channel_that_is_gone_holds_nothing() {
        let (ledger, held) = ledger(1..=3);
        assert_eq!(held.load(Ordering::Relaxed), 3);
        drop(ledger);
        assert_eq!(held.load(Ordering::Relaxed), 0);
    }
}
