//! The program `flare` as a library, so that tests and fuzz targets can call its parts: arguments, configuration, the
//! receiver of `flare listen`, the client of the API, the bulk copier's commands, and the wiring of
//! the server.

pub mod bind;
pub mod cli;
pub mod client;
pub mod config;
#[cfg(feature = "dump")]
pub mod dump;
pub mod json;
pub mod listen;
pub mod log;
pub mod migrate;
pub mod start;
pub mod terminal;
pub mod version;
