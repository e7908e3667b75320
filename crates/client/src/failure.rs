//! What can go wrong between a client and a server.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

/// A request that did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// No connection, or none that lasted.
    Unreachable {
        cause: String,
        /// Whether nothing listens there.
        is_refused: bool,
    },
    /// No answer in time.
    Timeout { after: Duration },
    /// An answer that is not a success.
    Refused {
        status: StatusCode,
        body: Bytes,
        /// When the server wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// A path that cannot be asked for.
    Path(String),
}

impl Failure {
    /// For a request there was no connection or no answer.
    pub(crate) fn unreachable(cause: &hyper_util::client::legacy::Error) -> Self {
        let is_refused = io_kind(cause) == Some(io::ErrorKind::ConnectionRefused);
        Self::Unreachable { cause: innermost(cause), is_refused }
    }

    /// An answer broke off or was too large.
    pub(crate) fn broken(cause: &(dyn StdError + 'static)) -> Self {
        Self::Unreachable { cause: format!("the answer broke off: {}", innermost(cause)), is_refused: false }
    }

    /// Whether the same request may succeed later.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } => true,
            Self::Refused { status, .. } => is_temporary(*status),
            Self::Path(_) => false,
        }
    }
}

impl StdError for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { cause, .. } => f.write_str(cause),
            Self::Timeout { after } => write!(f, "no answer within {after:?}"),
            Self::Refused { status, .. } => write!(f, "the server answered HTTP {status}"),
            Self::Path(path) => write!(f, "{path} is not a path that can be asked for"),
        }
    }
}

/// Whether an answer with this status may be a success when it is asked again.
pub fn is_temporary(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
}

fn innermost(error: &(dyn StdError + 'static)) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
}

fn io_kind(error: &(dyn StdError + 'static)) -> Option<io::ErrorKind> {
    chain(error).find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind)
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| (*error).source())
}
