//! The server of the tests: its address comes from the environment.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod door;

use std::{sync::Arc, time::Duration};

use flare_contract::{proxy::Proxy, server};
use flare_core::{
    OutletId,
    queue::{Declared, Queue, QueueName},
};
use flare_sqs::Options;

const VARIABLE: &str = "FLARE_TEST_SQS_URL";

pub struct Server {
    pub url: String,
}

impl Server {
    pub fn find() -> Option<Self> {
        let url = server::url(VARIABLE)?;
        Some(Self { url })
    }

    /// The host and the port.
    pub fn host(&self) -> String {
        server::host(&self.url).to_owned()
    }

    pub fn options(&self) -> Options {
        Options {
            region: Some("eu-central-1".into()),
            key: Some("test".into()),
            secret: Some("test".into()),
            endpoint: Some(self.url.clone()),
            ..Options::default()
        }
    }

    pub async fn open(&self) -> Arc<dyn Queue> {
        open(&self.options()).await
    }

    /// The driver, for a look behind the engine.
    pub fn client(&self) -> aws_sdk_sqs::Client {
        let http = aws_smithy_http_client::Builder::new().build_http();
        let config = aws_sdk_sqs::Config::builder()
            .http_client(http)
            .region(aws_sdk_sqs::config::Region::new("eu-central-1"))
            .credentials_provider(aws_sdk_sqs::config::Credentials::new("test", "test", None, None, "test"))
            .endpoint_url(&self.url);
        aws_sdk_sqs::Client::from_conf(config.build())
    }
}

pub async fn open(options: &Options) -> Arc<dyn Queue> {
    flare_sqs::open(options).await.unwrap()
}

pub fn fresh_name() -> QueueName {
    QueueName::new(format!("flare-test-{}", OutletId::generate())).unwrap()
}

/// A connection through a proxy, and one past it.
pub struct Lab {
    pub server: Server,
    pub proxy: Proxy,
    pub options: Options,
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
        let mut options = Options { timeout: Duration::from_secs(1), ..server.options() };
        change(&mut options);
        let straight = open(&options).await;
        options.endpoint = Some(format!("http://{}", proxy.address()));
        let queue = open(&options).await;
        let name = fresh_name();
        assert_eq!(straight.declare(&name).await.unwrap(), Declared::Made);
        assert_eq!(queue.declare(&name).await.unwrap(), Declared::There);
        Some(Self { server, proxy, options, queue, straight, name })
    }

    pub async fn close(self) {
        self.queue.close().await.unwrap();
        self.straight.remove(&self.name).await.unwrap();
        self.straight.close().await.unwrap();
    }
}
