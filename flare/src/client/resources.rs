//! `flare resources`.

use ::http::Method;
use clap::{Args, Subcommand};
use serde_json::json;

use super::http::{Body, segment};
use super::table::Column;
use super::{Client, Input, Options, Page, show_fields, show_list};

const COLUMNS: [Column; 5] = [
    Column { title: "ID", pointer: "/id", whole: true },
    Column { title: "ENDPOINT", pointer: "/endpoint", whole: false },
    Column { title: "FIELD", pointer: "/change/field", whole: false },
    Column { title: "FORMAT", pointer: "/change/format", whole: false },
    Column { title: "CREATED", pointer: "/createdAt", whole: false },
];

const EXAMPLES: &str = "\
Examples:
  flare resources create 'http://api.company.com/users/{id}' --field revision
  flare resources create 'http://api.company.com/users/{id}' --field updatedAt --format rfc3339
  flare resources create --file resource.json
  flare resources list --json";

/// Arguments of `flare resources`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Resources {
    #[command(flatten)]
    options: Options,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Show a page of the resources
    List(Page),
    /// Show one resource
    Get {
        /// The id of the resource
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Create a resource
    #[command(after_help = EXAMPLES)]
    Create(Create),
    /// Delete a resource that has no subscriptions
    Delete {
        /// The id of the resource
        #[arg(value_name = "ID")]
        id: String,
    },
}

#[derive(Args, Debug)]
struct Create {
    /// The URLs of its documents, with wildcards: http://api.company.com/users/{id}
    #[arg(value_name = "ENDPOINT", required_unless_present = "file")]
    endpoint: Option<String>,

    /// The field of a document that shows a change, as a dotted path
    #[arg(long, value_name = "PATH", required_unless_present = "file")]
    field: Option<String>,

    /// The format of the field: rfc3339, a strftime pattern or a Go layout; without one it is an integer
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,

    /// Read the resource as JSON from a file, or from standard input with -
    #[arg(long, value_name = "FILE", conflicts_with_all = ["endpoint", "field", "format"])]
    file: Option<Input>,
}

impl Create {
    fn body(&self) -> anyhow::Result<Body> {
        if let Some(file) = &self.file {
            return Ok(Body::json(file.read_all()?));
        }
        let mut change = json!({ "field": self.field });
        if let Some(format) = &self.format {
            change["format"] = json!(format);
        }
        Ok(Body::json(json!({ "endpoint": self.endpoint, "change": change }).to_string()))
    }
}

impl Resources {
    /// Runs the command.
    pub async fn run(self) -> anyhow::Result<()> {
        let client = Client::new(&self.options)?;
        let options = &self.options;
        match self.command {
            Command::List(page) => {
                let answer = client.send(Method::GET, &format!("/resources{}", page.query()), None).await?;
                show_list(options, &answer, "resources", &COLUMNS)
            }
            Command::Get { id } => {
                let answer = client.send(Method::GET, &path(&id), None).await?;
                show_fields(options, &answer, "")
            }
            Command::Create(create) => {
                let answer = client.send(Method::POST, "/resources", Some(create.body()?)).await?;
                show_fields(options, &answer, "created")
            }
            Command::Delete { id } => {
                let answer = client.send(Method::DELETE, &path(&id), None).await?;
                show_fields(options, &answer, "deleted")
            }
        }
    }
}

fn path(id: &str) -> String {
    format!("/resources/{}", segment(id))
}
