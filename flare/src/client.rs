//! A thin client of the API for people: tables on a terminal, `--json` for programs.

mod documents;
mod error;
mod fields;
mod http;
mod load;
mod options;
mod resources;
mod steering;
mod subscriptions;
mod table;
mod tokens;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ::http::Method;
use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use serde_json::Value;

pub use self::http::Client;
pub use documents::{Documents, Put};
pub use error::Error;
pub use options::{Options, ServerUrl, Token};
pub use resources::Resources;
pub use subscriptions::Subscriptions;
pub use tokens::Tokens;

use crate::terminal;
use table::Column;

/// The largest file that is sent as one body; the server refuses most of them earlier.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Arguments of `flare status`.
#[derive(Args, Debug)]
pub struct Status {
    #[command(flatten)]
    options: Options,
}

impl Status {
    /// Shows what the server says about itself.
    pub async fn run(self) -> anyhow::Result<()> {
        let answer = Client::new(&self.options)?.send(Method::GET, "/status", None).await?;
        show_fields(&self.options, &answer, "")
    }
}

/// Which part of a list.
#[derive(Args, Debug)]
struct Page {
    /// How many to show; the server has a default and a maximum
    #[arg(long, value_name = "N")]
    limit: Option<u64>,

    /// How many to pass over
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: u64,
}

impl Page {
    /// The query of a request for this page.
    fn query(&self) -> String {
        let limit = self.limit.map(|limit| format!("&limit={limit}")).unwrap_or_default();
        format!("?offset={}{limit}", self.offset)
    }
}

/// Shows a list that is answered as `{"<name>": […], "pagination": {…}}`.
fn show_list(options: &Options, answer: &Bytes, name: &str, columns: &[Column]) -> anyhow::Result<()> {
    if options.json {
        return terminal::print_bytes(answer);
    }
    let list: Value = serde_json::from_slice(answer).context("the answer is not JSON; is this a Flare server?")?;
    let Some(entities) = list[name].as_array() else {
        anyhow::bail!("the answer has no {name}; is this a Flare server?");
    };
    if entities.is_empty() {
        terminal::note(format!("no {name}"));
    } else {
        terminal::print(table::table(columns, entities, terminal::width()))?;
    }
    let offset = list["pagination"]["offset"].as_u64().unwrap_or(0);
    let end = offset + entities.len() as u64;
    if let Some(total) = list["pagination"]["total"].as_u64().filter(|total| *total > end && !entities.is_empty()) {
        terminal::note(format!("{} to {end} of {total}; --offset {end} shows more", offset + 1));
    }
    Ok(())
}

/// Shows one entity as lines of its fields; `otherwise` stands for an answer without a body.
fn show_fields(options: &Options, answer: &Bytes, otherwise: &str) -> anyhow::Result<()> {
    let lines = fields::lines(answer).filter(|lines| !lines.is_empty());
    match lines {
        _ if options.json && !answer.is_empty() => terminal::print_bytes(answer),
        _ if options.json => Ok(()),
        Some(lines) => terminal::print(lines),
        None if answer.is_empty() => terminal::print(otherwise),
        None => terminal::print(terminal::harmless(&String::from_utf8_lossy(answer))),
    }
}

/// A file, or standard input for `-`.
#[derive(Clone, Debug)]
struct Input(PathBuf);

impl From<std::ffi::OsString> for Input {
    fn from(name: std::ffi::OsString) -> Self {
        Self(name.into())
    }
}

impl Input {
    fn is_stdin(&self) -> bool {
        self.0 == Path::new("-")
    }

    /// The name for messages.
    fn name(&self) -> String {
        if self.is_stdin() { "standard input".to_owned() } else { self.0.display().to_string() }
    }

    fn open(&self) -> anyhow::Result<Box<dyn Read + Send>> {
        if self.is_stdin() {
            return Ok(Box::new(io::stdin()));
        }
        let file = File::open(&self.0).with_context(|| format!("cannot read {}", self.name()))?;
        Ok(Box::new(file))
    }

    /// The length of the file; unknown for standard input and for what is not a plain file.
    fn length(&self) -> Option<u64> {
        if self.is_stdin() {
            return None;
        }
        std::fs::metadata(&self.0).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
    }

    fn read_all(&self) -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = self.open()?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
        read.with_context(|| format!("cannot read {}", self.name()))?;
        anyhow::ensure!(bytes.len() as u64 <= FILE_BYTES_MAX, "{} is larger than 1 GiB", self.name());
        Ok(bytes)
    }
}
