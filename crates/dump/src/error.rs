//! One error for all storages: a kind that the copy branches on, and a message for people.

use std::fmt;
use std::sync::Arc;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the copy can do about an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The job cannot be right, however often it is repeated.
    Invalid,
    /// The target refuses a row for what is in it. The batch is bisected, and the row goes to the reject file.
    Rejected,
    /// The source or the target does not answer now; the same request may succeed later.
    Unavailable,
    /// Anything else: the chunk fails, the others go on.
    Failed,
}

/// A kind, what was attempted, and the cause.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub fn rejected(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Rejected, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    /// An error of the file system: a full disk passes, most others do not.
    pub fn io(message: impl Into<String>, error: std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let passes = matches!(
            error.kind(),
            Io::StorageFull | Io::QuotaExceeded | Io::Interrupted | Io::TimedOut | Io::StaleNetworkFileHandle
        );
        let kind = if passes { ErrorKind::Unavailable } else { ErrorKind::Failed };
        Self::new(kind, message).because(error)
    }

    /// Keeps what lies below.
    pub fn because(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Says in front where it happened.
    pub fn within(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message with every cause behind it, for one line. A cause that the message already tells is not repeated.
    pub fn chain(&self) -> String {
        let mut text = self.message.clone();
        let mut next = std::error::Error::source(self);
        while let Some(cause) = next {
            let told = cause.to_string();
            if !text.contains(&told) {
                text.push_str(": ");
                text.push_str(&told);
            }
            next = cause.source();
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.chain())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}
