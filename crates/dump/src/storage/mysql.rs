//! MySQL and MariaDB.
//!
//! A table is walked by its primary key, else by a unique index without nulls; without either, one cursor reads it.
//! Rows come in the binary protocol, which has every value exactly. A chunk is one transaction of `INSERT`s with its
//! row in the ledger. (`LOAD DATA LOCAL` would be faster, but the server then turns values that it cannot hold into
//! others without a word.)

mod catalog;
mod connection;
mod decode;
mod encode;
mod reader;
mod writer;

pub use self::reader::MySqlReader;
pub use self::writer::MySqlWriter;

use self::connection::Server;
use crate::error::{Error, Result};
use crate::location::Location;

/// The name of native types.
const DIALECT: &str = "mysql";

/// A table of a server.
#[derive(Clone)]
struct Place {
    server: Server,
    /// The database, if another than that of the address.
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
            None => (None, table),
        };
        if schema.is_none() && location.path().is_empty() {
            return Err(Error::invalid(format!("{location}: name the database: mysql://host/database?table={table}")));
        }
        let server = Server::new(&driver.secret_url()).map_err(|error| error.within(location))?;
        Ok(Self { server, schema, table })
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

    /// The database of the table, as an expression.
    fn schema_expression(&self) -> String {
        self.schema.as_deref().map_or("DATABASE()".to_owned(), encode::literal)
    }
}

/// A name in quotes.
fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn identifiers(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    names.into_iter().map(|name| identifier(name.as_ref())).collect::<Vec<_>>().join(", ")
}
