//! What can become of a call.

use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use flare_core::{Error, ErrorKind};

/// What SQS says, in a word of its own; older endpoints and emulators say it with the words of older protocols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// There is no such queue.
    Missing,
    /// Another has been made with other settings.
    Exists,
    /// The credentials do not allow it, or are none.
    Denied,
    /// It cannot be right.
    Wrong,
    /// It did not work now.
    Away,
}

pub(crate) struct Failure {
    pub reason: Reason,
    text: String,
}

impl Failure {
    pub fn new(reason: Reason, text: impl Into<String>) -> Self {
        Self { reason, text: text.into() }
    }

    pub fn of<E>(error: &SdkError<E>) -> Self
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        let status = error.raw_response().map_or(0, |response| response.status().as_u16());
        match error {
            SdkError::ServiceError(_) => {
                let code = error.code().unwrap_or("an error without a name");
                let words = error.message().unwrap_or("no more is said");
                Self::new(reason_of(code, status), format!("{code}: {words}"))
            }
            // Credentials that cannot be found are such a failure, too.
            _ => Self::new(Reason::Away, DisplayErrorContext(error).to_string()),
        }
    }

    /// An error for those who asked for `what` of `server`. What is denied may be allowed later, without a restart.
    pub fn explain(self, server: &str, what: &str) -> Error {
        let (kind, verb) = match self.reason {
            Reason::Missing => (ErrorKind::NotFound, "does not have"),
            Reason::Exists | Reason::Wrong => (ErrorKind::Invalid, "refuses"),
            Reason::Denied => (ErrorKind::Unavailable, "does not let us use"),
            Reason::Away => (ErrorKind::Unavailable, "could not be asked for"),
        };
        Error::new(kind, format!("{server} {verb} {what}: {}", self.text))
    }
}

fn reason_of(code: &str, status: u16) -> Reason {
    match code.rsplit(['.', '#']).next().unwrap_or(code) {
        "QueueDoesNotExist" | "NonExistentQueue" => Reason::Missing,
        "QueueNameExists" | "QueueAlreadyExists" => Reason::Exists,
        "AccessDenied"
        | "AccessDeniedException"
        | "KmsAccessDenied"
        | "InvalidClientTokenId"
        | "InvalidSecurity"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClientException"
        | "InvalidAccessKeyId"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "IncompleteSignature"
        | "MissingAuthenticationToken" => Reason::Denied,
        "QueueDeletedRecently"
        | "RequestThrottled"
        | "ThrottlingException"
        | "Throttling"
        | "OverLimit"
        | "KmsThrottled"
        | "RequestLimitExceeded"
        | "ServiceUnavailable"
        | "InternalFailure"
        | "InternalError" => Reason::Away,
        _ if status >= 500 || status == 429 => Reason::Away,
        _ if status == 401 || status == 403 => Reason::Denied,
        _ => Reason::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_old_and_new_protocols_mean_the_same() {
        for (code, status, reason) in [
            ("AWS.SimpleQueueService.NonExistentQueue", 400, Reason::Missing),
            ("QueueDoesNotExist", 400, Reason::Missing),
            ("com.amazonaws.sqs#QueueDoesNotExist", 400, Reason::Missing),
            ("AccessDenied", 403, Reason::Denied),
            ("SomethingNew", 403, Reason::Denied),
            ("RequestThrottled", 400, Reason::Away),
            ("QueueDeletedRecently", 400, Reason::Away),
            ("SomethingNew", 503, Reason::Away),
            ("InvalidAttributeValue", 400, Reason::Wrong),
        ] {
            assert_eq!(reason_of(code, status), reason, "{code} {status}");
        }
    }
}
