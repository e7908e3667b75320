//! PostgreSQL, by `COPY` in its text format: the server reads and writes it for every type that it has.
//!
//! A table is walked by its primary key, else by a unique index, else by its blocks (`ctid`). A chunk is one
//! transaction, with its row in the ledger.

mod catalog;
mod connection;
mod encode;
mod reader;
mod text;
mod walk;
mod writer;

pub use self::reader::PostgresReader;
pub use self::writer::PostgresWriter;

use self::connection::Pool;
use crate::error::{Error, Result};
use crate::location::Location;

/// The name of native types.
const DIALECT: &str = "postgres";

/// A table of a server.
#[derive(Clone)]
struct Place {
    pool: Pool,
    schema: Option<String>,
    table: String,
}

impl Place {
    fn read(location: &Location) -> Result<Self> {
        let mut driver = location.clone();
        let Some(table) = driver.take("table") else {
            return Err(Error::invalid(format!("{location}: name the table: ?table=users")));
        };
        let (schema, table) = match table.split_once('.') {
            Some((schema, table)) => (Some(schema.to_owned()), table.to_owned()),
            None => (driver.take("schema"), table),
        };
        Ok(Self { pool: Pool::new(&driver.secret_url()).map_err(|error| error.within(location))?, schema, table })
    }

    /// The table's name for statements.
    fn name(&self) -> String {
        self.sibling(&self.table)
    }

    /// A table beside it.
    fn sibling(&self, table: &str) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", identifier(schema), identifier(table)),
            None => identifier(table),
        }
    }
}

/// A name in quotes.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn identifiers(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    names.into_iter().map(|name| identifier(name.as_ref())).collect::<Vec<_>>().join(", ")
}

/// A text in quotes, for statements that take no parameters.
fn literal(text: &str) -> String {
    let escaped = text.replace('\'', "''");
    if escaped.contains('\\') { format!("E'{}'", escaped.replace('\\', "\\\\")) } else { format!("'{escaped}'") }
}
