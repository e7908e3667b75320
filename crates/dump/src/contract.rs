//! The suites that every storage must pass.
//!
//! A test of a storage makes an empty target and calls [`check_writer`]; then rows of all kinds go in and come out,
//! chunks are done twice, given up, and bisected. [`check_reader`] needs a source with rows that the test knows.

mod reader;
mod rows;
mod writer;

pub use self::reader::check_reader;
pub use self::rows::{all_kinds, numbered};
pub use self::writer::{Subject, check_writer};
