//! The HTTP API of a node: routes, wire shapes, the error table, OpenAPI, who may call, limits, and the server loop.
//!
//! It knows the node's facade and HTTP. It does not know the configuration file, the engines, or how deliveries are
//! made. [`serve`] is what the binary calls; [`Api`] answers one request and is what tests call.

mod access;
mod api;
mod audit;
mod body;
mod connection;
pub mod error;
mod forward;
mod guard;
mod nearest;
mod openapi;
mod parameters;
mod request_id;
mod routes;
mod server;
mod settings;
mod trace;
mod wire;

pub use api::Api;
pub use openapi::openapi_json;
pub use server::serve;
pub use settings::{ApiSettings, DeliveryBounds};

#[cfg(test)]
mod tests;
