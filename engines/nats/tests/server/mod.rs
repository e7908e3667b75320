//! The server of the tests: its address comes from the environment.

#![allow(dead_code, reason = "each test file uses a part")]

use std::{sync::Arc, time::Duration};

use async_nats::jetstream;
use flare_contract::{proxy::Proxy, server};
use flare_core::{
    OutletId,
    queue::{Declared, Queue, QueueName},
};
use flare_nats::Options;

const VARIABLE: &str = "FLARE_TEST_NATS_URL";

/// A server, and a stream in it that only one test has.
pub struct Server {
    pub url: String,
    pub stream: String,
}

impl Server {
    pub fn find() -> Option<Self> {
        let url = server::url(VARIABLE)?;
        Some(Self { url, stream: format!("flare-test-{}", OutletId::generate()) })
    }

    /// The host and the port.
    pub fn host(&self) -> String {
        server::host(&self.url).to_owned()
    }

    pub fn options(&self) -> Options {
        Options { addrs: vec![self.url.clone()], stream: self.stream.clone(), ..Options::default() }
    }

    pub async fn open(&self) -> Arc<dyn Queue> {
        open(&self.options()).await
    }

    pub async fn jetstream(&self) -> jetstream::Context {
        jetstream::new(async_nats::connect(&self.url).await.unwrap())
    }

    /// How many messages are in the stream.
    pub async fn messages(&self) -> u64 {
        let stream = self.jetstream().await.get_stream(&self.stream).await.unwrap();
        stream.cached_info().state.messages
    }

    pub async fn clean_up(&self) {
        self.jetstream().await.delete_stream(&self.stream).await.unwrap();
    }
}

pub async fn open(options: &Options) -> Arc<dyn Queue> {
    flare_nats::open(options).await.unwrap()
}

/// A connection through a proxy, and one past it.
pub struct Lab {
    pub server: Server,
    pub proxy: Proxy,
    pub queue: Arc<dyn Queue>,
    pub straight: Arc<dyn Queue>,
    pub name: QueueName,
}

impl Lab {
    pub async fn open() -> Option<Self> {
        Self::open_with(|_| {}).await
    }

    pub async fn open_with(change: impl Fn(&mut Options)) -> Option<Self> {
        let server = Server::find()?;
        let proxy = Proxy::start(&server.host()).await;
        let mut options = Options { timeout: Duration::from_secs(2), ..server.options() };
        change(&mut options);
        let straight = open(&options).await;
        let queue = open(&Options { addrs: vec![proxy.address().to_string()], ..options }).await;
        let name = QueueName::new("lab").unwrap();
        assert_eq!(straight.declare(&name).await.unwrap(), Declared::Made);
        Some(Self { server, proxy, queue, straight, name })
    }

    pub async fn close(self) {
        self.queue.close().await.unwrap();
        self.straight.close().await.unwrap();
        self.server.clean_up().await;
    }
}
