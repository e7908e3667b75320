//! The server: engines, node and API put together, from the configuration to the last signal.

use std::path::Path;

use crate::config::Config;

/// Runs the server until it is told to stop. `file` is the configuration file that was read, if any.
pub async fn run(_config: Config, _file: Option<&Path>) -> anyhow::Result<()> {
    crate::terminal::print("the server is not wired yet")?;
    anyhow::bail!("the server is not wired yet")
}
