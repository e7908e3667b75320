//! The server that the tests use, and keyspaces of their own on it.

use std::time::Duration;

use flare_cassandra::Options;
use scylla::client::{session::Session, session_builder::SessionBuilder};

pub const VARIABLE: &str = "FLARE_TEST_CASSANDRA_URL";

/// `host:port` of the server. Without one the test says so and is over; in CI that is a failure.
pub fn server() -> Option<String> {
    match std::env::var(VARIABLE) {
        Ok(url) => Some(url.trim_start_matches("cassandra://").trim_end_matches('/').to_owned()),
        Err(_) => {
            println!("skipped: {VARIABLE} is not set; `dev/servers up cassandra` starts a server");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{VARIABLE} must be set in CI");
            None
        }
    }
}

/// Removes its keyspaces in the end.
#[allow(dead_code, reason = "not every test needs all of it")]
pub struct Keyspaces {
    pub session: Session,
    server: String,
    prefix: String,
}

impl Keyspaces {
    pub async fn new(server: &str) -> Self {
        let mut builder = SessionBuilder::new().known_node(server).fetch_full_schema_metadata(false);
        builder = builder.schema_agreement_interval(Duration::from_millis(20));
        builder.config.default_execution_profile_handle =
            scylla::client::execution_profile::ExecutionProfile::builder()
                .request_timeout(Some(Duration::from_secs(60)))
                .build()
                .into_handle();
        let session = builder.build().await.unwrap();
        let prefix = format!("flare_{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
        Self { session, server: server.to_owned(), prefix }
    }

    pub fn options(&self, number: usize) -> Options {
        Options {
            hosts: vec![self.server.clone()],
            keyspace: self.name(number),
            follow_interval: Duration::from_millis(50),
            timeout: Duration::from_secs(10),
            ..Options::default()
        }
    }

    pub fn name(&self, number: usize) -> String {
        format!("{}_{number}", self.prefix)
    }

    pub async fn define(&self, text: &str) {
        self.session.query_unpaged(text, ()).await.unwrap();
    }

    pub async fn drop_all(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            self.define(&format!("DROP KEYSPACE IF EXISTS {}", self.name(number))).await;
        }
    }
}
