//! The time as Flare keeps it: whole milliseconds, so that what is read back equals what was written.

use jiff::Timestamp;

pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}
