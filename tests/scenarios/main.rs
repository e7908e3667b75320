//! The promises of Flare, held against the real binary: one module per promise, one test per thing that it means.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "scenarios are tests: they have no supervisor, and a surprise in them is a failure"
)]

mod access;
mod at_the_clients_pace;
mod bounded;
mod chaos;
mod deliveries;
mod dump_a_resource;
mod dumps;
mod egress;
mod filters;
mod full_disk;
mod in_order_never_backwards;
mod life;
mod nothing_accepted_is_lost;
mod one_slow_client_slows_nobody;
mod only_real_changes;
mod replays;
mod self_healing;
mod signatures;
mod tokens;
mod wire;

/// The endpoint of the resource in most scenarios.
const USERS: &str = "http://api.test/users/{id}";

/// The URL of a document of [`USERS`].
fn user(number: usize) -> String {
    format!("http://api.test/users/{number}")
}
