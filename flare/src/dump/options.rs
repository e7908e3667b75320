//! What a job is: a file, flags, or a file with flags over it.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use flare_dump::history::Place;
use flare_dump::job::{CHUNKSIZE_MAX, Job, WORKERS_MAX};
use flare_dump::port::WriteMode;

/// A job file, and flags that say otherwise.
#[derive(Args, Debug)]
pub struct JobOptions {
    /// The job file (TOML); without it, --from and --to
    #[arg(value_name = "JOB")]
    pub job: Option<PathBuf>,

    #[command(flatten)]
    pub options: Options,
}

/// The flags of a job. Each takes the place of what the file says.
#[derive(Args, Debug)]
pub struct Options {
    /// Where rows come from: a URL or a file
    #[arg(long, value_name = "URL", env = "FLARE_DUMP_FROM", hide_env_values = true)]
    pub from: Option<String>,

    /// Where they go
    #[arg(long, value_name = "URL", env = "FLARE_DUMP_TO", hide_env_values = true)]
    pub to: Option<String>,

    /// What happens to a target that exists [default: create]
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,

    /// How many chunks are copied at once [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=WORKERS_MAX as i64))]
    workers: Option<u16>,

    /// How many rows a chunk has [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=CHUNKSIZE_MAX))]
    chunksize: Option<u64>,

    /// Copy at most so many rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    size: Option<u64>,

    /// Walk by these columns instead of the primary key
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    key: Vec<String>,

    /// Cut by counting rows (OFFSET), where there is no key; it costs more with every chunk
    #[arg(long)]
    by_offset: bool,

    /// Stop when more rows than this are refused [default: 0]
    #[arg(long, value_name = "N")]
    max_rejects: Option<u64>,

    /// Stop when the source or the target has not answered for so many seconds [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    give_up_after: Option<u64>,

    /// Read the target again at the end, and compare counts and checksums
    #[arg(long)]
    verify: bool,

    /// Keep fields that no column is made from in this column, as JSON
    #[arg(long, value_name = "COLUMN")]
    rest: Option<String>,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Mode {
    /// It must not exist, or be empty
    Create,
    /// Rows are added
    Append,
    /// Rows replace those with the same key
    Upsert,
    /// Rows go to a new one that takes its place at the end
    Replace,
}

impl JobOptions {
    /// The job as it is meant.
    pub fn job(&self) -> anyhow::Result<Job> {
        let options = &self.options;
        let mut job = match &self.job {
            Some(path) => Job::load(path)?,
            None => {
                let missing = "name a job file, or both --from and --to";
                let (from, to) = options.from.clone().zip(options.to.clone()).context(missing)?;
                Job::new(from, to)
            }
        };
        if self.job.is_some() {
            job.from = options.from.clone().unwrap_or(job.from);
            job.to = options.to.clone().unwrap_or(job.to);
        }
        job.mode = options.mode.map_or(job.mode, |mode| match mode {
            Mode::Create => WriteMode::Create,
            Mode::Append => WriteMode::Append,
            Mode::Upsert => WriteMode::Upsert,
            Mode::Replace => WriteMode::Replace,
        });
        job.workers = options.workers.map_or(job.workers, usize::from);
        job.chunksize = options.chunksize.unwrap_or(job.chunksize);
        job.size = options.size.or(job.size);
        if !options.key.is_empty() {
            job.key.clone_from(&options.key);
        }
        job.by_offset |= options.by_offset;
        job.verify |= options.verify;
        job.max_rejects = options.max_rejects.unwrap_or(job.max_rejects);
        job.give_up_after = options.give_up_after.unwrap_or(job.give_up_after);
        job.rest = options.rest.clone().or(job.rest);
        job.check()?;
        Ok(job)
    }

    /// Where its history is.
    pub fn place(&self, job: &Job) -> anyhow::Result<Place> {
        Ok(match &self.job {
            Some(path) => Place::of_job(path),
            None => Place::of_fingerprint(&job.fingerprint()?),
        })
    }
}
