//! The bulk copier: a whole data set from one store to another, in parallel, and never from the start again.
//!
//! - [`value`], [`row`], [`key`], [`json`]: the exact values that travel.
//! - [`port`]: the two sides of a copy. [`storage`]: those that there are. [`contract`]: what each must keep.

pub mod contract;
pub mod convert;
pub mod error;
pub mod infer;
pub mod job;
pub mod json;
pub mod key;
pub mod location;
pub mod mapping;
pub mod port;
pub mod row;
pub mod storage;
pub mod value;

pub use error::{Error, ErrorKind, Result};
