//! The time as Flare keeps it: whole milliseconds, so that what is read back equals what was written.

use jiff::Timestamp;

pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

/// The time of a change to what was changed at `before`: later than that in any case, so that both can be told apart.
pub(crate) fn after(before: Timestamp) -> Timestamp {
    let next = before.checked_add(jiff::SignedDuration::from_millis(1)).unwrap_or(before);
    now().max(next)
}
