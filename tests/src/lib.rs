//! The harness of the black-box scenarios: the real binary ([`Flare`]), a client of its API ([`Client`]), and a
//! receiver of its deliveries that can misbehave ([`Receiver`]).
//!
//! Nothing here knows how Flare works inside. Waits end by a signal, and are bounded by [`WAIT_MAX`]: past it a
//! scenario fails and shows what the receiver got and what the server logged. No wait measures speed.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "the harness is test code: it has no supervisor, and a surprise in it must fail the scenario"
)]

mod client;
mod delivery;
mod flare;
mod machine;
mod port;
mod process;
mod raw;
mod receiver;
mod signature;
mod tls;
mod wait;

pub use client::{Answer, Client, Unanswered};
pub use delivery::{Delivery, Envelope, Records};
pub use flare::{Flare, Subscription, binary};
pub use flare_contract::tls::{Authority, Identity};
pub use machine::{SmallDisk, skipped};
pub use process::{Ended, run_to_end};
pub use raw::RawConnection;
pub use receiver::{Gate, Receiver, Reply};
pub use signature::{is_signed_by, is_signed_by_pair, sign};
pub use tls::TlsReceiver;
pub use wait::{WAIT_MAX, within};

/// Retries that follow each other quickly: three at once, then one about every second.
pub fn quick_retries() -> serde_json::Value {
    serde_json::json!({ "delivery": { "retry": {
        "minDelayTarget": 1, "maxDelayTarget": 1, "numRetries": 50, "numNoDelayRetries": 3,
        "numMinDelayRetries": 2, "numMaxDelayRetries": 35, "backoffFunction": "linear",
    } } })
}
