//! A job: what is to be copied, from a TOML file or from flags.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::location::Location;
use crate::port::WriteMode;

/// What a job file can say. Everything but the two addresses has a default.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Job {
    /// Where rows come from: a URL or a file. `${NAME}` stands for a variable of the environment.
    pub from: String,
    /// Where they go.
    pub to: String,
    /// What happens to a target that exists.
    #[serde(default)]
    pub mode: WriteMode,
    /// How many rows a chunk has.
    #[serde(default = "default_chunksize")]
    pub chunksize: u64,
    /// A chunk has fewer rows where they are so large that it would have more bytes than this.
    #[serde(default = "default_chunk_bytes")]
    pub chunk_bytes: u64,
    /// How many chunks are on their way at once.
    #[serde(default = "default_workers")]
    pub workers: usize,
    /// How many rows are copied at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Walk by these columns instead of the primary key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
    /// Cut by counting rows (`OFFSET`), where there is no key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_offset: bool,
    /// How many rows may be refused before the copy stops.
    #[serde(default)]
    pub max_rejects: u64,
    /// How many seconds a source or target may not answer before the copy stops.
    #[serde(default = "default_give_up_after")]
    pub give_up_after: u64,
    /// Read the target again at the end, and compare counts and checksums.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub verify: bool,
    /// How target columns are made. Without any, they are those of the source.
    #[serde(default, rename = "column", skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ColumnRule>,
    /// The target column that keeps the fields no other column was made from, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<String>,
    /// A column of JSON whose fields become fields of the document: the way back from `rest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<String>,
    /// Whether a null of the source stays one, or leaves the field out.
    #[serde(default, skip_serializing_if = "Nulls::is_keep")]
    pub nulls: Nulls,
}

/// How one column of the target is made.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ColumnRule {
    pub name: String,
    /// A path into the row (`address.city`), or several: the first that is not empty counts. The column's own name if
    /// neither this nor an expression is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Paths>,
    /// A CEL expression over `row`, for the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expression: Option<String>,
    /// The type: `int64`, `decimal`, `text`, `timestamp` …
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What stands in for null or missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<toml::Value>,
    #[serde(default, skip_serializing_if = "OnError::is_reject")]
    pub on_error: OnError,
}

#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(untagged)]
pub enum Paths {
    One(String),
    FirstOf(Vec<String>),
}

/// What happens when a column cannot be made.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The row goes to the reject file.
    #[default]
    Reject,
    /// The column is null.
    Null,
    /// The copy stops.
    Fail,
}

impl OnError {
    fn is_reject(&self) -> bool {
        *self == Self::Reject
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Nulls {
    #[default]
    Keep,
    /// A null is a field that is not there.
    Omit,
}

impl Nulls {
    fn is_keep(&self) -> bool {
        *self == Self::Keep
    }
}

/// The most workers of a job.
pub const WORKERS_MAX: usize = 256;
/// The most rows of a chunk.
pub const CHUNKSIZE_MAX: u64 = 100_000_000;

pub const fn default_chunksize() -> u64 {
    10_000
}

pub const fn default_chunk_bytes() -> u64 {
    64 << 20
}

pub const fn default_workers() -> usize {
    4
}

pub const fn default_give_up_after() -> u64 {
    60
}

impl Job {
    /// A job with the defaults.
    pub fn new(from: impl Into<String>, to: impl Into<String>) -> Self {
        Self {
            from: from.into(),
            to: to.into(),
            mode: WriteMode::default(),
            chunksize: default_chunksize(),
            chunk_bytes: default_chunk_bytes(),
            workers: default_workers(),
            size: None,
            key: Vec::new(),
            by_offset: false,
            max_rejects: 0,
            give_up_after: default_give_up_after(),
            verify: false,
            columns: Vec::new(),
            rest: None,
            spread: None,
            nulls: Nulls::default(),
        }
    }

    /// Reads a job file; errors name the line.
    pub fn load(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::invalid(format!("cannot read the job {name}")).because(error))?;
        let job: Self = toml::from_str(&text)
            .map_err(|error| Error::invalid(format!("{name} is not a job: {}", error.to_string().trim_end())))?;
        job.check().map_err(|error| error.within(name))?;
        Ok(job)
    }

    /// Refuses numbers that make no sense.
    pub fn check(&self) -> Result<()> {
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return Err(Error::invalid(format!("workers must be 1 to {WORKERS_MAX}")));
        }
        if !(1..=CHUNKSIZE_MAX).contains(&self.chunksize) {
            return Err(Error::invalid(format!("chunksize must be 1 to {CHUNKSIZE_MAX}")));
        }
        if self.chunk_bytes == 0 || self.size == Some(0) {
            return Err(Error::invalid("chunk-bytes and size must be more than 0"));
        }
        Ok(())
    }

    pub fn source(&self) -> Result<Location> {
        Location::parse(&self.from).map_err(|error| error.within("from"))
    }

    pub fn target(&self) -> Result<Location> {
        Location::parse(&self.to).map_err(|error| error.within("to"))
    }

    pub fn give_up_after(&self) -> Duration {
        Duration::from_secs(self.give_up_after)
    }

    /// A digest of everything that decides what is copied. Sizes and limits may change between runs. Passwords are
    /// not in it.
    pub fn fingerprint(&self) -> Result<String> {
        let essence = serde_json::json!({
            "from": self.source()?.to_string(), "to": self.target()?.to_string(), "mode": self.mode, "size": self.size,
            "key": self.key, "by-offset": self.by_offset, "columns": serde_json::to_value(&self.columns).ok(),
            "rest": self.rest, "spread": self.spread, "nulls": self.nulls,
        });
        Ok(format!("{:016x}", xxhash_rust::xxh3::xxh3_64(essence.to_string().as_bytes())))
    }
}
