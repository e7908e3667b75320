//! The command line: what can be said, and what an error looks like.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};

use crate::config::{self, Flag, Sources};
use crate::version::{self, VERSION};
use crate::{client, listen, log, migrate, start, terminal};

/// The exit code of a command that failed. Usage errors exit with 2, as clap does.
const FAILED: u8 = 1;

const ABOUT: &str = "Brings every client up to date with the documents that services publish.";

const HELP: &str = "\
Examples:
  flare start                                    run a server, data in ./flare-data
  flare resources create 'http://api.company.com/users/{id}' --field revision
  flare listen                                   show what is delivered to http://127.0.0.1:9000
  flare subscriptions create RESOURCE http://127.0.0.1:9000/users/{id}
  echo '{\"revision\": 1}' | flare put http://api.company.com/users/1 -
  flare status
  flare dump --from mongodb://localhost/shop.users --to 'postgres://localhost/shop?table=users'

Exit codes:
  0  success
  1  failure; the reason is on standard error
  2  wrong usage
  3  a dump stopped; it goes on with the command that it printed
130  a dump was interrupted; the same";

const START_HELP: &str = "\
Every key of the configuration can be set by an environment variable, FLARE_<SECTION>_<KEY>. Flags win \
over variables, those over the file, and the file over the defaults. `flare config` prints all keys.

SIGTERM and Ctrl-C stop the server: what is in flight is finished first; a second signal stops at once.

Examples:
  flare start
  flare start --addr :8080 --data /var/lib/flare
  flare start --config /etc/flare.toml
  FLARE_LOG_LEVEL=debug flare start";

const CONFIG_HELP: &str = "\
Examples:
  flare config > flare.toml
  flare config --check flare.toml";

/// The command line of `flare`.
#[derive(Parser, Debug)]
#[command(name = "flare", version = VERSION, about = ABOUT, after_help = HELP, max_term_width = 120)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the server
    #[command(after_help = START_HELP)]
    Start(Start),
    /// Print a commented sample of the configuration, or check a file
    #[command(after_help = CONFIG_HELP)]
    Config(Config),
    /// Show and take the steps that bring the data to the layout of this version
    Migrate(migrate::Migrate),
    /// Receive deliveries and show them
    Listen(Box<listen::Args>),
    /// Show what a server says about itself
    Status(client::Status),
    /// List, show, create and delete resources
    #[command(visible_alias = "resource")]
    Resources(client::Resources),
    /// List, show, create, update and delete subscriptions
    #[command(visible_alias = "subscription")]
    Subscriptions(client::Subscriptions),
    /// List, show, write, delete and bulk load documents
    #[command(visible_alias = "document")]
    Documents(client::Documents),
    /// Create, list, show and revoke tokens of the API
    #[command(visible_alias = "tokens")]
    Token(client::Tokens),
    /// Write one document
    Put(client::Put),
    /// Copy a whole data set from one store to another
    #[cfg(feature = "dump")]
    Dump(Box<crate::dump::Dump>),
    /// Print the version
    Version(Version),
}

#[derive(Args, Debug)]
struct Start {
    /// The configuration file [default: flare.toml in this folder, if there is one]
    #[arg(long, value_name = "FILE", env = "FLARE_CONFIG")]
    config: Option<PathBuf>,

    /// The address to listen on, as `http.addr`; :8080 is on all interfaces
    #[arg(long, value_name = "ADDR")]
    addr: Option<String>,

    /// The folder of the data, as `repository.path`
    #[arg(long, value_name = "DIR")]
    data: Option<String>,

    /// What this process does, as `node.roles`: api, worker, or both with a comma between
    #[arg(long, value_name = "ROLES")]
    roles: Option<String>,
}

#[derive(Args, Debug)]
struct Config {
    /// Check this file instead; the environment is not looked at
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct Version {
    /// Print the parts of the version as JSON
    #[arg(long)]
    json: bool,
}

/// Ends the program with a code of its own; what there is to say has been said.
#[derive(Debug)]
pub struct Exit(pub u8);

impl std::error::Error for Exit {}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {}", self.0)
    }
}

/// Runs the command of the process's arguments.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help that nobody reads is no failure.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(FAILED));
        }
    };
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<terminal::Closed>() => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref() {
            Some(Exit(code)) => ExitCode::from(*code),
            None => {
                terminal::note(told(&error));
                ExitCode::from(FAILED)
            }
        },
    }
}

/// The error and its causes, as they are shown.
fn told(error: &anyhow::Error) -> String {
    let causes = error.chain().skip(1).map(|cause| format!("\n  because: {cause}"));
    format!("error: {error}{}", causes.collect::<String>())
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Start(start) => block_on(run_start(start)),
        Command::Config(config) => run_config(config),
        Command::Migrate(migrate) => block_on(migrate.run()),
        Command::Listen(args) => block_on(listen::run(*args)),
        Command::Status(status) => block_on(status.run()),
        Command::Resources(resources) => block_on(resources.run()),
        Command::Subscriptions(subscriptions) => block_on(subscriptions.run()),
        Command::Documents(documents) => block_on(documents.run()),
        Command::Token(tokens) => block_on(tokens.run()),
        Command::Put(put) => block_on(put.run()),
        #[cfg(feature = "dump")]
        Command::Dump(dump) => block_on(dump.run()),
        Command::Version(version) => run_version(&version),
    }
}

/// Runs the command on a runtime, with the TLS provider that everything in the process uses.
fn block_on(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    // Only the first installation counts, and this is the only one.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(command)
}

async fn run_start(args: Start) -> anyhow::Result<()> {
    let flag = |name, section, key, value: Option<String>| value.map(|value| Flag { name, section, key, value });
    let flags = [
        flag("--addr", "http", "addr", args.addr),
        flag("--data", "repository", "path", args.data),
        flag("--roles", "node", "roles", args.roles),
    ];
    let sources = Sources {
        file: config::file_to_read(args.config),
        variables: std::env::vars_os().collect(),
        flags: flags.into_iter().flatten().collect(),
    };
    let loaded = config::load(&sources)?;
    log::init(&loaded.config.log)?;
    for warning in &loaded.warnings {
        terminal::note(format!("warning: {warning}"));
    }
    start::run(loaded.config, sources.file.as_deref()).await
}

fn run_config(args: Config) -> anyhow::Result<()> {
    let Some(file) = args.check else {
        return terminal::print(config::sample().trim_end());
    };
    let name = file.display().to_string();
    let loaded = config::load(&Sources { file: Some(file), ..Sources::default() })?;
    for warning in &loaded.warnings {
        terminal::note(format!("warning: {name}: {warning}"));
    }
    terminal::print(format!("{name}: ok"))
}

fn run_version(args: &Version) -> anyhow::Result<()> {
    if args.json {
        let version = serde_json::to_string(&version::version()).context("cannot write the version as JSON")?;
        return terminal::print(version);
    }
    terminal::print(format!("flare {VERSION}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_error_is_told_with_its_causes() {
        let error = anyhow::anyhow!("inner").context("middle").context("outer");
        assert_eq!(told(&error), "error: outer\n  because: middle\n  because: inner");
    }
}
