//! The name of a request in answers and logs.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id of a client's own that is taken over.
const BYTES_MAX: usize = 128;

/// The client's id, if it sent a sane one; otherwise an id is made when it is first needed, which is for an error.
#[derive(Clone)]
pub(crate) enum RequestId {
    Sent(HeaderValue),
    Made(Uuid),
}

impl RequestId {
    /// The id that the client sent. Letters, digits and a few marks only, so that it can stand in a log as it is.
    pub fn sent(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(HEADER)?;
        let is_sane = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
        let sane = (1..=BYTES_MAX).contains(&value.len()) && value.as_bytes().iter().all(is_sane);
        sane.then(|| Self::Sent(value.clone()))
    }

    pub fn make() -> Self {
        Self::Made(Uuid::now_v7())
    }

    pub fn header(&self) -> HeaderValue {
        match self {
            Self::Sent(value) => value.clone(),
            Self::Made(id) => {
                let text = id.as_hyphenated().to_string();
                HeaderValue::from_str(&text).expect("a UUID is visible ASCII")
            }
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent(value) => f.write_str(value.to_str().unwrap_or_default()),
            Self::Made(id) => id.as_hyphenated().fmt(f),
        }
    }
}
