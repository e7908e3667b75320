//! A resource of a Flare server.
//!
//! Writing sends documents in bulk, and the subscribers of the resource are told what is new to it. A document's URL is
//! made from the endpoint of the resource and the fields of the row: `{id}` is the field `id`; the option `id` names
//! others, in the order of the wildcards. The server keeps no ledger, and needs none: a revision that it has announces
//! nothing.

mod api;
mod reader;
mod writer;

use flare_core::pattern::Pattern;
use tokio::sync::OnceCell;

pub use self::reader::FlareReader;
pub use self::writer::FlareWriter;

use self::api::{Api, Resource};
use crate::error::{Error, Result};
use crate::json::Style;
use crate::location::{Location, decode};

/// Where the token is, if it is not in the address.
const TOKEN: &str = "FLARE_TOKEN";
/// Between the server and the name of the resource.
const RESOURCES: &str = "/resources/";

/// A resource of a server.
struct Place {
    api: Api,
    named: Named,
    /// The fields that stand at the wildcards of the endpoint, if others than the wildcards say.
    id: Vec<String>,
    /// The field for the URL of a document.
    url: Option<String>,
    /// The change field, for a resource that is to be made.
    change: Option<(String, Option<String>)>,
    style: Style,
    resource: OnceCell<Resource>,
}

/// How an address names a resource.
enum Named {
    Id(String),
    Endpoint(Pattern),
}

impl Place {
    fn read(location: &Location) -> Result<Self> {
        let mut options = location.clone();
        let wrong = |reason: &str| Error::invalid(format!("{location}: {reason}"));
        let address = location.secret_address();
        let (scheme, rest) = address.split_once("://").ok_or_else(|| wrong("is no address"))?;
        let scheme = if matches!(scheme, "flares" | "flare+https") { "https" } else { "http" };
        let (server, name) = rest.split_once(RESOURCES).filter(|(_, name)| !name.is_empty()).ok_or_else(|| {
            wrong("name the resource by its id or endpoint: …/resources/http://api.company.com/users/{id}")
        })?;
        let (user, server) = server.rsplit_once('@').map_or((None, server), |(user, server)| (Some(user), server));
        let token = user.map(|user| user.split_once(':').map_or(user, |(_, password)| password));
        let token = match token {
            Some(token) => Some(decode(token).ok_or_else(|| wrong("the token is badly encoded"))?),
            None => std::env::var(TOKEN).ok().filter(|token| !token.is_empty()),
        };
        let name = decode(name).ok_or_else(|| wrong("the resource is badly encoded"))?;
        let named = if name.contains("://") {
            Named::Endpoint(Pattern::parse(&name).map_err(|error| wrong(&error.to_string()))?)
        } else {
            Named::Id(name)
        };
        let id = options.take("id").map(|names| names.split(',').map(str::to_owned).collect()).unwrap_or_default();
        let format = options.take("change-format");
        let change = options.take("change").map(|field| (field, format));
        let style = match options.take("types").as_deref() {
            Some("extended") => Style::Extended,
            None | Some("plain") => Style::Plain,
            Some(other) => return Err(wrong(&format!("types is {other:?}: write extended or plain"))),
        };
        let url = options.take("url");
        options.expect_no_more()?;
        let api = Api::new(format!("{scheme}://{server}"), token.as_deref()).map_err(|error| error.within(location))?;
        Ok(Self { api, named, id, url, change, style, resource: OnceCell::new() })
    }

    /// The resource, if it is there.
    async fn find(&self) -> Result<Option<&Resource>> {
        if self.resource.get().is_none() {
            let found = match &self.named {
                Named::Id(id) => self.api.resource(id).await?,
                Named::Endpoint(endpoint) => self.api.resource_of(endpoint).await?,
            };
            let Some(found) = found else { return Ok(None) };
            // Whoever came first found the same.
            let _ = self.resource.set(found);
        }
        Ok(self.resource.get())
    }

    async fn resource(&self) -> Result<&Resource> {
        self.find().await?.ok_or_else(|| Error::invalid(format!("there is no resource {}", self.named)))
    }
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => f.write_str(id),
            Self::Endpoint(endpoint) => write!(f, "{endpoint}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_resource_by_its_id_or_endpoint() {
        let check = |text: &str, expected: &str| {
            let place = Place::read(&Location::parse(text).unwrap()).unwrap();
            assert_eq!(place.named.to_string(), expected);
        };
        check("flare+http://h:8080/resources/0190-ab", "0190-ab");
        check("flares://secret@h/api/resources/http://A.com/users/{id}?id=_id", "http://a.com/users/{id}");
        check("flare://h/resources/http%3A%2F%2Fa.com%2Fu%2F%7Bid%7D?types=extended&url=u", "http://a.com/u/{id}");
        for text in
            ["flare://h", "flare://h/resources/", "flare://h/resources/x?types=some", "flare://h/resources/x?y=z"]
        {
            assert!(Place::read(&Location::parse(text).unwrap()).is_err(), "{text}");
        }
        let error = Place::read(&Location::parse("flare://secret@h/resources/http://{x}/y").unwrap()).err().unwrap();
        assert!(!error.chain().contains("secret"), "{error:?}");
    }
}
