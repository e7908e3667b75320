//! Settings of the environment: `FLARE_<SECTION>_<KEY>`.

use std::ffi::{OsStr, OsString};

use super::document::{Setting, Settings};
use super::keys::{self, VARIABLE_PREFIX};
use super::problem::{Origin, Problem};
use super::suggest::nearest;

/// Variables with Flare's prefix that are read elsewhere: by the command line, not by the configuration.
const OTHER_VARIABLES: [&str; 3] = ["FLARE_CONFIG", "FLARE_URL", "FLARE_TOKEN"];

/// Variables that belong to Flare's own tests and benchmarks.
const OTHER_PREFIXES: [&str; 2] = ["FLARE_TEST_", "FLARE_BENCH_"];

/// Reads the settings of the environment into `settings`, over what is there; returns everything that is wrong.
pub fn read(variables: &[(OsString, OsString)], settings: &mut Settings) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, value) in variables {
        let Some(name) = name.to_str().filter(|name| is_ours(name)) else { continue };
        if let Err(message) = read_one(name, value, settings) {
            problems.push(Problem { origin: Origin::Variable(name.to_owned()), message });
        }
    }
    problems
}

fn is_ours(name: &str) -> bool {
    let other = OTHER_VARIABLES.contains(&name) || OTHER_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    name.starts_with(VARIABLE_PREFIX) && !other
}

fn read_one(name: &str, value: &OsStr, settings: &mut Settings) -> Result<(), String> {
    let Some(key) = keys::all().find(|key| key.variable == name) else {
        let known = keys::all().map(|key| key.variable.as_str()).chain(OTHER_VARIABLES);
        return Err(match nearest(name, known) {
            Some(near) => format!("unknown variable; did you mean {near}?"),
            None => "unknown variable; `flare config` lists every key, FLARE_<SECTION>_<KEY> sets it".to_owned(),
        });
    };
    let text = value.to_str().ok_or_else(|| "is not valid UTF-8".to_owned())?;
    let value = key.kind.read(text);
    key.kind.check(&value).map_err(|reason| format!("`{}` {reason}", key.path))?;
    settings.insert(key.path.clone(), Setting { value, origin: Origin::Variable(name.to_owned()) });
    Ok(())
}
