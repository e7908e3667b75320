//! What the cluster could do and does not: let a user in, or do what the user has no permission for.
//!
//! The driver keeps such an answer deep inside of its errors, and not always as a cause of them.

use std::{error::Error, fmt};

use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, ExecutionError, PrepareError,
    RequestAttemptError, RequestError, UseKeyspaceError,
};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub kind: Kind,
    /// What the cluster says.
    reason: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// It does not know this user with this password, and wants one where there is none.
    Login,
    /// The user may not do it.
    Permission,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Error for Refusal {}

/// The refusal that an error of the driver comes from, if it does.
pub(crate) fn find(error: &(dyn Error + 'static)) -> Option<Refusal> {
    std::iter::successors(Some(error), |&error| error.source()).find_map(of)
}

fn of(error: &(dyn Error + 'static)) -> Option<Refusal> {
    if let Some(ConnectionPoolError::Broken { last_connection_error }) = error.downcast_ref() {
        return of_connection(last_connection_error);
    }
    if let Some(PrepareError::AllAttemptsFailed { first_attempt }) = error.downcast_ref() {
        return of_attempt(first_attempt);
    }
    if let Some(ExecutionError::LastAttemptError(attempt)) = error.downcast_ref() {
        return of_attempt(attempt);
    }
    if let Some(RequestError::LastAttemptError(attempt)) = error.downcast_ref() {
        return of_attempt(attempt);
    }
    if let Some(UseKeyspaceError::RequestError(attempt)) = error.downcast_ref() {
        return of_attempt(attempt);
    }
    None
}

fn of_connection(error: &ConnectionError) -> Option<Refusal> {
    let ConnectionError::ConnectionSetupRequestError(error) = error else { return None };
    let reason = match &error.error {
        ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, reason) => reason.clone(),
        ConnectionSetupRequestErrorKind::MissingAuthentication => "nobody may connect without a login".into(),
        _ => return None,
    };
    Some(Refusal { kind: Kind::Login, reason })
}

fn of_attempt(error: &RequestAttemptError) -> Option<Refusal> {
    match error {
        RequestAttemptError::DbError(DbError::Unauthorized, reason) => {
            Some(Refusal { kind: Kind::Permission, reason: reason.clone() })
        }
        _ => None,
    }
}
