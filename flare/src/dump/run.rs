//! `flare dump run`, `resume` and `retry`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use flare_dump::copy::{self, Summary};
use flare_dump::event::Progress;
use flare_dump::history::State;
use flare_dump::offsets::{Selection, parse_ordinals};
use flare_dump::session::Session;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::display::Display;
use super::options::JobOptions;
use super::plan;
use crate::cli::Exit;
use crate::terminal;

/// The copy stopped; the history is saved.
const STOPPED: u8 = 3;
/// As shells have it for Ctrl-C.
const INTERRUPTED: u8 = 130;
/// How often the display is drawn.
const TICK: Duration = Duration::from_millis(200);

/// Arguments of `flare dump run` and `resume`.
#[derive(Args, Debug)]
pub struct Run {
    #[command(flatten)]
    pub job: JobOptions,

    #[command(flatten)]
    pub run: RunOptions,
}

/// How a copy is run.
#[derive(Args, Debug)]
pub struct RunOptions {
    /// Copy only these chunks, such as 3,7,12-15
    #[arg(long, value_name = "LIST")]
    offsets: Option<String>,

    /// Pass over the chunks before this one
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    from_offset: u64,

    /// Forget what an earlier run has written down
    #[arg(long)]
    fresh: bool,

    /// What is shown while it runs
    #[arg(long, value_name = "HOW", default_value = "auto")]
    progress: How,

    /// Show nothing but errors
    #[arg(long, short, conflicts_with = "progress")]
    quiet: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A bar on a terminal, else a line per chunk
    Auto,
    /// A line per chunk
    Lines,
    /// Notifications as lines of JSON on standard output
    Json,
    /// Nothing but errors
    None,
}

/// Arguments of `flare dump retry`.
#[derive(Args, Debug)]
pub struct Retry {
    #[command(flatten)]
    run: Run,

    /// Cut the chunks that failed into so many parts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    split: Option<u64>,
}

impl Run {
    pub async fn begin(self) -> anyhow::Result<()> {
        let fresh = self.run.fresh;
        self.go(copy::Run { fresh, ..copy::Run::default() }).await
    }

    pub async fn resume(self) -> anyhow::Result<()> {
        self.go(copy::Run { resume: true, ..copy::Run::default() }).await
    }

    async fn go(self, mut run: copy::Run) -> anyhow::Result<()> {
        let only = self.run.offsets.as_deref().map(parse_ordinals).transpose()?;
        run.selection = Selection { only, from: self.run.from_offset, ..run.selection };
        let how = if self.run.quiet { How::None } else { self.run.progress };
        let job = self.job.job()?;
        let place = self.job.place(&job)?;
        let session = Session::open(job).await?;
        if session.job.by_offset {
            terminal::note(plan::offset_cost(&session));
        }
        let progress = Progress::shared();
        let display = Arc::new(Display::new(how, &session, Arc::clone(&progress)));
        let stop = CancellationToken::new();
        let mut signals = Signals::install()?;
        let copying = copy::run(session, place, run, display.clone(), progress, stop.clone());
        let mut copying = std::pin::pin!(copying);
        let mut ticks = tokio::time::interval(TICK);
        let summary = loop {
            tokio::select! {
                summary = &mut copying => break summary,
                _ = ticks.tick() => display.draw(),
                () = signals.next() => {
                    if stop.is_cancelled() {
                        // What is in flight is undone by whoever was to keep it.
                        std::process::exit(INTERRUPTED.into());
                    }
                    stop.cancel();
                    display.say("stopping: the chunks in flight are finished first; once more stops at once");
                }
            }
        };
        display.close();
        let summary = summary?;
        display.summary(&summary);
        told(&self.job, &summary)
    }
}

impl Retry {
    pub async fn run(self) -> anyhow::Result<()> {
        let selection = Selection { failed: true, split: self.split, ..Selection::default() };
        self.run.go(copy::Run { resume: true, selection, ..copy::Run::default() }).await
    }
}

/// Says how to go on, and ends with the code that says why.
fn told(job: &JobOptions, summary: &Summary) -> anyhow::Result<()> {
    let (why, command, code) = match summary.state {
        State::Ended => return Ok(()),
        State::Interrupted => ("interrupted".to_owned(), "resume", INTERRUPTED),
        State::Incomplete => {
            let failed: Vec<String> =
                summary.failed.iter().take(10).map(|(chunk, why)| format!("\n  chunk {chunk}: {why}")).collect();
            (format!("{} chunks failed{}", summary.failed.len(), failed.concat()), "retry", STOPPED)
        }
        State::Failed | State::Running => {
            (summary.message.clone().unwrap_or_else(|| "the copy stopped".to_owned()), "resume", STOPPED)
        }
    };
    terminal::note(format!("error: {why}\nto go on: {}", go_on(job, command, std::env::args().skip(1))));
    Err(Exit(code).into())
}

/// The command that goes on, with the arguments of this one. Passwords are left out.
fn go_on(job: &JobOptions, command: &str, arguments: impl Iterator<Item = String>) -> String {
    if let Some(path) = &job.job {
        return format!("flare dump {command} {}", quoted(&path.display().to_string()));
    }
    let mut words = vec!["flare".to_owned(), "dump".to_owned(), command.to_owned()];
    let mut arguments = arguments.filter(|word| word != "--fresh").peekable();
    if arguments.peek().is_some_and(|word| word == "dump") {
        arguments.next();
    }
    if arguments.peek().is_some_and(|word| ["run", "resume", "retry"].contains(&word.as_str())) {
        arguments.next();
    }
    words.extend(arguments.map(|word| quoted(&without_password(&word))));
    words.join(" ")
}

fn without_password(word: &str) -> String {
    let Some((address, options)) = word.split_once('?').filter(|(address, _)| address.contains("://")) else {
        return without_user_password(word);
    };
    let shown = options.split('&').map(|option| match option.split_once('=') {
        Some((name, value)) if name.to_ascii_lowercase().contains("pass") && !value.starts_with("${") => {
            format!("{name}=PASSWORD")
        }
        _ => option.to_owned(),
    });
    format!("{}?{}", without_user_password(address), shown.collect::<Vec<_>>().join("&"))
}

fn without_user_password(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    let Some((user, host)) = rest[..end].rsplit_once('@') else { return word.to_owned() };
    match user.split_once(':') {
        // A variable gives nothing away.
        Some((_, password)) if password.starts_with("${") => word.to_owned(),
        Some((name, _)) => format!("{scheme}://{name}:PASSWORD@{host}{}", &rest[end..]),
        // There it is a token.
        None if scheme.starts_with("flare") && !user.starts_with("${") => {
            format!("{scheme}://TOKEN@{host}{}", &rest[end..])
        }
        None => word.to_owned(),
    }
}

/// As a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:,=@+%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Ctrl-C and SIGTERM.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn install() -> anyhow::Result<Self> {
        let install = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { interrupt: install(SignalKind::interrupt())?, terminate: install(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => (),
            _ = self.terminate.recv() => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_to_go_on_has_no_password() {
        let check = |word: &str, expected: &str| assert_eq!(quoted(&without_password(word)), expected);
        check("postgres://me:secret@host/db?table=t", "'postgres://me:PASSWORD@host/db?table=t'");
        check("postgres://me:${PGPASSWORD}@host/db?table=t", "'postgres://me:${PGPASSWORD}@host/db?table=t'");
        check("postgres://host/db?password=secret&table=t", "'postgres://host/db?password=PASSWORD&table=t'");
        check("flare://secret@host/resources/1", "flare://TOKEN@host/resources/1");
        check("users.ndjson", "users.ndjson");
        check("it's", "'it'\\''s'");
    }
}
