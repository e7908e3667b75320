//! What an outlet is told to do besides its work, and what it says about itself.

use flare_core::{OutletId, document::Progress};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Slot, count_retries};
use crate::delivery::{
    mailbox::{Hint, Inspection},
    outlet::Moment,
};

impl Slot {
    /// Takes up hints, and says how many documents wait then.
    pub(super) fn hint(&mut self, id: OutletId, hints: Vec<Hint>) -> usize {
        let Some(state) = self.outlets.get_mut(&id) else { return 0 };
        let (before, recorder) = (state.retries(), &self.shared.recorder);
        let moment = Moment { now: Instant::now(), clock: Timestamp::now(), jitter: 0.0 };
        for Hint { number, url, forget } in hints {
            if let Some(forget) = forget {
                recorder.forget(id, number, forget);
            }
            state.hint(number, url, moment, &mut |step| recorder.record(step));
        }
        let waiting = state.retries();
        count_retries(&self.shared, before, waiting);
        self.line_up(id);
        waiting
    }

    /// Adds to what the client asks for; an error, with what is left, past the maximum.
    pub(super) fn add_demand(&mut self, id: OutletId, quantity: u64, max: u64) -> Result<u64, u64> {
        let Some(state) = self.outlets.get_mut(&id) else { return Err(0) };
        let left = state.credit().saturating_add(quantity);
        if left > max {
            return Err(state.credit());
        }
        state.set_credit(left);
        self.shared.recorder.record(Progress::Demand { outlet: id, left });
        self.line_up(id);
        Ok(left)
    }

    pub(super) fn inspect(&mut self, id: OutletId) -> Option<Inspection> {
        let state = self.outlets.get_mut(&id)?;
        let in_time = |at: Instant| Timestamp::now().checked_add(at.saturating_duration_since(Instant::now()));
        Some(Inspection {
            position: state.position(),
            retries: state.retries(),
            next_retry: state.next_retry().and_then(|at| in_time(at).ok()),
            demand: state.credit(),
        })
    }
}
