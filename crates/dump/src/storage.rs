//! The storages. Each is a module with a `Reader` and a `Writer`, and one arm in each of the two functions below.

pub mod file;
#[cfg(feature = "flare")]
pub mod flare;
#[cfg(feature = "mongodb")]
pub mod mongodb;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod sequence;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::location::{Location, Scheme};
use crate::port::{Reader, Writer};

/// How a source is to be read, besides what its address says.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Walk by these columns instead of the primary key.
    pub key: Vec<String>,
    /// Cut by counting rows: `OFFSET`.
    pub by_offset: bool,
}

/// The reader of an address. Nothing is connected yet.
pub fn reader(location: &Location, options: &ReadOptions) -> Result<Arc<dyn Reader>> {
    match location.scheme {
        Scheme::File => Ok(Arc::new(file::FileReader::new(location, options)?)),
        #[cfg(feature = "flare")]
        Scheme::Flare => Ok(Arc::new(flare::FlareReader::new(location, options)?)),
        #[cfg(feature = "mongodb")]
        Scheme::MongoDb => Ok(Arc::new(mongodb::MongoReader::new(location, options)?)),
        #[cfg(feature = "mysql")]
        Scheme::MySql => Ok(Arc::new(mysql::MySqlReader::new(location, options)?)),
        #[cfg(feature = "postgres")]
        Scheme::Postgres => Ok(Arc::new(postgres::PostgresReader::new(location, options)?)),
        #[cfg(feature = "sqlite")]
        Scheme::Sqlite => Ok(Arc::new(sqlite::SqliteReader::new(location, options)?)),
        #[allow(unreachable_patterns, reason = "with all features there is nothing that is not built in")]
        other => Err(not_built(other)),
    }
}

/// The writer of an address. Nothing is connected yet.
pub fn writer(location: &Location) -> Result<Arc<dyn Writer>> {
    match location.scheme {
        Scheme::File => Ok(Arc::new(file::FileWriter::new(location)?)),
        #[cfg(feature = "flare")]
        Scheme::Flare => Ok(Arc::new(flare::FlareWriter::new(location)?)),
        #[cfg(feature = "mongodb")]
        Scheme::MongoDb => Ok(Arc::new(mongodb::MongoWriter::new(location)?)),
        #[cfg(feature = "mysql")]
        Scheme::MySql => Ok(Arc::new(mysql::MySqlWriter::new(location)?)),
        #[cfg(feature = "postgres")]
        Scheme::Postgres => Ok(Arc::new(postgres::PostgresWriter::new(location)?)),
        #[cfg(feature = "sqlite")]
        Scheme::Sqlite => Ok(Arc::new(sqlite::SqliteWriter::new(location)?)),
        #[allow(unreachable_patterns, reason = "with all features there is nothing that is not built in")]
        other => Err(not_built(other)),
    }
}

#[allow(dead_code, reason = "with all features there is nothing that is not built in")]
fn not_built(scheme: Scheme) -> Error {
    Error::invalid(format!("this program was built without the storage {scheme:?}"))
}
