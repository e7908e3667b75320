//! What went wrong on the way to the server or in it, in the words of the ports.

use flare_core::{Error, ErrorKind};
use tokio_postgres::error::{DbError, Severity, SqlState};

/// A newer owner has sealed.
const REPLACED: &str = "FL001";

/// An error of the driver, or that it took too long.
#[derive(Debug)]
pub(crate) enum Failure {
    Driver(tokio_postgres::Error),
    TimedOut,
    /// It is certain that nothing was done.
    Refused(Error),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Failure {
    fn answer(&self) -> Option<&DbError> {
        match self {
            Self::Driver(error) => error.as_db_error(),
            Self::TimedOut | Self::Refused(_) => None,
        }
    }

    /// The server has answered, and goes on listening on the same connection.
    pub fn is_answer(&self) -> bool {
        match self {
            Self::Refused(_) => true,
            Self::TimedOut => false,
            Self::Driver(error) => match self.answer() {
                Some(answer) => answer.parsed_severity() == Some(Severity::Error),
                // The driver refuses some statements by itself; the connection is none the worse.
                None => std::error::Error::source(error).is_some() && is_conversion(error),
            },
        }
    }

    /// Whether the same call may succeed at once on another connection.
    pub fn is_worth_another_connection(&self) -> bool {
        match self {
            Self::Refused(_) | Self::TimedOut => false,
            Self::Driver(_) => !self.is_answer() || self.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION),
        }
    }

    pub fn code(&self) -> Option<&SqlState> {
        self.answer().map(DbError::code)
    }

    /// The error of a port. `server` names the server without credentials.
    pub fn into_error(self, server: &str) -> Error {
        let error = match self {
            Self::Refused(error) => return error,
            Self::TimedOut => return Error::unavailable(format!("PostgreSQL at {server} did not answer in time")),
            Self::Driver(error) => error,
        };
        let Some(answer) = error.as_db_error() else {
            let kind = if is_conversion(&error) { ErrorKind::Internal } else { ErrorKind::Unavailable };
            return Error::new(kind, format!("PostgreSQL at {server} cannot be spoken to")).because(error);
        };
        match kind(answer.code()) {
            ErrorKind::Conflict => Error::conflict(answer.message()),
            kind => Error::new(kind, format!("PostgreSQL at {server} refuses")).because(error),
        }
    }
}

/// The server knows neither this user with this password, or the database.
pub(crate) fn is_login_refused(cause: &(dyn std::error::Error + 'static)) -> bool {
    let error = cause.downcast_ref::<tokio_postgres::Error>();
    let code = error.and_then(tokio_postgres::Error::code);
    code.is_some_and(|code| matches!(&code.code()[..2], "28" | "3D"))
}

/// A value could not be turned into what the server knows, or back.
fn is_conversion(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    ["error serializing", "error deserializing", "invalid column", "expected "]
        .iter()
        .any(|start| text.starts_with(start))
}

fn kind(code: &SqlState) -> ErrorKind {
    if code.code() == REPLACED {
        return ErrorKind::Conflict;
    }
    match &code.code()[..2] {
        // Values that the server cannot keep.
        "22" => ErrorKind::Invalid,
        // A statement that is wrong, or that runs into a constraint although it was checked before.
        "23" | "42" | "2F" | "21" | "0A" => ErrorKind::Internal,
        // Connections, resources, locks, shutdown, a standby, permissions: others can help it.
        _ => ErrorKind::Unavailable,
    }
}
