//! Clients that pull: what waits for messages, and what is leased.
//!
//! A message that was pulled counts as in flight until it is acknowledged, given back, or its lease runs out, so the rules
//! of order are the same as for a push. Leases live in memory: after a restart they are void, and the messages are there
//! again.

use std::{cmp::Reverse, collections::VecDeque, sync::Arc, time::Duration};

use flare_core::{
    DocumentNumber, OutletId, Sequence,
    document::{Action, Change, Version},
};
use jiff::Timestamp;
use tokio::{sync::oneshot, time::Instant};

use super::{Done, Slot};
use crate::{
    delivery::attempt::{Outcome, Task},
    fast_map::FastMap,
};

/// About so much content in the answer to one pull.
const PULL_BYTES_MAX: usize = 8 << 20;

/// A client that asks for messages.
pub(crate) struct Pull {
    pub limit: usize,
    pub lease: Duration,
    /// Until when it waits.
    pub deadline: Instant,
    pub reply: oneshot::Sender<Vec<Message>>,
}

/// A leased message.
#[derive(Debug)]
pub struct Message {
    pub receipt: String,
    pub change: Arc<Change>,
    pub action: Action,
    /// One for the first time.
    pub attempt: u32,
    pub leased_until: Timestamp,
}

/// What a client does with messages that it has leased.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settle {
    Acknowledge,
    /// Offers them again after this time.
    GiveBack {
        delay: Duration,
    },
    /// Keeps them for so long from now on.
    Extend {
        lease: Duration,
    },
}

/// Why a receipt did nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiptError {
    Malformed,
    /// Its lease has ended, or there never was one.
    Unknown,
}

#[derive(Default)]
pub(super) struct Pulls {
    waiting: VecDeque<Pull>,
    /// Messages that are being looked up.
    finding: usize,
    found: Vec<Found>,
    found_bytes: usize,
    leases: FastMap<DocumentNumber, Lease>,
    /// The alarm that is set.
    alarm: Option<Instant>,
}

struct Found {
    number: DocumentNumber,
    change: Arc<Change>,
    action: Action,
    failed: u32,
}

struct Lease {
    nonce: u64,
    version: Version,
    until: Instant,
}

impl Pulls {
    /// How many messages somebody waits for.
    fn demand(&self) -> usize {
        let wanted: usize = self.waiting.iter().map(|pull| pull.limit).sum();
        wanted.saturating_sub(self.finding + self.found.len())
    }

    /// When something here has to be looked at.
    fn next_deadline(&self) -> Option<Instant> {
        let waits = self.waiting.iter().map(|pull| pull.deadline);
        waits.chain(self.leases.values().map(|lease| lease.until)).min()
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.leases.is_empty() && self.found.is_empty() && self.finding == 0
    }
}

/// A message that nobody has got.
fn not_shown() -> Outcome {
    Outcome::Returned { delay: Duration::ZERO, shown: Sequence::START }
}

fn parse(receipt: &str) -> Option<(DocumentNumber, u64)> {
    let (number, nonce) = receipt.split_once('.')?;
    let read = |text: &str| u64::from_str_radix(text, 16).ok();
    Some((DocumentNumber(read(number)?), read(nonce)?))
}

impl Slot {
    pub(super) fn pull(&mut self, id: OutletId, pull: Pull) {
        if !self.outlets.contains_key(&id) {
            return;
        }
        self.pulls.entry(id).or_default().waiting.push_back(pull);
        self.line_up(id);
    }

    /// Does what the client wants with each receipt.
    pub(super) fn settle(&mut self, id: OutletId, receipts: &[String], how: Settle) -> Vec<Result<(), ReceiptError>> {
        let results = receipts.iter().map(|receipt| self.settle_one(id, receipt, how)).collect();
        self.line_up(id);
        results
    }

    fn settle_one(&mut self, id: OutletId, receipt: &str, how: Settle) -> Result<(), ReceiptError> {
        let (number, nonce) = parse(receipt).ok_or(ReceiptError::Malformed)?;
        let now = Instant::now();
        let pulls = self.pulls.get_mut(&id).ok_or(ReceiptError::Unknown)?;
        let lease = pulls.leases.get_mut(&number).filter(|lease| lease.nonce == nonce && lease.until > now);
        let lease = lease.ok_or(ReceiptError::Unknown)?;
        let outcome = match how {
            Settle::Extend { lease: time } => {
                lease.until = now + time;
                return Ok(());
            }
            Settle::Acknowledge => Outcome::Delivered(lease.version),
            Settle::GiveBack { delay } => Outcome::Returned { delay, shown: lease.version.sequence },
        };
        pulls.leases.remove(&number);
        self.end_attempt(id, number, outcome);
        Ok(())
    }

    /// Ends leases whose time is up, and answers those who wait if there is something for them, or, once all has been
    /// looked at, if their time is up.
    pub(super) fn serve_pulls(&mut self, id: OutletId, now: Instant, has_looked: bool) {
        if self.pulls.is_empty() {
            return;
        }
        self.end_leases(id, now);
        loop {
            let Some(pulls) = self.pulls.get_mut(&id) else { return };
            let Some(pull) = pulls.waiting.front() else { break };
            let has_nothing = pulls.found.is_empty() && pulls.finding == 0;
            if pull.reply.is_closed() || (has_looked && pull.deadline <= now && has_nothing) {
                if let Some(over) = pulls.waiting.pop_front() {
                    // Nothing to tell one who is gone.
                    let _gone = over.reply.send(Vec::new());
                }
                continue;
            }
            let wants = pulls.finding + pulls.found.len() < pull.limit && pulls.found_bytes < PULL_BYTES_MAX;
            if !wants || !self.find_one(id, now) {
                break;
            }
        }
        self.answer_first(id, now);
        self.note_pulls(id);
    }

    /// Starts to look up one message for the outlet, if there is one.
    fn find_one(&mut self, id: OutletId, now: Instant) -> bool {
        let Some(state) = self.outlets.get_mut(&id) else { return false };
        let retries = state.retries();
        let start = state.next_for_pull(now);
        super::count_retries(&self.shared, retries, state.retries());
        let Some(start) = start else { return false };
        let (number, failed) = (start.number, start.failed);
        let Some(attempt) = self.attempt(id, start) else { return false };
        if let Some(pulls) = self.pulls.get_mut(&id) {
            pulls.finding += 1;
        }
        self.running.push(Box::pin(async move {
            let task = attempt.find().await;
            Done::Found { outlet: id, number, failed, task }
        }));
        true
    }

    pub(super) fn end_find(&mut self, id: OutletId, number: DocumentNumber, failed: u32, task: Task) {
        if let Some(pulls) = self.pulls.get_mut(&id) {
            pulls.finding = pulls.finding.saturating_sub(1);
        }
        match task {
            Task::Nothing(outcome) => self.end_attempt(id, number, outcome),
            Task::Tell(change, action, _) => match self.pulls.get_mut(&id) {
                Some(pulls) => {
                    pulls.found_bytes += change.memory_bytes();
                    pulls.found.push(Found { number, change, action, failed });
                }
                None => self.end_attempt(id, number, not_shown()),
            },
        }
        self.line_up(id);
    }

    /// Hands what was found to the first who waits. One who is gone gives it back.
    fn answer_first(&mut self, id: OutletId, now: Instant) {
        let Some(pulls) = self.pulls.get_mut(&id) else { return };
        if pulls.found.is_empty() || pulls.finding > 0 {
            return;
        }
        let Some(pull) = pulls.waiting.pop_front() else {
            return self.give_back_found(id);
        };
        let Some(pulls) = self.pulls.get_mut(&id) else { return };
        let take = pulls.found.len().min(pull.limit);
        let found: Vec<_> = pulls.found.drain(..take).collect();
        pulls.found_bytes = pulls.found.iter().map(|found| found.change.memory_bytes()).sum();
        let until = now + pull.lease;
        let leased_until = Timestamp::now().checked_add(pull.lease).unwrap_or(Timestamp::MAX);
        let mut messages = Vec::with_capacity(found.len());
        let mut numbers = Vec::with_capacity(found.len());
        for Found { number, change, action, failed } in found {
            self.nonce = self.nonce.wrapping_add(1);
            let version = Version { sequence: change.sequence, revision: change.revision, deleted: change.is_delete() };
            pulls.leases.insert(number, Lease { nonce: self.nonce, version, until });
            let receipt = format!("{:x}.{:x}", number.0, self.nonce);
            numbers.push(number);
            messages.push(Message { receipt, change, action, attempt: failed + 1, leased_until });
        }
        if pull.reply.send(messages).is_err() {
            for number in numbers {
                if let Some(pulls) = self.pulls.get_mut(&id) {
                    pulls.leases.remove(&number);
                }
                self.end_attempt(id, number, not_shown());
            }
        }
    }

    fn give_back_found(&mut self, id: OutletId) {
        let Some(pulls) = self.pulls.get_mut(&id) else { return };
        let found = std::mem::take(&mut pulls.found);
        pulls.found_bytes = 0;
        for Found { number, .. } in found {
            self.end_attempt(id, number, not_shown());
        }
    }

    fn end_leases(&mut self, id: OutletId, now: Instant) {
        let Some(pulls) = self.pulls.get_mut(&id) else { return };
        let over: Vec<_> = pulls.leases.extract_if(|_, lease| lease.until <= now).collect();
        for (number, lease) in over {
            let returned = Outcome::Returned { delay: Duration::ZERO, shown: lease.version.sequence };
            self.end_attempt(id, number, returned);
        }
    }

    /// Tells the rules how much is waited for, and sets the next alarm.
    fn note_pulls(&mut self, id: OutletId) {
        let Some(pulls) = self.pulls.get_mut(&id) else { return };
        let (demand, deadline, is_idle) = (pulls.demand(), pulls.next_deadline(), pulls.is_idle());
        if let Some(deadline) = deadline
            && pulls.alarm.replace(deadline) != Some(deadline)
        {
            self.alarms.push(Reverse((deadline, id)));
        }
        if is_idle {
            self.pulls.remove(&id);
        }
        if let Some(state) = self.outlets.get_mut(&id) {
            state.pull_demand = demand;
        }
    }
}
