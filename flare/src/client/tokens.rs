//! `flare token`.

use ::http::Method;
use clap::{Args, Subcommand, ValueEnum};
use flare_core::token::TokenText;
use serde_json::json;

use super::http::{Body, segment};
use super::table::Column;
use super::{Client, Options, Page, show_fields, show_list};
use crate::config::Duration;

const COLUMNS: [Column; 7] = [
    Column { title: "ID", pointer: "/id", whole: true },
    Column { title: "NAME", pointer: "/name", whole: false },
    Column { title: "SCOPE", pointer: "/scope", whole: false },
    Column { title: "STATUS", pointer: "/status", whole: false },
    Column { title: "EXPIRES", pointer: "/expiresAt", whole: false },
    Column { title: "CREATED", pointer: "/createdAt", whole: false },
    Column { title: "RESOURCES", pointer: "/resources", whole: false },
];

const EXAMPLES: &str = "\
Examples:
  flare token create --name 'nightly import' --scope write --expires 90d
  flare token create --name wishlist --scope write --resource RESOURCE
  flare token list
  flare token revoke ID

A token is for clients on other machines:
  FLARE_TOKEN=flare_… flare status --url http://flare.company.com";

/// Arguments of `flare token`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Tokens {
    #[command(flatten)]
    options: Options,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Create a token; it is shown only now
    #[command(after_help = EXAMPLES)]
    Create(Create),
    /// Show a page of the tokens; those of the configuration are not among them
    List(Page),
    /// Show one token, without its text
    Get {
        /// The id of the token
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Revoke a token: from now on it opens nothing
    Revoke {
        /// The id of the token, or the token itself
        #[arg(value_name = "ID")]
        id: String,
    },
}

#[derive(Args, Debug)]
struct Create {
    /// Who holds it, or what it is for
    #[arg(long, value_name = "NAME")]
    name: String,

    /// What its holder may do
    #[arg(long, value_name = "SCOPE", value_enum)]
    scope: Scope,

    /// A resource that it is for, by its id; may be given several times [default: all resources]
    #[arg(long = "resource", value_name = "ID")]
    resources: Vec<String>,

    /// How long it is good for, such as 90d [default: until it is revoked]
    #[arg(long, value_name = "DURATION")]
    expires: Option<Duration>,
}

#[derive(Clone, Copy, ValueEnum, Debug)]
enum Scope {
    /// read everything but tokens
    Read,
    /// also write documents and subscriptions
    Write,
    /// everything
    Admin,
}

impl Create {
    fn body(&self) -> Body {
        let scope = match self.scope {
            Scope::Read => "read",
            Scope::Write => "write",
            Scope::Admin => "admin",
        };
        let mut token = json!({ "name": self.name, "scope": scope });
        if !self.resources.is_empty() {
            token["resources"] = json!(self.resources);
        }
        if let Some(expires) = self.expires {
            // Written in hours at most, as the API reads it.
            token["expiresIn"] = json!(expires.to_string());
        }
        Body::json(token.to_string())
    }
}

impl Tokens {
    /// Runs the command.
    pub async fn run(self) -> anyhow::Result<()> {
        let client = Client::new(&self.options)?;
        let options = &self.options;
        match self.command {
            Command::Create(create) => {
                let answer = client.send(Method::POST, "/tokens", Some(create.body())).await?;
                show_fields(options, &answer, "created")
            }
            Command::List(page) => {
                let answer = client.send(Method::GET, &format!("/tokens{}", page.query()), None).await?;
                show_list(options, &answer, "tokens", &COLUMNS)
            }
            Command::Get { id } => {
                let answer = client.send(Method::GET, &path(&id), None).await?;
                show_fields(options, &answer, "")
            }
            Command::Revoke { id } => {
                let answer = client.send(Method::DELETE, &path(&id), None).await?;
                show_fields(options, &answer, "revoked")
            }
        }
    }
}

/// Of a token that is given itself, only the id goes into the path, where it may end in the log of a proxy.
fn path(id: &str) -> String {
    let id = TokenText::id_in(id.as_bytes()).map_or_else(|| id.to_owned(), |id| id.to_string());
    format!("/tokens/{}", segment(&id))
}

#[cfg(test)]
mod tests {
    use flare_core::TokenId;

    use super::*;

    #[test]
    fn a_token_is_made_of_arguments() {
        let create = Create {
            name: "ci".to_owned(),
            scope: Scope::Write,
            resources: vec!["a".to_owned(), "b".to_owned()],
            expires: Some("90d".parse().unwrap()),
        };
        let body: serde_json::Value = serde_json::from_slice(&create.body().bytes).unwrap();
        let expected = json!({ "name": "ci", "scope": "write", "resources": ["a", "b"], "expiresIn": "2160h" });
        assert_eq!(body, expected);
        let create = Create { resources: vec![], expires: None, ..create };
        let body: serde_json::Value = serde_json::from_slice(&create.body().bytes).unwrap();
        assert_eq!(body, json!({ "name": "ci", "scope": "write" }));
    }

    #[test]
    fn a_token_itself_is_not_part_of_a_path() {
        let id = TokenId::generate();
        let text = TokenText::new(id, &[7; 32]);
        assert_eq!(path(text.reveal()), format!("/tokens/{id}"));
        assert_eq!(path("a/b"), "/tokens/a%2Fb");
    }
}
