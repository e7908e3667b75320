//! What can go wrong between this client and a server, told to people.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use flare_client::Failure;
use http::StatusCode;
use serde::Deserialize;

use super::options::ServerUrl;
use crate::terminal::harmless;

/// How much of an answer that is not Flare's is repeated.
const EXCERPT_CHARS_MAX: usize = 200;

/// A request that did not succeed.
#[derive(Debug)]
pub enum Error {
    /// No connection, or none that lasted.
    Unreachable {
        /// The server as it was named.
        server: String,
        /// Why.
        cause: String,
        /// Whether nothing listens there, so that starting a server would help.
        refused: bool,
    },
    /// No answer in time.
    Timeout {
        /// The server as it was named.
        server: String,
        /// The time it had.
        after: Duration,
    },
    /// An answer that is not a success.
    Refused {
        /// Its status.
        status: StatusCode,
        /// What the server said, for people.
        message: String,
        /// What the server said, as it came.
        body: Bytes,
        /// When the server wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// A path that cannot be asked for.
    Path(String),
    /// A success that is not in Flare's words.
    Foreign,
}

/// The body of an answer that is not a success.
#[derive(Deserialize)]
struct Wire {
    error: Told,
}

/// An error in the words of the server: of a request, or of one line of a bulk request.
#[derive(Debug, Deserialize)]
pub struct Told {
    /// The name for programs: `resource.not-found`.
    #[serde(default)]
    pub code: String,
    /// What happened.
    #[serde(default)]
    pub title: String,
    /// What exactly, and what to do.
    #[serde(default)]
    pub detail: String,
}

impl Told {
    /// `title: detail`, or what there is of it.
    pub fn sentence(&self) -> String {
        let parts: Vec<_> = [&self.title, &self.detail].into_iter().filter(|part| !part.is_empty()).collect();
        match parts.as_slice() {
            [] => harmless(&self.code).into_owned(),
            parts => harmless(&parts.iter().map(|part| part.as_str()).collect::<Vec<_>>().join(": ")).into_owned(),
        }
    }
}

impl Error {
    /// What went wrong with a request to a server.
    pub fn of(server: &ServerUrl, failure: Failure) -> Self {
        let server = server.to_string();
        match failure {
            Failure::Unreachable { cause, is_refused } => Self::Unreachable { server, cause, refused: is_refused },
            Failure::Timeout { after } => Self::Timeout { server, after },
            Failure::Refused { status, body, retry_after } => Self::refused(status, body, retry_after),
            Failure::Path(path) => Self::Path(path),
        }
    }

    /// The error of an answer that is not a success, in the words of the server if it is Flare.
    pub fn refused(status: StatusCode, body: Bytes, retry_after: Option<Duration>) -> Self {
        let number = status.as_u16();
        let message = match serde_json::from_slice::<Wire>(&body) {
            Ok(Wire { error }) => format!("{} ({}, HTTP {number})", error.sentence(), harmless(&error.code)),
            Err(_) => format!("the server answered HTTP {status}{}", excerpt(&body)),
        };
        Self::Refused { status, message, body, retry_after }
    }

    /// Whether the same request may succeed later.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } => true,
            Self::Refused { status, .. } => flare_client::is_temporary(*status),
            Self::Path(_) | Self::Foreign => false,
        }
    }

    /// Whether the server was there to answer.
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// When the server wants to be asked again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl StdError for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { server, cause, refused: false } => write!(f, "cannot reach Flare at {server}: {cause}"),
            Self::Unreachable { server, refused: true, .. } => write!(
                f,
                "nothing listens at {server}; start a server with `flare start`, or name another one with --url or \
                 FLARE_URL"
            ),
            Self::Timeout { server, after } => {
                write!(f, "no answer from {server} within {after:?}; --timeout gives it longer")
            }
            Self::Refused { message, .. } => f.write_str(message),
            Self::Foreign => f.write_str("the answer is not Flare's; is this a Flare server?"),
            Self::Path(path) => write!(f, "{path} is not a path that can be asked for"),
        }
    }
}

fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() {
        return String::new();
    }
    let cut: String = text.chars().take(EXCERPT_CHARS_MAX).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!(": {}{more}", harmless(&cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_in_the_words_of_the_server() {
        let check = |status: u16, body: &str, expected: &str| {
            let error = Error::refused(StatusCode::from_u16(status).unwrap(), body.to_owned().into(), None);
            assert_eq!(error.to_string(), expected);
        };
        check(
            404,
            r#"{"error":{"code":"resource.not-found","title":"not found","detail":"no resource x","requestId":"1"}}"#,
            "not found: no resource x (resource.not-found, HTTP 404)",
        );
        check(400, r#"{"error":{"code":"a","title":"bad"}}"#, "bad (a, HTTP 400)");
        check(400, r#"{"error":{"code":"a","title":"\u001b[1m","detail":""}}"#, "\\u{1b}[1m (a, HTTP 400)");
        check(502, "<html>\n Bad   gateway", "the server answered HTTP 502 Bad Gateway: <html> Bad gateway");
        check(500, "", "the server answered HTTP 500 Internal Server Error");
    }
}
