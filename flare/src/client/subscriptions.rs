//! `flare subscriptions`.

use ::http::Method;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::http::{Body, segment};
use super::steering::Steering;
use super::table::Column;
use super::{Client, Input, Options, Page, show_fields, show_list};

const COLUMNS: [Column; 6] = [
    Column { title: "ID", pointer: "/id", whole: true },
    Column { title: "NAME", pointer: "/name", whole: false },
    Column { title: "STATUS", pointer: "/status", whole: false },
    Column { title: "MODE", pointer: "/mode", whole: false },
    Column { title: "URL", pointer: "/endpoint/url", whole: false },
    Column { title: "CREATED", pointer: "/createdAt", whole: false },
];

const EXAMPLES: &str = "\
Examples:
  flare subscriptions create RESOURCE http://127.0.0.1:9000/users/{id}
  flare subscriptions create RESOURCE https://api.company.com/hook --name wishlist \\
      --header 'Authorization: Basic dXNlcg=='
  flare subscriptions create RESOURCE --file subscription.json
  flare subscriptions rotate-secret RESOURCE ID --overlap 1h
  flare subscriptions list RESOURCE";

/// Arguments of `flare subscriptions`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Subscriptions {
    #[command(flatten)]
    options: Options,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Show a page of the subscriptions of a resource
    List {
        /// The id of the resource
        #[arg(value_name = "RESOURCE")]
        resource: String,
        #[command(flatten)]
        page: Page,
    },
    /// Show one subscription
    Get(Named),
    /// Create a subscription; its secret is shown only now
    #[command(after_help = EXAMPLES)]
    Create(Create),
    /// Replace what a subscription says, as JSON from a file
    Update {
        #[command(flatten)]
        named: Named,
        /// The file with the subscription, or - for standard input
        #[arg(value_name = "FILE")]
        file: Input,
    },
    /// Give a subscription a new secret; it is shown only now
    RotateSecret(RotateSecret),
    /// Delete a subscription
    Delete(Named),
    #[command(flatten)]
    Steering(Steering),
}

#[derive(Args, Debug)]
pub struct Named {
    /// The id of the resource
    #[arg(value_name = "RESOURCE")]
    resource: String,

    /// The id of the subscription
    #[arg(value_name = "ID")]
    id: String,
}

impl Named {
    pub fn path(&self) -> String {
        format!("{}/{}", path(&self.resource), segment(&self.id))
    }
}

#[derive(Args, Debug)]
struct RotateSecret {
    #[command(flatten)]
    named: Named,

    /// How long deliveries are signed with the present secret too [default: 24h]
    #[arg(long, value_name = "DURATION")]
    overlap: Option<String>,

    /// The new secret; without one the server makes one and shows it now
    #[arg(long, value_name = "WHSEC")]
    secret: Option<String>,

    /// The scheme of the signatures from now on, v1 or v1a [default: the present one]
    #[arg(long, value_name = "SCHEME")]
    signature: Option<String>,
}

impl RotateSecret {
    fn body(&self) -> Body {
        let members = [("overlap", &self.overlap), ("secret", &self.secret), ("signature", &self.signature)];
        let given = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_ref()?))));
        Body::json(Value::Object(given.collect()).to_string())
    }
}

#[derive(Args, Debug)]
struct Create {
    /// The id of the resource
    #[arg(value_name = "RESOURCE")]
    resource: String,

    /// Where its documents are sent; the wildcards of the resource can be used
    #[arg(value_name = "ENDPOINT", required_unless_present = "file")]
    endpoint: Option<String>,

    /// A name for people [default: the endpoint]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// The method of the requests
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,

    /// A header of the requests, 'Name: value'; may be given several times
    #[arg(long = "header", value_name = "HEADER", value_parser = header)]
    headers: Vec<(String, String)>,

    /// The secret of its signatures; without one the server makes one and shows it now
    #[arg(long, value_name = "WHSEC")]
    secret: Option<String>,

    /// Read the subscription as JSON from a file, or from standard input with -
    #[arg(long, value_name = "FILE", conflicts_with_all = ["endpoint", "name", "method", "headers", "secret"])]
    file: Option<Input>,
}

impl Create {
    fn body(&self) -> anyhow::Result<Body> {
        if let Some(file) = &self.file {
            return Ok(Body::json(file.read_all()?));
        }
        let mut endpoint = json!({ "url": self.endpoint });
        if let Some(method) = &self.method {
            endpoint["method"] = json!(method.to_ascii_lowercase());
        }
        if !self.headers.is_empty() {
            let mut headers = Map::new();
            for (name, value) in &self.headers {
                let values = headers.entry(name).or_insert_with(|| json!([]));
                values.as_array_mut().into_iter().for_each(|values| values.push(json!(value)));
            }
            endpoint["headers"] = Value::Object(headers);
        }
        let name = self.name.as_ref().or(self.endpoint.as_ref());
        let mut subscription = json!({ "name": name, "endpoint": endpoint });
        if let Some(secret) = &self.secret {
            subscription["secret"] = json!(secret);
        }
        Ok(Body::json(subscription.to_string()))
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once(':').filter(|(name, _)| !name.trim().is_empty());
    let (name, value) = parts.ok_or_else(|| "write a header as 'Name: value'".to_owned())?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl Subscriptions {
    /// Runs the command.
    pub async fn run(self) -> anyhow::Result<()> {
        let client = Client::new(&self.options)?;
        let options = &self.options;
        match self.command {
            Command::List { resource, page } => {
                let path = format!("{}{}", path(&resource), page.query());
                let answer = client.send(Method::GET, &path, None).await?;
                show_list(options, &answer, "subscriptions", &COLUMNS)
            }
            Command::Get(named) => {
                let answer = client.send(Method::GET, &named.path(), None).await?;
                show_fields(options, &answer, "")
            }
            Command::Create(create) => {
                let answer = client.send(Method::POST, &path(&create.resource), Some(create.body()?)).await?;
                show_fields(options, &answer, "created")
            }
            Command::Update { named, file } => {
                let body = Body::json(file.read_all()?);
                let answer = client.send(Method::PUT, &named.path(), Some(body)).await?;
                show_fields(options, &answer, "updated")
            }
            Command::RotateSecret(rotate) => {
                let path = format!("{}/secret/rotate", rotate.named.path());
                let answer = client.send(Method::POST, &path, Some(rotate.body())).await?;
                show_fields(options, &answer, "rotated")
            }
            Command::Delete(named) => {
                let answer = client.send(Method::DELETE, &named.path(), None).await?;
                show_fields(options, &answer, "deleted")
            }
            Command::Steering(steering) => steering.run(&client, options).await,
        }
    }
}

fn path(resource: &str) -> String {
    format!("/resources/{}/subscriptions", segment(resource))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_is_made_of_arguments() {
        let create = Create {
            resource: "r".to_owned(),
            endpoint: Some("http://a/{id}".to_owned()),
            name: Some("n".to_owned()),
            method: Some("PUT".to_owned()),
            headers: vec![header("A: b").unwrap(), header("A:c:d").unwrap()],
            secret: Some("whsec_x".to_owned()),
            file: None,
        };
        let body: Value = serde_json::from_slice(&create.body().unwrap().bytes).unwrap();
        let expected = json!({
            "name": "n",
            "secret": "whsec_x",
            "endpoint": { "url": "http://a/{id}", "method": "put", "headers": { "A": ["b", "c:d"] } },
        });
        assert_eq!(body, expected);
        let create = Create { name: None, ..create };
        let body: Value = serde_json::from_slice(&create.body().unwrap().bytes).unwrap();
        assert_eq!(body["name"], "http://a/{id}");
        assert!(header("nothing").is_err());
        assert!(header(": value").is_err());
    }
}
