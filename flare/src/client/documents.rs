//! `flare documents` and `flare put`.

use ::http::{HeaderValue, Method};
use clap::{Args, Subcommand};

use super::http::{Body, segment};
use super::load::Load;
use super::table::Column;
use super::{Client, Input, Options, Page, show_fields, show_list};
use crate::{json, terminal};

const COLUMNS: [Column; 3] = [
    Column { title: "ID", pointer: "/id", whole: false },
    Column { title: "REVISION", pointer: "/revision", whole: false },
    Column { title: "UPDATED", pointer: "/updatedAt", whole: false },
];

const EXAMPLES: &str = "\
Examples:
  flare documents put http://api.company.com/users/1 user.json
  echo '{\"id\": 1, \"revision\": 7}' | flare documents put http://api.company.com/users/1 -
  flare documents get http://api.company.com/users/1
  flare documents load users.ndjson
  flare documents list RESOURCE --limit 100";

const PUT_EXAMPLES: &str = "\
Examples:
  flare put http://api.company.com/users/1 user.json
  echo '{\"id\": 1, \"revision\": 7}' | flare put http://api.company.com/users/1 -";

/// Arguments of `flare documents`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Documents {
    #[command(flatten)]
    options: Options,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Show a page of the documents of a resource
    List {
        /// The id of the resource
        #[arg(value_name = "RESOURCE")]
        resource: String,
        /// Only documents behind this one, such as the last of the page before
        #[arg(long, value_name = "URL")]
        after: Option<String>,
        /// Only documents whose URL begins so
        #[arg(long, value_name = "URL")]
        prefix: Option<String>,
        /// Only documents that the server took in at this time or later, as in RFC 3339
        #[arg(long, value_name = "TIME")]
        changed_since: Option<String>,
        #[command(flatten)]
        page: Page,
    },
    /// Show one document
    Get {
        /// The URL of the document
        #[arg(value_name = "URL")]
        id: String,
    },
    /// Write one document
    Put(Write),
    /// Delete one document
    Delete {
        /// The URL of the document
        #[arg(value_name = "URL")]
        id: String,
        /// The revision at which it was deleted; without one the delete is the newest news
        #[arg(long, value_name = "REVISION")]
        revision: Option<HeaderValue>,
    },
    /// Write and delete many documents
    Load(Load),
}

/// Arguments of `flare put`.
#[derive(Args, Debug)]
#[command(after_help = PUT_EXAMPLES)]
pub struct Put {
    // The heading of the options holds for what follows them, so they come last.
    #[command(flatten)]
    write: Write,

    #[command(flatten)]
    options: Options,
}

#[derive(Args, Debug)]
struct Write {
    /// The URL of the document
    #[arg(value_name = "URL")]
    id: String,

    /// The file with its JSON, or - for standard input
    #[arg(value_name = "FILE")]
    file: Input,
}

impl Write {
    async fn run(&self, client: &Client, options: &Options) -> anyhow::Result<()> {
        let body = Body::json(self.file.read_all()?);
        let answer = client.send(Method::PUT, &path(&self.id), Some(body)).await?;
        show_fields(options, &answer, "accepted")
    }
}

impl Put {
    /// Writes the document.
    pub async fn run(self) -> anyhow::Result<()> {
        self.write.run(&Client::new(&self.options)?, &self.options).await
    }
}

impl Documents {
    /// Runs the command.
    pub async fn run(self) -> anyhow::Result<()> {
        let client = Client::new(&self.options)?;
        let options = &self.options;
        match self.command {
            Command::List { resource, after, prefix, changed_since, page } => {
                let mut path = format!("/resources/{}/documents{}", segment(&resource), page.query());
                for (name, value) in [("after", after), ("prefix", prefix), ("changedSince", changed_since)] {
                    path.extend(value.map(|value| format!("&{name}={}", segment(&value))));
                }
                let answer = client.send(Method::GET, &path, None).await?;
                show_list(options, &answer, "documents", &COLUMNS)
            }
            Command::Get { id } => {
                let answer = client.send(Method::GET, &path(&id), None).await?;
                if options.json {
                    return terminal::print_bytes(&answer);
                }
                let pretty = json::pretty(&answer).unwrap_or_else(|| String::from_utf8_lossy(&answer).into_owned());
                terminal::print(terminal::harmless(&pretty))
            }
            Command::Put(write) => write.run(&client, options).await,
            Command::Delete { id, revision } => {
                let answer = match revision {
                    None => client.send(Method::DELETE, &path(&id), None).await?,
                    Some(revision) => {
                        client.send_with_header(Method::DELETE, &path(&id), ("flare-revision", revision)).await?
                    }
                };
                show_fields(options, &answer, "accepted")
            }
            Command::Load(load) => load.run(client, options).await,
        }
    }
}

fn path(id: &str) -> String {
    format!("/documents/{}", segment(id))
}
