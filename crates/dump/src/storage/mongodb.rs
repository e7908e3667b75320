//! MongoDB: collections, read in the order of their `_id`s and written as bulks.
//!
//! The option `id` of an address names the columns that are the `_id` there: `…/shop.users?id=user` makes `_id` of
//! `user` on the way in, and `user` of `_id` on the way out. Without it, documents travel as they are.

mod commands;
mod decode;
mod encode;
mod failure;
mod ledger;
mod reader;
mod writer;

use std::time::Duration;

use mongodb::bson::RawDocumentBuf;
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection, Database};
use tokio::sync::OnceCell;

pub use self::reader::MongoReader;
pub use self::writer::MongoWriter;

use self::failure::failure;
use crate::error::{Error, Result};
use crate::location::{Location, decode as decode_percent};

/// The name of a document's key.
const ID: &str = "_id";
/// How long a server is looked for before the copy hears of it.
const SELECTION_MAX: Duration = Duration::from_secs(10);

/// A collection of a server. The connection is made with the first use.
struct Place {
    /// For the driver: it may hold a password.
    url: String,
    database: String,
    collection: String,
    /// The columns that are the `_id`.
    id: Vec<String>,
    client: OnceCell<Client>,
}

impl Place {
    fn read(location: &Location) -> Result<Self> {
        let mut driver = location.clone();
        let path = location.path();
        let (database, collection) = match (driver.take("collection"), path.split_once('.')) {
            (Some(collection), _) => (path, Some(collection)),
            (None, Some((database, collection))) => (database, decode_percent(collection)),
            (None, None) => (path, None),
        };
        let collection = collection.filter(|name| !name.is_empty() && !database.is_empty()).ok_or_else(|| {
            Error::invalid(format!("{location}: name the collection: mongodb://host/database.collection"))
        })?;
        let id = driver.take("id").map(|names| names.split(',').map(str::to_owned).collect()).unwrap_or_default();
        // The driver wants the name of the database alone.
        let url = driver.secret_url();
        let (address, options) = url.split_once('?').unwrap_or((&url, ""));
        let host = address.strip_suffix(path).unwrap_or(address);
        let question = if options.is_empty() { "" } else { "?" };
        let url = format!("{host}{database}{question}{options}");
        let database = decode_percent(database)
            .ok_or_else(|| Error::invalid(format!("{location}: the name of the database is badly encoded")))?;
        Ok(Self { url, database, collection, id, client: OnceCell::new() })
    }

    async fn database(&self) -> Result<Database> {
        let client = self.client.get_or_try_init(|| connect(&self.url)).await?;
        Ok(client.database(&self.database))
    }

    async fn collection(&self) -> Result<Collection<RawDocumentBuf>> {
        Ok(self.database().await?.collection(&self.collection))
    }
}

async fn connect(url: &str) -> Result<Client> {
    let mut options = ClientOptions::parse(url).await.map_err(|error| failure("the address cannot be used", error))?;
    options.app_name.get_or_insert_with(|| "flare dump".to_owned());
    options.server_selection_timeout.get_or_insert(SELECTION_MAX);
    options.connect_timeout.get_or_insert(SELECTION_MAX);
    Client::with_options(options).map_err(|error| failure("the address cannot be used", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_collection() {
        let check = |text: &str, url: &str, database: &str, collection: &str| {
            let place = Place::read(&Location::parse(text).unwrap()).unwrap();
            assert_eq!((place.url.as_str(), &*place.database, &*place.collection), (url, database, collection));
        };
        check("mongodb://h/db.users", "mongodb://h/db", "db", "users");
        check("mongodb://u:p.w@h1,h2/db.a.b?replicaSet=rs", "mongodb://u:p.w@h1,h2/db?replicaSet=rs", "db", "a.b");
        check("mongodb+srv://h/db?collection=c%20d&id=k", "mongodb+srv://h/db", "db", "c d");
        for text in ["mongodb://h", "mongodb://h/db", "mongodb://h/.users", "mongodb://h/db."] {
            assert!(Place::read(&Location::parse(text).unwrap()).is_err(), "{text}");
        }
    }
}
