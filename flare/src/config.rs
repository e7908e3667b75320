//! The configuration: a TOML file, environment variables and flags over defaults.
//!
//! The structs in [`sections`](self) say what there is. Their schema gives the checks ([`keys`], `kind`), the sample
//! file and the reference page ([`sample`], [`reference`]). Values are checked one by one where they were written, so
//! that every mistake is reported at once, each with its place; only then are they put together.

mod address;
mod check;
mod delivery;
mod document;
mod duration;
mod environment;
mod host;
pub mod keys;
pub mod kind;
mod problem;
mod reference;
mod repository;
mod sample;
mod secret;
mod sections;
mod size;
mod suggest;
mod target;
mod task;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;

pub use address::ListenAddr;
pub use delivery::Delivery;
pub use duration::Duration;
pub use host::{HostName, WebOrigin};
pub use problem::{Origin, Problem, Problems};
pub use reference::reference;
pub use repository::{Repository, RepositoryEngine};
pub use sample::sample;
pub use secret::{Secret, Token};
pub use sections::{Config, Domain, Http, Log, LogFormat, LogLevel, LogOutput, Node, Role, Security};
pub use size::ByteSize;
pub use target::DeliveryTarget;
pub use task::{Aws, Task, TaskEngine, TaskQueueType, TaskQueues};

use document::{Setting, Settings};

/// The file that is read when none is named and it exists.
pub const FILE_DEFAULT: &str = "flare.toml";

/// The largest configuration file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where a configuration comes from, later over earlier: file, environment, flags.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file, if any.
    pub file: Option<PathBuf>,
    /// Variables of the environment; those that do not begin with `FLARE_` are passed over.
    pub variables: Vec<(OsString, OsString)>,
    /// Flags of the command line.
    pub flags: Vec<Flag>,
}

/// A flag of the command line that stands for a key.
#[derive(Clone, Debug)]
pub struct Flag {
    /// The flag: `--addr`.
    pub name: &'static str,
    /// The section of its key: `http`.
    pub section: &'static str,
    /// The name of its key: `addr`.
    pub key: &'static str,
    /// What was given.
    pub value: String,
}

/// A configuration that is right.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What is allowed but may surprise, for the operator to read.
    pub warnings: Vec<String>,
}

/// The configuration file to read: the one that was named, or `flare.toml` in this folder if it exists.
pub fn file_to_read(named: Option<PathBuf>) -> Option<PathBuf> {
    named.or_else(|| Some(PathBuf::from(FILE_DEFAULT)).filter(|file| file.exists()))
}

/// Reads the configuration from its sources. The error is [`Problems`] where the content is wrong.
pub fn load(sources: &Sources) -> anyhow::Result<Loaded> {
    let text = match &sources.file {
        Some(file) => Some((file.display().to_string(), read_file(file)?)),
        None => None,
    };
    let text = text.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
    Ok(assemble(text, &sources.variables, &sources.flags)?)
}

/// Reads the text of a configuration file, over the defaults.
pub fn parse(text: &str) -> Result<Config, Problems> {
    assemble(Some((FILE_DEFAULT, text)), &[], &[]).map(|loaded| loaded.config)
}

fn read_file(file: &Path) -> anyhow::Result<String> {
    let name = file.display();
    let context = || format!("cannot read the configuration file {name}");
    let mut bytes = Vec::new();
    let opened = File::open(file).with_context(context)?;
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).with_context(context)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let cause = io::Error::other(format!("it is larger than {} bytes", FILE_BYTES_MAX));
        return Err(cause).with_context(context);
    }
    String::from_utf8(bytes).map_err(|error| {
        let right = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&error.as_bytes()[..right]);
        let (line, column) = document::position(&before, right);
        anyhow::anyhow!("{name}:{line}:{column}: the configuration file is not valid UTF-8")
    })
}

fn assemble(
    text: Option<(&str, &str)>,
    variables: &[(OsString, OsString)],
    flags: &[Flag],
) -> Result<Loaded, Problems> {
    let mut settings = Settings::new();
    let mut problems = Vec::new();
    if let Some((name, text)) = text {
        problems.extend(document::read(name, text, &mut settings));
    }
    problems.extend(environment::read(variables, &mut settings));
    problems.extend(read_flags(flags, &mut settings));
    refuse(problems)?;

    let config = build(&settings)?;
    refuse(check::problems(&config, &settings))?;
    let warnings = check::warnings(&config);
    Ok(Loaded { config, warnings })
}

fn refuse(problems: Vec<Problem>) -> Result<(), Problems> {
    Problems::found(problems).map_or(Ok(()), Err)
}

fn read_flags(flags: &[Flag], settings: &mut Settings) -> Vec<Problem> {
    let mut problems = Vec::new();
    for flag in flags {
        let Some(key) = keys::find(flag.section, flag.key) else { continue };
        let origin = Origin::Flag(flag.name);
        let value = key.kind.read(&flag.value);
        match key.kind.check(&value) {
            Ok(()) => drop(settings.insert(key.path.clone(), Setting { value, origin })),
            Err(reason) => problems.push(Problem { origin, message: format!("`{}` {reason}", key.path) }),
        }
    }
    problems
}

/// Puts checked settings together. A value that the check let pass and the struct refuses is still a problem with its
/// place, though not as well explained.
fn build(settings: &Settings) -> Result<Config, Problems> {
    let one = |path: &str, setting: &Setting| Config::deserialize(toml::Value::Table(nested([(path, setting)])));
    let everything = nested(settings.iter().map(|(path, setting)| (path.as_str(), setting)));
    Config::deserialize(toml::Value::Table(everything)).map_err(|error| {
        let wrong = settings.iter().filter_map(|(path, setting)| Some((setting, one(path, setting).err()?)));
        let problem = |(setting, error): (&Setting, toml::de::Error)| Problem {
            origin: setting.origin.clone(),
            message: error.message().to_owned(),
        };
        let whole = Problem { origin: Origin::Default, message: error.message().to_owned() };
        let found = Problems::found(wrong.map(problem).collect());
        found.or_else(|| Problems::found(vec![whole])).expect("one problem at least is given")
    })
}

fn nested<'a>(settings: impl IntoIterator<Item = (&'a str, &'a Setting)>) -> toml::Table {
    let mut root = toml::Table::new();
    for (path, setting) in settings {
        let (section, key) = path.split_once('.').expect("paths of keys are `section.key`");
        let section = root.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        if let toml::Value::Table(section) = section {
            section.insert(key.to_owned(), setting.value.clone());
        }
    }
    root
}
