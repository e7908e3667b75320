//! The server that the tests use, and keyspaces of their own on it.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::time::Duration;

use flare_cassandra::Options;
use flare_contract::server;
use scylla::{
    client::{session::Session, session_builder::SessionBuilder},
    deserialize::row::DeserializeRow,
};

const VARIABLE: &str = "FLARE_TEST_CASSANDRA_URL";

/// A server, and who logs in.
#[derive(Clone)]
pub struct Server {
    /// `host:port`.
    pub host: String,
    pub username: Option<String>,
    pub password: Option<String>,
}

/// Without a server the test says so and is over; in CI that is a failure.
pub fn server() -> Option<Server> {
    server::url(VARIABLE).map(|url| Server::read(&url))
}

impl Server {
    pub fn read(url: &str) -> Self {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let login = rest.rsplit_once('@').and_then(|(login, _)| login.split_once(':'));
        let (username, password) = login.map(|(user, password)| (user.to_owned(), password.to_owned())).unzip();
        Self { host: server::host(url).to_owned(), username, password }
    }

    pub fn options(&self) -> Options {
        Options {
            hosts: vec![self.host.clone()],
            username: self.username.clone(),
            password: self.password.clone(),
            follow_interval: Duration::from_millis(50),
            timeout: Duration::from_secs(10),
            ..Options::default()
        }
    }
}

/// Removes its keyspaces in the end.
pub struct Keyspaces {
    pub session: Session,
    server: Server,
    prefix: String,
}

impl Keyspaces {
    pub async fn new(server: &Server) -> Self {
        let mut builder = SessionBuilder::new().known_node(&server.host).fetch_full_schema_metadata(false);
        if let (Some(user), Some(password)) = (&server.username, &server.password) {
            builder = builder.user(user, password);
        }
        builder = builder.schema_agreement_interval(Duration::from_millis(20));
        builder.config.default_execution_profile_handle =
            scylla::client::execution_profile::ExecutionProfile::builder()
                .request_timeout(Some(Duration::from_secs(60)))
                .build()
                .into_handle();
        let session = builder.build().await.unwrap();
        let prefix = format!("flare_{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
        Self { session, server: server.clone(), prefix }
    }

    pub fn options(&self, number: usize) -> Options {
        Options { keyspace: self.name(number), ..self.server.options() }
    }

    pub fn name(&self, number: usize) -> String {
        format!("{}_{number}", self.prefix)
    }

    pub async fn define(&self, text: &str) {
        self.session.query_unpaged(text, ()).await.unwrap();
    }

    pub async fn rows<R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>>(&self, query: &str) -> Vec<R> {
        let result = self.session.query_unpaged(query, ()).await.unwrap().into_rows_result().unwrap();
        result.rows().unwrap().map(Result::unwrap).collect()
    }

    pub async fn drop_all(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            self.define(&format!("DROP KEYSPACE IF EXISTS {}", self.name(number))).await;
        }
    }
}
