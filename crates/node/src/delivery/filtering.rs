//! Runs the filters of outlets over changes: each distinct filter once per change, however many outlets have it.
//!
//! What was found out about a change is kept for a while, because the outlets that ask for it do so about at the same
//! time. It is only a cache: asked again, a filter gives the same answer.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use flare_core::{
    Error, OutletId, Result, Sequence, StreamId,
    document::{Action, Change},
    filter::{COST_MAX, EvaluationError, Filter, Subject},
    outlet::Outlet,
    port::Documents,
    url::DocumentUrl,
};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::{clock, fast_map::FastMap};

/// The changes of which something is kept, and about how much memory they may take together.
const CHANGES_MAX: usize = 1024;
const CHANGES_BYTES_MAX: usize = 8 << 20;
/// About what an answer takes.
const VERDICT_BYTES: usize = 128;
/// What is larger or costs more is worked on off the runtime's threads.
const INLINE_BYTES_MAX: usize = 32 << 10;
const INLINE_COST_MAX: u64 = 4096;

/// A change for which a filter had no answer: it was not sent.
#[derive(Clone, Debug)]
pub struct FilterProblem {
    pub at: Timestamp,
    pub document: DocumentUrl,
    pub reason: Arc<str>,
}

pub(crate) struct Filtering {
    documents: Arc<dyn Documents>,
    recent: Mutex<Recent>,
    /// The last problem of each outlet that had one.
    problems: Mutex<FastMap<OutletId, FilterProblem>>,
    evaluations: AtomicU64,
}

#[derive(Default)]
struct Recent {
    changes: FastMap<(StreamId, Sequence), Arc<Seen>>,
    /// Oldest first, with the bytes of each.
    order: VecDeque<((StreamId, Sequence), usize)>,
    bytes: usize,
}

/// What is known of one change.
#[derive(Default)]
struct Seen {
    subject: OnceCell<Arc<Subject>>,
    verdicts: Mutex<FastMap<Filter, Arc<OnceCell<Verdict>>>>,
}

#[derive(Clone)]
enum Verdict {
    Matches,
    MatchesNot,
    /// The filter does not fit the document, which counts as no match.
    Fails(Arc<str>),
}

impl Filtering {
    pub fn new(documents: Arc<dyn Documents>) -> Self {
        Self { documents, recent: Mutex::default(), problems: Mutex::default(), evaluations: AtomicU64::new(0) }
    }

    /// Whether the filter of the outlet asks for the change. Fails only when the store cannot be read.
    pub async fn wants(&self, outlet: &Outlet, change: &Change) -> Result<bool> {
        let Some(filter) = &outlet.filter else { return Ok(true) };
        let seen = self.recent.lock().get_or_add(change);
        if !filter.is_shared() {
            // Nobody else will ask.
            let verdict = self.judge(filter, change, &seen).await?;
            return Ok(self.wants_by(&verdict, outlet, change));
        }
        let known = seen.verdicts.lock().entry(filter.clone()).or_default().clone();
        let verdict = match known.get() {
            Some(verdict) => verdict,
            None => known.get_or_try_init(|| self.judge(filter, change, &seen)).await?,
        };
        Ok(self.wants_by(verdict, outlet, change))
    }

    fn wants_by(&self, verdict: &Verdict, outlet: &Outlet, change: &Change) -> bool {
        match verdict {
            Verdict::Matches => true,
            Verdict::MatchesNot => false,
            Verdict::Fails(reason) => {
                // That a filter has no answer for a document that is gone is no news.
                if !change.is_delete() {
                    let problem =
                        FilterProblem { at: clock::now(), document: change.url.clone(), reason: reason.clone() };
                    self.problems.lock().insert(outlet.id, problem);
                }
                false
            }
        }
    }

    pub fn problem(&self, outlet: OutletId) -> Option<FilterProblem> {
        self.problems.lock().get(&outlet).cloned()
    }

    /// The outlet is gone, or has another filter by now.
    pub fn forget_problem(&self, outlet: OutletId) {
        self.problems.lock().remove(&outlet);
    }

    async fn judge(&self, filter: &Filter, change: &Change, seen: &Seen) -> Result<Verdict> {
        let subject = seen.subject.get_or_try_init(|| self.subject(change)).await?;
        self.evaluations.fetch_add(1, Ordering::Relaxed);
        let mut answer = filter.evaluate(subject, INLINE_COST_MAX);
        if answer == Err(EvaluationError::TooCostly) {
            let (filter, subject) = (filter.clone(), subject.clone());
            answer = off_runtime(move || filter.evaluate(&subject, COST_MAX)).await?;
        }
        Ok(match answer {
            Ok(true) => Verdict::Matches,
            Ok(false) => Verdict::MatchesNot,
            Err(error) => Verdict::Fails(error.to_string().into()),
        })
    }

    /// The change as filters see it, with the document as it was before.
    async fn subject(&self, change: &Change) -> Result<Arc<Subject>> {
        let replaced = match change.replaces {
            Some(sequence) => self.documents.change_at(change.stream, sequence).await?,
            None => None,
        };
        let action = action(change, replaced.as_ref());
        let (current, previous) = (change.content.clone(), replaced.and_then(|replaced| replaced.content));
        let bytes = [&current, &previous].into_iter().flatten().map(Bytes::len).sum::<usize>();
        let url = change.url.clone();
        let build = move || Arc::new(Subject::new(url.as_str(), action, current.as_deref(), previous.as_deref()));
        if bytes <= INLINE_BYTES_MAX { Ok(build()) } else { off_runtime(build).await }
    }
}

/// What happened to the document itself, whoever was told of it.
fn action(change: &Change, replaced: Option<&Change>) -> Action {
    let is_first = change.number.0 == change.sequence.0;
    match replaced {
        _ if change.is_delete() => Action::Delete,
        Some(replaced) if replaced.is_delete() => Action::Create,
        None if is_first => Action::Create,
        // The change before it may not be kept any more.
        _ => Action::Update,
    }
}

async fn off_runtime<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Error::internal("a filter could not be evaluated").because(error))
}

impl Recent {
    fn get_or_add(&mut self, change: &Change) -> Arc<Seen> {
        let key = (change.stream, change.sequence);
        if let Some(seen) = self.changes.get(&key) {
            return seen.clone();
        }
        self.weigh_newest();
        let bytes = change.memory_bytes();
        while self.changes.len() >= CHANGES_MAX || (self.bytes + bytes > CHANGES_BYTES_MAX && self.bytes > 0) {
            let Some((oldest, its_bytes)) = self.order.pop_front() else { break };
            self.changes.remove(&oldest);
            self.bytes -= its_bytes;
        }
        let seen = Arc::<Seen>::default();
        self.changes.insert(key, seen.clone());
        self.order.push_back((key, bytes));
        self.bytes += bytes;
        seen
    }

    /// Adds the answers to what the newest change takes: by the time that another one comes, most are there.
    fn weigh_newest(&mut self) {
        let Some((newest, bytes)) = self.order.back_mut() else { return };
        let answers = self.changes.get(newest).map_or(0, |seen| seen.verdicts.lock().len());
        *bytes += answers * VERDICT_BYTES;
        self.bytes += answers * VERDICT_BYTES;
    }
}

#[cfg(test)]
mod tests;
