//! `flare dump`: the commands of the bulk copier.

mod display;
mod options;
mod plan;
mod run;
mod status;

use clap::{Args, Subcommand};

use options::{JobOptions, Options};

const HELP: &str = "\
A source and a target are URLs or files:
  postgres://user@host/database?table=users       mongodb://host/database.collection
  mysql://user@host/database?table=users          sqlite:///path/file.db?table=users
  users.ndjson  users.json  users.csv             each also with .gz or .zst
  flare+http://host:8080/resources/ID             a resource of a Flare server
${NAME} in an address stands for a variable of the environment.

What is done is written down beside the job, so that a copy never starts over: after a crash, a failure \
or Ctrl-C, `flare dump resume` goes on with what is missing, and doubles nothing.

Examples:
  flare dump --from mongodb://localhost/shop.users --to 'postgres://localhost/shop?table=users' --workers 4
  flare dump guess --from users.csv --to 'postgres://localhost/shop?table=users' > users.toml
  flare dump plan users.toml
  flare dump run users.toml
  flare dump resume users.toml";

/// Arguments of `flare dump`.
#[derive(Args, Debug)]
#[command(after_help = HELP, args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Dump {
    #[command(subcommand)]
    action: Option<Action>,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    run: run::RunOptions,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Copy what a job file says; the same as with flags alone
    Run(Box<run::Run>),
    /// Show what would be read, how it is cut and what becomes of it
    Plan(Box<JobOptions>),
    /// Show the first rows as they would be written
    Preview(Box<plan::Preview>),
    /// Print a job file with the columns that the source suggests
    Guess(Box<JobOptions>),
    /// Show how far a copy is
    Status(Box<status::Status>),
    /// Go on with a copy
    Resume(Box<run::Run>),
    /// Do the chunks again that failed
    Retry(Box<run::Retry>),
}

impl Dump {
    /// Runs the command.
    pub async fn run(self) -> anyhow::Result<()> {
        keep_memory_small();
        match self.action {
            None => run::Run { job: JobOptions { job: None, options: self.options }, run: self.run }.begin().await,
            Some(Action::Run(run)) => run.begin().await,
            Some(Action::Resume(run)) => run.resume().await,
            Some(Action::Retry(retry)) => retry.run().await,
            Some(Action::Plan(options)) => plan::plan(&options).await,
            Some(Action::Preview(preview)) => preview.run().await,
            Some(Action::Guess(options)) => plan::guess(&options).await,
            Some(Action::Status(status)) => status.run(),
        }
    }
}

/// Rows pass through in small batches, on several threads: with huge pages most of the memory would be unused parts of
/// them. Where that cannot be said to the system, a copy only takes more of it.
fn keep_memory_small() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
