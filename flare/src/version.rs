//! The version of this build.

use serde::Serialize;

/// The semantic version with the commit it was built from, where that is known: `0.1.0+123.0a1b2c3d4e5f.20261115`.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("BUILD_METADATA"));

/// The commit this was built from; `None` for a build outside of a checkout.
pub const SHA: Option<&str> = known(env!("BUILD_SHA"));

/// What `flare version --json` prints.
#[derive(Debug, Serialize)]
pub struct Version {
    version: &'static str,
    /// How many commits lead to this one.
    commits: Option<u64>,
    sha: Option<&'static str>,
    /// The day of the commit.
    date: Option<&'static str>,
    rustc: Option<&'static str>,
}

/// The version of this build, in parts.
pub fn version() -> Version {
    Version {
        version: VERSION,
        commits: env!("BUILD_COMMITS").parse().ok(),
        sha: SHA,
        date: known(env!("BUILD_DATE")),
        rustc: known(env!("BUILD_RUSTC")),
    }
}

const fn known(text: &'static str) -> Option<&'static str> {
    if text.is_empty() { None } else { Some(text) }
}
