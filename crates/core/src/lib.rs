//! The words of Flare as types, the ports that engines implement, and the pure policies between them.
//!
//! Nothing here does I/O: no clock, no socket, no file. What an engine or the HTTP API needs to know of the domain
//! is in this crate; how bytes travel or rest is not.

pub mod change;
pub mod delivery;
pub mod document;
pub mod egress;
pub mod error;
pub mod filter;
pub mod id;
pub mod outlet;
pub mod pattern;
pub mod pattern_index;
pub mod port;
pub mod queue;
pub mod rate;
pub mod replay;
pub mod retry;
pub mod revision;
pub mod stream;
pub mod template;
pub mod token;
pub mod trace;
pub mod url;

pub use error::{Error, ErrorKind, Result};
pub use id::{DocumentNumber, OutletId, Sequence, StreamId, TokenId};
