//! The real broker that tests run against, with names of their own for queues.

#![allow(dead_code, reason = "not every test uses all of it")]

pub mod load;

use std::sync::Arc;

use flare_contract::server;
use flare_core::queue::{Queue, QueueName};
use flare_rabbitmq::Options;

const VARIABLE: &str = "FLARE_TEST_RABBITMQ_URL";

pub struct Server {
    pub url: String,
}

impl Server {
    /// None, with a line that says why, if there is no server.
    pub fn find() -> Option<Self> {
        Some(Self { url: server::url(VARIABLE)? })
    }

    /// One that tests may kill and configure.
    pub fn find_ours() -> Option<Self> {
        if server::are_ours() { Self::find() } else { None }
    }

    /// The host and the port, as the URL has them.
    pub fn host(&self) -> String {
        server::host(&self.url).to_owned()
    }

    /// The same broker by another address.
    pub fn url_at(&self, address: &str) -> String {
        self.url.replace(&self.host(), address)
    }

    pub fn options(&self) -> Options {
        Options { url: Some(self.url.clone()), ..Options::default() }
    }

    pub async fn open(&self) -> Arc<dyn Queue> {
        flare_rabbitmq::open(&self.options()).await.unwrap()
    }
}

pub fn fresh_name() -> QueueName {
    QueueName::new(format!("flare-test-{:016x}", getrandom::u64().unwrap())).unwrap()
}

/// Asks the server's own tool.
pub fn rabbitmqctl(arguments: &[&str]) {
    let folder = std::env::var("FLARE_SERVERS_DIR")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../.servers").into());
    let first_port: u16 = std::fs::read_to_string(format!("{folder}/port")).unwrap().trim().parse().unwrap();
    let done = std::process::Command::new("/usr/lib/rabbitmq/bin/rabbitmqctl")
        .arg("--quiet")
        .args(arguments)
        .env("HOME", format!("{folder}/rabbitmq"))
        .env("RABBITMQ_NODENAME", "flare@localhost")
        .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
        .env("ERL_EPMD_PORT", (first_port + 75).to_string())
        .status()
        .unwrap();
    assert!(done.success(), "rabbitmqctl {}", arguments.join(" "));
}

/// Asks the tool when it is dropped, also by a test that fails.
pub struct Afterwards(pub &'static [&'static str]);

impl Drop for Afterwards {
    fn drop(&mut self) {
        rabbitmqctl(self.0);
    }
}
