//! The servers that tests run against, and databases of their own on them.

use flare_mongodb::Options;
use mongodb::bson::oid::ObjectId;

/// The address in the variable; without it the test is skipped, and in CI it fails.
pub fn url(variable: &str) -> Option<String> {
    match std::env::var(variable) {
        Ok(url) => Some(url),
        Err(_) if std::env::var("CI").is_ok_and(|ci| ci == "true") => panic!("{variable} is not set"),
        Err(_) => {
            println!("skipped: {variable} is not set; dev/servers starts the server and prints it");
            None
        }
    }
}

/// A database that nobody else has, and that is gone when the test is over.
pub struct Scratch {
    url: String,
    name: String,
}

impl Scratch {
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), name: format!("flare_test_{}", ObjectId::new().to_hex()) }
    }

    pub fn options(&self, number: usize) -> Options {
        let database = Some(format!("{}_{number}", self.name));
        Options { url: Some(self.url.clone()), database, ..Options::default() }
    }

    pub async fn drop(self) {
        let client = mongodb::Client::with_uri_str(&self.url).await.unwrap();
        for name in client.list_database_names().await.unwrap() {
            if name.starts_with(&self.name) {
                client.database(&name).drop().await.unwrap();
            }
        }
    }
}
