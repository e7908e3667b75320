//! What engines have in common, whatever they keep their data in.
//!
//! - [`rows`]: how entities are written down.
//! - [`batch`]: many callers, one round trip.
//! - [`follow`]: the changes of all nodes, told in order.
//! - [`health`]: whether the server behind an engine answers, and why not.
//! - [`taken`]: messages of a queue that are worked on.
//! - [`tls`]: whom connections to servers trust.

pub mod batch;
pub mod follow;
pub mod health;
pub mod rows;
pub mod taken;
pub mod tls;
