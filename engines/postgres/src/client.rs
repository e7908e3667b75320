//! A plain client of a server, for those who read and write tables that are not ours. It speaks TLS as the store does.

use std::time::Duration;

use flare_core::Result;
use tokio::task::AbortHandle;
use tokio_postgres::{Client, config::TargetSessionAttrs};

use crate::{Options, address::Address, spawn};

/// Where the server is.
#[derive(Clone)]
pub struct Server {
    address: Address,
}

impl Server {
    /// Reads a URL. `timeout` is how long the network may be silent about what was sent.
    pub fn new(url: &str, timeout: Duration) -> Result<Self> {
        let options = Options { url: Some(url.to_owned()), timeout, ..Options::default() };
        let mut address = Address::read(&options)?;
        // A standby is good enough to read from, and says so when it is written to.
        address.config.target_session_attrs(TargetSessionAttrs::Any);
        Ok(Self { address })
    }

    /// Connects. The task behind the client ends with it, or when it is aborted.
    pub async fn connect(&self) -> std::result::Result<(Client, AbortHandle), tokio_postgres::Error> {
        let (client, connection) = self.address.config.connect(self.address.tls.clone()).await?;
        let driver = spawn(async move {
            // Whoever waits for an answer is told of the end.
            let _ = connection.await;
        });
        Ok((client, driver))
    }
}
