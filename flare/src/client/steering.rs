//! `flare subscriptions pause`, `resume`, `test`, …: what is done to one subscription while it lives.

use ::http::Method;
use clap::{Args, Subcommand};
use serde_json::json;

use super::http::Body;
use super::subscriptions::Named;
use super::table::Column;
use super::{Client, Options, Page, show_fields, show_list};

const BEHIND: [Column; 3] = [
    Column { title: "DOCUMENT", pointer: "/document", whole: true },
    Column { title: "REVISION", pointer: "/revision", whole: false },
    Column { title: "CHANGED", pointer: "/updatedAt", whole: false },
];

const ATTEMPTS: [Column; 6] = [
    Column { title: "AT", pointer: "/at", whole: true },
    Column { title: "STATUS", pointer: "/status", whole: false },
    Column { title: "ATTEMPT", pointer: "/attempt", whole: false },
    Column { title: "MS", pointer: "/durationMs", whole: false },
    Column { title: "DOCUMENT", pointer: "/document", whole: false },
    Column { title: "ERROR", pointer: "/error", whole: false },
];

const LETTERS: [Column; 6] = [
    Column { title: "ID", pointer: "/id", whole: true },
    Column { title: "REASON", pointer: "/reason", whole: false },
    Column { title: "ATTEMPTS", pointer: "/attempts", whole: false },
    Column { title: "AT", pointer: "/at", whole: false },
    Column { title: "DOCUMENT", pointer: "/document", whole: false },
    Column { title: "DETAIL", pointer: "/detail", whole: false },
];

#[derive(Subcommand, Debug)]
pub enum Steering {
    /// Send nothing more until it is resumed; nothing is lost
    Pause(Named),
    /// Go on where it stopped
    Resume(Named),
    /// Call the endpoint with a signed test message, and show what it said
    Test(Named),
    /// Show how far it is behind; with --documents, on which documents
    Lag {
        #[command(flatten)]
        named: Named,
        /// List the documents
        #[arg(long)]
        documents: bool,
        #[command(flatten)]
        page: Page,
    },
    /// Compare what it has with what there is, and send what it lacks
    Resync(Named),
    /// Tell it again of what it has
    Replay(Replay),
    /// Show what was sent and what came of it, the newest first
    Attempts {
        #[command(flatten)]
        named: Named,
        /// Only those answered so, such as 500, or "failed"
        #[arg(long, value_name = "STATUS")]
        status: Option<String>,
        /// How many at most
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Show what was given up; with --replay or --discard, send it again or forget it
    DeadLetters {
        #[command(flatten)]
        named: Named,
        /// Send all of them again, with the newest revision of each document
        #[arg(long, conflicts_with = "discard")]
        replay: bool,
        /// Forget all of them
        #[arg(long)]
        discard: bool,
        #[command(flatten)]
        page: Page,
    },
    /// Ask for more messages of a passive subscription, or show how many are asked for
    Demand {
        #[command(flatten)]
        named: Named,
        /// How many more
        #[arg(value_name = "QUANTITY")]
        quantity: Option<u64>,
    },
}

#[derive(Args, Debug)]
pub struct Replay {
    #[command(flatten)]
    named: Named,

    /// What changed since this time, such as 2026-01-31T12:00:00Z [default: everything]
    #[arg(long, value_name = "TIME", conflicts_with = "cancel")]
    since: Option<String>,

    /// Only documents whose URL starts so
    #[arg(long, value_name = "URL", conflicts_with = "cancel")]
    prefix: Option<String>,

    /// Show how far the replay is
    #[arg(long, conflicts_with_all = ["since", "prefix", "cancel"])]
    show: bool,

    /// End the replay that is under way
    #[arg(long)]
    cancel: bool,
}

impl Steering {
    /// Runs the command.
    pub async fn run(self, client: &Client, options: &Options) -> anyhow::Result<()> {
        match self {
            Self::Pause(named) => post(client, options, &named, "pause", "paused").await,
            Self::Resume(named) => post(client, options, &named, "resume", "resumed").await,
            Self::Test(named) => post(client, options, &named, "test", "tested").await,
            Self::Resync(named) => post(client, options, &named, "resync", "compared").await,
            Self::Lag { named, documents: false, .. } => {
                let answer = client.send(Method::GET, &format!("{}/lag", named.path()), None).await?;
                show_fields(options, &answer, "")
            }
            Self::Lag { named, page, .. } => {
                let path = format!("{}/lag/documents{}", named.path(), page.query());
                let answer = client.send(Method::GET, &path, None).await?;
                show_list(options, &answer, "documents", &BEHIND)
            }
            Self::Replay(replay) => replay.run(client, options).await,
            Self::Attempts { named, status, limit } => {
                let status = status.map(|status| format!("status={status}"));
                let limit = limit.map(|limit| format!("limit={limit}"));
                let query: Vec<_> = status.into_iter().chain(limit).collect();
                let path = format!("{}/attempts?{}", named.path(), query.join("&"));
                let answer = client.send(Method::GET, &path, None).await?;
                show_list(options, &answer, "attempts", &ATTEMPTS)
            }
            Self::DeadLetters { named, replay: true, .. } => {
                post(client, options, &named, "dead-letters/replay", "sent again").await
            }
            Self::DeadLetters { named, discard: true, .. } => {
                post(client, options, &named, "dead-letters/discard", "forgotten").await
            }
            Self::DeadLetters { named, page, .. } => {
                let path = format!("{}/dead-letters{}", named.path(), page.query());
                let answer = client.send(Method::GET, &path, None).await?;
                show_list(options, &answer, "deadLetters", &LETTERS)
            }
            Self::Demand { named, quantity } => {
                let path = format!("{}/demand", named.path());
                let body = quantity.map(|quantity| Body::json(json!({ "quantity": quantity }).to_string()));
                let method = if body.is_some() { Method::POST } else { Method::GET };
                let answer = client.send(method, &path, body).await?;
                show_fields(options, &answer, "")
            }
        }
    }
}

impl Replay {
    async fn run(self, client: &Client, options: &Options) -> anyhow::Result<()> {
        let path = format!("{}/replay", self.named.path());
        if self.show {
            let answer = client.send(Method::GET, &path, None).await?;
            return show_fields(options, &answer, "");
        }
        if self.cancel {
            let answer = client.send(Method::DELETE, &path, None).await?;
            return show_fields(options, &answer, "cancelled");
        }
        let from = self.since.map_or_else(|| json!("all"), |time| json!({ "time": time }));
        let mut body = json!({ "from": from });
        if let Some(prefix) = self.prefix {
            body["prefix"] = json!(prefix);
        }
        let answer = client.send(Method::POST, &path, Some(Body::json(body.to_string()))).await?;
        show_fields(options, &answer, "begun")
    }
}

async fn post(client: &Client, options: &Options, named: &Named, what: &str, done: &str) -> anyhow::Result<()> {
    let answer = client.send(Method::POST, &format!("{}/{what}", named.path()), None).await?;
    show_fields(options, &answer, done)
}
