//! What the errors of the driver mean to the copy.

use mongodb::error::{Error as MongoError, ErrorKind as MongoKind};

use crate::error::{Error, ErrorKind};

/// An index refuses a second document with the same key.
pub(super) const DUPLICATE_KEY: i32 = 11000;
/// What is to be made is there already.
pub(super) const NAMESPACE_EXISTS: i32 = 48;
pub(super) const NAMESPACE_NOT_FOUND: i32 = 26;
/// The lower bound of a range of an index does not come before the upper one.
pub(super) const NOTHING_BETWEEN: i32 = 51175;

/// Codes of a server that is on its way somewhere else: failing over, shutting down, out of time or of room.
const PASSING: &[i32] =
    &[6, 7, 43, 50, 64, 79, 89, 91, 112, 134, 189, 202, 262, 317, 9001, 10107, 11600, 11602, 13435, 13436, 14031];
/// Codes of credentials, rights, and commands that the server does not take.
const WRONG: &[i32] = &[2, 9, 13, 18, 59, 73, 166, 8000];
/// Codes that are about what a document has in it: duplicate, refused by a rule, too large, a bad `_id` or name.
const REFUSED: &[i32] = &[2, 52, 53, 55, 57, 121, 10334, 11000, 11001, 12582, 17280, 17419, 16755];

/// An error in the words of the copy.
#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` calls")]
pub(super) fn failure(what: &str, error: MongoError) -> Error {
    let kind = match &*error.kind {
        MongoKind::ServerSelection { message, .. } => {
            return Error::unavailable(format!("{what}: no server answers: {}", why_none(message)));
        }
        MongoKind::Authentication { .. } | MongoKind::InvalidArgument { .. } | MongoKind::InvalidTlsConfig { .. } => {
            ErrorKind::Invalid
        }
        MongoKind::Io(_) | MongoKind::ConnectionPoolCleared { .. } | MongoKind::DnsResolve { .. } => {
            ErrorKind::Unavailable
        }
        // The driver would show the whole answer with it.
        MongoKind::Command(command) => {
            let message = format!("{what}: {} ({}, code {})", command.message, command.code_name, command.code);
            return Error::new(kind_of(command.code), message);
        }
        _ if error.contains_label("RetryableWriteError") => ErrorKind::Unavailable,
        _ => ErrorKind::Failed,
    };
    Error::new(kind, format!("{what}: {}", error.kind))
}

/// Why servers do not answer, from the driver's description of all of them.
fn why_none(description: &str) -> &str {
    let why = description.split_once("Error: Kind: ").map(|(_, why)| why);
    why.and_then(|why| why.split_once(", labels:")).map_or(description, |(why, _)| why)
}

/// The code of a command that failed as a whole.
pub(super) fn code(error: &MongoError) -> Option<i32> {
    match &*error.kind {
        MongoKind::Command(command) => Some(command.code),
        _ => None,
    }
}

fn kind_of(code: i32) -> ErrorKind {
    match code {
        code if PASSING.contains(&code) => ErrorKind::Unavailable,
        code if WRONG.contains(&code) => ErrorKind::Invalid,
        _ => ErrorKind::Failed,
    }
}

/// The kind of an error that is about one document of a bulk.
pub(super) fn kind_of_document(code: i32) -> ErrorKind {
    if REFUSED.contains(&code) { ErrorKind::Rejected } else { kind_of(code) }
}
