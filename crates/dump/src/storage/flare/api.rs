//! The calls of a server's API that a copy needs.

use std::time::Duration;

use bytes::Bytes;
use flare_client::{Body, Client, Failure, NDJSON, bearer, segment};
use flare_core::change::{ChangeRule, FieldPath};
use flare_core::pattern::Pattern;
use flare_core::revision::RevisionFormat;
use http::{HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind, Result};

/// How long an answer may take; a copy that gives up earlier says so itself.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// The most that a server lists at once.
const PAGE_ROWS: u64 = 1000;
/// How much of an answer that is not Flare's is repeated.
const EXCERPT_CHARS_MAX: usize = 200;

pub(super) struct Api {
    client: Client,
}

/// What a copy needs to know of a resource.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub id: String,
    pub endpoint: Pattern,
    pub change: ChangeRule,
}

/// A page of documents, in the order of their URLs.
#[derive(Deserialize)]
pub(super) struct Documents {
    pub documents: Vec<Document>,
    pagination: Pagination,
}

#[derive(Deserialize)]
pub(super) struct Document {
    /// Its URL.
    pub id: String,
    pub document: Box<RawValue>,
}

#[derive(Deserialize)]
struct Pagination {
    total: u64,
}

impl Documents {
    /// How many there are in all.
    pub fn total(&self) -> u64 {
        self.pagination.total
    }
}

#[derive(Deserialize)]
struct WireResources {
    resources: Vec<WireResource>,
}

#[derive(Deserialize)]
struct WireResource {
    id: String,
    endpoint: String,
    change: WireChange,
}

#[derive(Deserialize)]
struct WireChange {
    field: String,
    format: Option<String>,
}

/// What became of a bulk.
#[derive(Deserialize, Default)]
struct WireReport {
    #[serde(default)]
    errors: Vec<WireLineError>,
}

#[derive(Deserialize)]
struct WireLineError {
    line: u64,
    error: WireError,
}

#[derive(Deserialize)]
struct WireRefusal {
    error: WireError,
}

#[derive(Deserialize)]
struct WireError {
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: String,
}

impl WireError {
    fn sentence(&self) -> String {
        let parts: Vec<&str> =
            [self.title.as_str(), &self.detail].into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(": ")
    }
}

impl Api {
    /// `server` is its URL.
    pub fn new(server: String, token: Option<&str>) -> Result<Self> {
        let authorization = match token {
            Some(token) => {
                Some(bearer(token).ok_or_else(|| Error::invalid("a token consists of visible ASCII characters"))?)
            }
            None => None,
        };
        let agent = HeaderValue::from_static(concat!("flare-dump/", env!("CARGO_PKG_VERSION")));
        let client = Client::new(server, agent, authorization, ANSWER_MAX);
        Ok(Self { client: client.map_err(|error| Error::failed("cannot set up TLS").because(error))? })
    }

    /// The resource with this id, if it is there.
    pub async fn resource(&self, id: &str) -> Result<Option<Resource>> {
        match self.client.send(Method::GET, &format!("/resources/{}", segment(id)), None).await {
            Ok(answer) => read::<WireResource>(&answer)?.try_into().map(Some),
            Err(Failure::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(None),
            Err(failure) => Err(error_of(failure)),
        }
    }

    /// The resource with this endpoint, if it is there.
    pub async fn resource_of(&self, endpoint: &Pattern) -> Result<Option<Resource>> {
        let mut offset = 0;
        loop {
            let path = format!("/resources?limit={PAGE_ROWS}&offset={offset}");
            let page: WireResources = read(&self.client.send(Method::GET, &path, None).await.map_err(error_of)?)?;
            let is_last = page.resources.is_empty();
            if let Some(found) = page.resources.into_iter().find(|resource| resource.endpoint == endpoint.as_str()) {
                return found.try_into().map(Some);
            }
            if is_last {
                return Ok(None);
            }
            offset += PAGE_ROWS;
        }
    }

    /// Makes a resource.
    pub async fn create(&self, endpoint: &Pattern, field: &str, format: Option<&str>) -> Result<Resource> {
        let mut change = json!({ "field": field });
        if let Some(format) = format {
            change["format"] = json!(format);
        }
        let body = json!({ "endpoint": endpoint.as_str(), "change": change }).to_string();
        let made = self.client.send(Method::POST, "/resources", Some(Body::json(body))).await;
        read::<WireResource>(&made.map_err(error_of)?)?.try_into()
    }

    /// A page of the documents of a resource behind a URL, or from the first on. A page may have fewer documents than
    /// there are; an empty one is the end.
    pub async fn documents(&self, resource: &str, after: Option<&str>, offset: u64, rows: u64) -> Result<Documents> {
        let rows = rows.clamp(1, PAGE_ROWS);
        let after = after.map(|url| format!("&after={}", segment(url))).unwrap_or_default();
        let path = format!("/resources/{}/documents?limit={rows}&offset={offset}{after}", segment(resource));
        read(&self.client.send(Method::GET, &path, None).await.map_err(error_of)?)
    }

    /// Writes documents, one per line. What the server refuses is the error, and does not hold up the rest.
    pub async fn write(&self, lines: Bytes) -> Result<()> {
        let body = Body { kind: NDJSON, bytes: lines };
        let report: WireReport = match self.client.send(Method::POST, "/documents", Some(body)).await {
            Ok(answer) => read(&answer)?,
            Err(Failure::Refused { status: StatusCode::UNPROCESSABLE_ENTITY, body, retry_after }) => {
                match serde_json::from_slice::<WireReport>(&body) {
                    Ok(report) if !report.errors.is_empty() => report,
                    _ => {
                        let status = StatusCode::UNPROCESSABLE_ENTITY;
                        return Err(error_of(Failure::Refused { status, body, retry_after }));
                    }
                }
            }
            Err(failure) => return Err(error_of(failure)),
        };
        match report.errors.first() {
            Some(first) => Err(Error::rejected(format!("{} (line {})", first.error.sentence(), first.line))),
            None => Ok(()),
        }
    }
}

impl TryFrom<WireResource> for Resource {
    type Error = Error;

    fn try_from(wire: WireResource) -> Result<Self> {
        let foreign = || Error::failed("the server describes its resource in a way that is not known");
        let format = match &wire.change.format {
            Some(format) => RevisionFormat::parse(format).map_err(|_| foreign())?,
            None => RevisionFormat::Integer,
        };
        let change = ChangeRule { field: FieldPath::parse(&wire.change.field).map_err(|_| foreign())?, format };
        Ok(Self { id: wire.id, endpoint: Pattern::parse(&wire.endpoint).map_err(|_| foreign())?, change })
    }
}

fn read<'a, T: Deserialize<'a>>(answer: &'a [u8]) -> Result<T> {
    serde_json::from_slice(answer)
        .map_err(|error| Error::invalid("the answer is not Flare's; is this a Flare server?").because(error))
}

/// A failure in the words of the copy.
#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` calls")]
fn error_of(failure: Failure) -> Error {
    let Failure::Refused { status, body, .. } = &failure else {
        let kind = if failure.is_temporary() { ErrorKind::Unavailable } else { ErrorKind::Invalid };
        return Error::new(kind, format!("the server cannot be reached: {failure}"));
    };
    let kind = match *status {
        _ if failure.is_temporary() || status.is_server_error() => ErrorKind::Unavailable,
        // The documents of one request are too many bytes together.
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => ErrorKind::Rejected,
        _ => ErrorKind::Invalid,
    };
    let message = match serde_json::from_slice::<WireRefusal>(body) {
        Ok(refusal) => format!("{} (HTTP {})", refusal.error.sentence(), status.as_u16()),
        Err(_) => {
            let text: String = String::from_utf8_lossy(body).chars().take(EXCERPT_CHARS_MAX).collect();
            format!("the server answered HTTP {status}: {text}")
        }
    };
    Error::new(kind, message)
}
