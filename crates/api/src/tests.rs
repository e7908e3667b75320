//! The API over a real node with the memory engine, one request at a time.

mod bulk;
mod documents;
mod faults;
pub(crate) mod lab;
mod overview;
mod resources;
mod secrets;
mod subscriptions;
mod tokens;
