//! SQLite, by the library that is built in.
//!
//! A table is walked by its primary key, which is the `rowid` if there is no other. There is one writer at a time:
//! chunks are gathered by their workers and written in turn, each in one transaction with its row in the ledger.

mod catalog;
mod reader;
mod values;
mod writer;

pub use self::reader::SqliteReader;
pub use self::writer::SqliteWriter;

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::{Error, ErrorKind, Result};
use crate::location::Location;

/// The name of native types.
const DIALECT: &str = "sqlite";

/// How long a lock of another process is waited for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// A table of a file.
#[derive(Clone, Debug)]
struct Place {
    path: PathBuf,
    table: String,
}

impl Place {
    fn read(location: &Location) -> Result<Self> {
        let mut options = location.clone();
        let Some(table) = options.take("table") else {
            return Err(Error::invalid(format!("{location}: name the table: ?table=users")));
        };
        let path = PathBuf::from(options.path());
        options.expect_no_more()?;
        if path.as_os_str().is_empty() {
            return Err(Error::invalid(format!("{location}: name the file: sqlite:///data/users.db?table=users")));
        }
        Ok(Self { path, table })
    }

    fn open_to_read(&self) -> Result<Connection> {
        if !self.path.exists() {
            return Err(Error::invalid(format!("there is no file {}", self.path.display())));
        }
        self.open(OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
    }

    fn open_to_write(&self) -> Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        self.open(flags)
    }

    fn open(&self, flags: OpenFlags) -> Result<Connection> {
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open_with_flags(&self.path, flags)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            Ok(connection)
        };
        open().map_err(|error| failure(&format!("cannot open {}", self.path.display()), error))
    }
}

/// A name in quotes.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn identifiers(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    names.into_iter().map(|name| identifier(name.as_ref())).collect::<Vec<_>>().join(", ")
}

/// An error in the words of the copy.
#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` calls")]
fn failure(what: &str, error: rusqlite::Error) -> Error {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull) => ErrorKind::Unavailable,
        Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig) => ErrorKind::Rejected,
        Some(ErrorCode::CannotOpen | ErrorCode::NotADatabase | ErrorCode::ReadOnly) => ErrorKind::Invalid,
        _ => ErrorKind::Failed,
    };
    // The driver would repeat the reason as its cause.
    Error::new(kind, format!("{what}: {error}"))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::failed("work on the file ended unexpectedly").because(error)),
    }
}
