//! What can become of a request.

use async_nats::{
    RequestErrorKind,
    client::RequestError,
    jetstream::{self, ErrorCode},
};
use flare_core::{Error, ErrorKind};

pub(crate) enum Failure {
    /// JetStream has heard it and said no.
    Refused(jetstream::Error),
    /// No such stream or consumer, or no JetStream, or none that may answer at present.
    NobodyThere,
    /// Nobody knows whether it was heard.
    Lost(Error),
}

impl Failure {
    pub fn of_request(error: RequestError) -> Self {
        match error.kind() {
            RequestErrorKind::NoResponders => Self::NobodyThere,
            RequestErrorKind::TimedOut => Self::Lost(Error::unavailable("no answer came in time")),
            RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                Self::Lost(Error::invalid("it cannot be sent").because(error))
            }
            RequestErrorKind::Other => Self::Lost(Error::unavailable("it could not be sent").because(error)),
        }
    }

    /// The stream or the consumer is not there.
    pub fn is_missing(&self) -> bool {
        let missing = [ErrorCode::STREAM_NOT_FOUND, ErrorCode::CONSUMER_NOT_FOUND];
        matches!(self, Self::Refused(error) if missing.contains(&error.error_code()))
    }

    /// Somebody else has made it at the same moment.
    pub fn is_taken(&self) -> bool {
        let taken = [ErrorCode::STREAM_NAME_EXIST, ErrorCode::CONSUMER_ALREADY_EXISTS];
        matches!(self, Self::Refused(error) if taken.contains(&error.error_code()))
    }
}

/// Whether the same request may succeed later.
/// What to do about it, where that is known.
pub(crate) fn remedy(error: &jetstream::Error) -> &'static str {
    match error.error_code() {
        ErrorCode::STORAGE_RESOURCES_EXCEEDED => " (lower stream-max, or give JetStream more room)",
        _ => "",
    }
}

pub(crate) fn kind_of(error: &jetstream::Error) -> ErrorKind {
    match (error.error_code(), error.code()) {
        (ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT, _) => ErrorKind::Invalid,
        // The stream or the account is full: messages that leave make room.
        (_, 500..) => ErrorKind::Unavailable,
        (ErrorCode::STREAM_STORE_FAILED | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED, _) => ErrorKind::Unavailable,
        (_, 404) => ErrorKind::NotFound,
        _ => ErrorKind::Invalid,
    }
}
