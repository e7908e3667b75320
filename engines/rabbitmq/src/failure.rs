//! What errors of the driver mean to callers.

use flare_core::{Error, ErrorKind};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};

/// The reason, for people.
pub(crate) fn reason(error: &lapin::Error) -> String {
    match error.kind() {
        lapin::ErrorKind::ProtocolError(error) => error.get_message().to_string(),
        lapin::ErrorKind::IOError(error) => error.to_string(),
        lapin::ErrorKind::InvalidConnectionState(_) | lapin::ErrorKind::InvalidChannelState(..) => {
            "the connection was closed".into()
        }
        _ => error.to_string(),
    }
}

/// What the broker at `server` said to a question about a queue.
pub(crate) fn refusal(server: &str, error: &lapin::Error) -> Error {
    let reason = reason(error);
    Error::new(kind(error, &reason), format!("RabbitMQ at {server}: {reason}"))
}

fn kind(error: &lapin::Error, reason: &str) -> ErrorKind {
    let lapin::ErrorKind::ProtocolError(error) = error.kind() else { return ErrorKind::Unavailable };
    match error.kind() {
        // A queue on a broker that is away is "not found", too.
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) if reason.contains("inaccessible") => ErrorKind::Unavailable,
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => ErrorKind::NotFound,
        AMQPErrorKind::Soft(
            AMQPSoftError::PRECONDITIONFAILED | AMQPSoftError::ACCESSREFUSED | AMQPSoftError::RESOURCELOCKED,
        ) => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use lapin::protocol::{AMQPError, AMQPHardError};

    use super::*;

    fn check(kind: AMQPErrorKind, text: &str, expected: ErrorKind) {
        let error = lapin::ErrorKind::ProtocolError(AMQPError::new(kind, text.into())).into();
        let refusal = refusal("mq:5672", &error);
        assert_eq!(refusal.kind(), expected, "{text}");
        assert_eq!(refusal.to_string(), format!("RabbitMQ at mq:5672: {text}"));
    }

    #[test]
    fn answers_of_the_broker_have_a_kind() {
        let soft = AMQPErrorKind::Soft;
        check(soft(AMQPSoftError::NOTFOUND), "NOT_FOUND - no queue 'a' in vhost '/'", ErrorKind::NotFound);
        let away = "NOT_FOUND - home node 'rabbit@b' of durable queue 'a' in vhost '/' is down or inaccessible";
        check(soft(AMQPSoftError::NOTFOUND), away, ErrorKind::Unavailable);
        check(soft(AMQPSoftError::PRECONDITIONFAILED), "inequivalent arg", ErrorKind::Invalid);
        check(soft(AMQPSoftError::ACCESSREFUSED), "access to queue refused", ErrorKind::Invalid);
        check(AMQPErrorKind::Hard(AMQPHardError::INTERNALERROR), "INTERNAL_ERROR", ErrorKind::Unavailable);
    }
}
