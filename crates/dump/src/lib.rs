//! The bulk copier: a whole data set from one store to another, in parallel, and never from the start again.
//!
//! - [`value`], [`row`], [`key`], [`json`]: the exact values that travel.
//! - [`job`], [`mapping`], [`infer`], [`convert`]: what is asked for, and rows as the target wants them.
//! - [`history`], [`offsets`], [`copy`], [`verify`]: what was done, what is next, and doing it.
//! - [`port`]: the two sides of a copy. [`storage`]: those that there are. [`contract`]: what each must keep.

pub mod contract;
pub mod convert;
pub mod copy;
pub mod error;
pub mod event;
pub mod history;
pub mod infer;
pub mod job;
pub mod json;
pub mod key;
pub mod location;
pub mod mapping;
pub mod offsets;
mod patience;
pub mod port;
mod rejects;
pub mod row;
pub mod session;
pub mod storage;
pub mod value;
pub mod verify;

pub use error::{Error, ErrorKind, Result};
