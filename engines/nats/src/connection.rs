//! The connection to the server: one for all queues. The driver brings it back when it is lost; what was asked
//! meanwhile fails at once.

use std::{sync::Arc, time::Duration};

use async_nats::{
    Client, ConnectOptions, Event, Message, Request,
    connection::State,
    jetstream::{self, context::ContextBuilder, response::Response},
};
use bytes::Bytes;
use flare_core::{Error, Result};
use flare_toolkit::health::{Backoff, Health};
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    failure::{Failure, kind_of, remedy},
    options::Options,
};

const RECONNECT_MIN: Duration = Duration::from_millis(50);
const RECONNECT_MAX: Duration = Duration::from_secs(2);
/// A server that flushes each message to disk answers some hundreds in a second.
const PUSHED_MAX: usize = 512;
/// A server that is silent for three of these is gone.
const PING_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) struct Connection {
    pub client: Client,
    jetstream: jetstream::Context,
    /// Of the subjects of JetStream's interface.
    prefix: String,
    /// The addresses, for people.
    pub server: String,
    pub timeout: Duration,
    pub health: Arc<Health>,
    /// Counts how often the connection was lost.
    breaks: watch::Receiver<u64>,
    /// For messages that are on their way at the same time: the server must be able to answer all of them in time.
    pub places: Semaphore,
    words: Arc<Mutex<Option<String>>>,
    pub stop: CancellationToken,
}

/// What the driver tells of the connection.
struct Watcher {
    server: String,
    health: Arc<Health>,
    breaks: watch::Sender<u64>,
    is_up: Mutex<bool>,
    /// What the server complained of last: it does not say about which request.
    words: Arc<Mutex<Option<String>>>,
}

impl Connection {
    pub async fn open(options: &Options) -> Result<Self> {
        let server = options.names();
        let health = Arc::new(Health::default());
        let words = Arc::<Mutex<Option<String>>>::default();
        let (breaks, seen) = watch::channel(0);
        let is_up = Mutex::new(false);
        let watcher =
            Arc::new(Watcher { server: server.clone(), health: health.clone(), breaks, is_up, words: words.clone() });
        let connecting = connect_options(options).await?.event_callback(move |event| {
            let watcher = watcher.clone();
            async move { watcher.note(&event) }
        });
        let client = connecting
            .connect(options.servers()?)
            .await
            .map_err(|error| Error::unavailable(format!("could not connect to NATS at {server}")).because(error))?;
        let prefix = options.domain.as_ref().map_or("$JS.API".into(), |domain| format!("$JS.{domain}.API"));
        let builder = ContextBuilder::new().api_prefix(&prefix).timeout(options.timeout);
        let jetstream = builder.build(client.clone());
        let (timeout, stop) = (options.timeout, CancellationToken::new());
        let places = Semaphore::new(PUSHED_MAX);
        Ok(Self { client, jetstream, prefix, server, timeout, health, breaks: seen, places, words, stop })
    }

    pub fn is_up(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Whether there is any sense in asking.
    pub fn check(&self) -> Result<()> {
        if self.stop.is_cancelled() {
            return Err(Error::unavailable("the queue was closed"));
        }
        if self.is_up() {
            return Ok(());
        }
        let reason = self.health.trouble();
        Err(Error::unavailable(reason.unwrap_or_else(|| format!("NATS at {} is not connected", self.server))))
    }

    /// Asks many things at once, and waits for all answers, or for the connection to be lost.
    pub async fn ask_all(
        &self,
        requests: impl Iterator<Item = (String, Bytes)>,
    ) -> Result<Vec<Result<Message, Failure>>, Failure> {
        // One clock for all of them.
        let ask = |(subject, payload)| self.client.send_request(subject, Request::new().payload(payload).timeout(None));
        let asking = join_all(requests.map(ask));
        let answers =
            async { Ok(asking.await.into_iter().map(|answer| answer.map_err(Failure::of_request)).collect()) };
        self.unless_lost(answers).await
    }

    /// Asks the JSON interface of JetStream.
    pub async fn api<T: DeserializeOwned>(&self, subject: String, payload: &impl Serialize) -> Result<T, Failure> {
        let asking = self.jetstream.request(subject, payload);
        let answer = self.unless_lost(async {
            asking.await.map_err(|error| match error.kind() {
                jetstream::context::RequestErrorKind::NoResponders => Failure::NobodyThere,
                _ => Failure::Lost(Error::unavailable("no answer came").because(error)),
            })
        });
        match answer.await? {
            Response::Ok(answer) => Ok(answer),
            Response::Err { error } => Err(Failure::Refused(error)),
        }
    }

    /// The subject of a request for messages.
    pub fn next_subject(&self, stream: &str, consumer: &str) -> String {
        format!("{}.CONSUMER.MSG.NEXT.{stream}.{consumer}", self.prefix)
    }

    /// The driver would wait for an answer that cannot come any more.
    async fn unless_lost<T>(&self, asking: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let lost = self.lost();
        tokio::select! {
            biased;
            answer = asking => answer,
            () = lost => Err(Failure::Lost(Error::unavailable("the connection was lost"))),
            // While there is no connection, the driver takes requests until it is full, and then waits.
            () = tokio::time::sleep(self.timeout) => Err(Failure::Lost(Error::unavailable("no answer came in time"))),
        }
    }

    /// Ends when the connection is lost.
    pub fn lost(&self) -> impl Future<Output = ()> + use<> {
        let mut breaks = self.breaks.clone();
        breaks.mark_unchanged();
        async move {
            let _ended = breaks.changed().await;
        }
    }

    /// An error for those who asked for `what`.
    pub fn explain(&self, what: &str, failure: Failure) -> Error {
        let server = &self.server;
        match failure {
            Failure::Refused(error) => {
                let text = format!("NATS at {server} refuses {what}{}", remedy(&error));
                Error::new(kind_of(&error), text).because(error)
            }
            Failure::NobodyThere => Error::unavailable(format!(
                "JetStream of NATS at {server} does not answer to {what}: it is starting, has no leader, or \
                 is not enabled"
            )),
            Failure::Lost(error) => {
                let words = self.words.lock().take().map(|words| format!(", and said: {words}")).unwrap_or_default();
                let text = format!("NATS at {server} has not confirmed {what}{words}");
                Error::new(error.kind(), text).because(error)
            }
        }
    }

    /// Lets go of the server, once everything is sent.
    pub async fn close(&self) {
        let leaving = async {
            let _sent = self.client.flush().await;
            let _left = self.client.drain().await;
        };
        let _may_be_away = tokio::time::timeout(self.timeout, leaving).await;
    }
}

impl Watcher {
    fn note(&self, event: &Event) {
        let server = &self.server;
        match event {
            Event::Connected => {
                *self.is_up.lock() = true;
                self.health.is_well();
            }
            Event::Disconnected => {
                *self.is_up.lock() = false;
                self.health.is_ill(&Error::unavailable(format!("the connection to NATS at {server} was lost")));
                self.breaks.send_modify(|breaks| *breaks += 1);
            }
            Event::ServerError(words) => *self.words.lock() = Some(words.to_string()),
            Event::ClientError(error) if !*self.is_up.lock() => {
                self.health.is_ill(&Error::unavailable(format!("could not connect to NATS at {server}: {error}")));
            }
            event => tracing::debug!(%event, server, "NATS"),
        }
    }
}

async fn connect_options(options: &Options) -> Result<ConnectOptions> {
    let backoff = Mutex::new(Backoff::new(RECONNECT_MIN, RECONNECT_MAX));
    let mut connecting = ConnectOptions::new()
        .name("flare")
        .connection_timeout(options.timeout)
        .request_timeout(Some(options.timeout))
        .ping_interval(PING_INTERVAL)
        .require_tls(options.tls)
        .reconnect_delay_callback(move |attempts| {
            let mut backoff = backoff.lock();
            if attempts <= 1 {
                backoff.reset();
                return Duration::ZERO;
            }
            backoff.next(chance())
        });
    if let Some(ca) = &options.ca {
        connecting = connecting.add_root_certificates(ca.clone());
    }
    if let (Some(username), Some(password)) = (&options.username, &options.password) {
        connecting = connecting.user_and_password(username.clone(), password.clone());
    }
    if let Some(token) = &options.token {
        connecting = connecting.token(token.clone());
    }
    if let Some(path) = &options.credentials {
        let unreadable = || Error::invalid(format!("the credentials of {} cannot be read", path.display()));
        connecting = connecting.credentials_file(path).await.map_err(|error| unreadable().because(error))?;
    }
    Ok(connecting)
}

/// A number between 0 and 1.
fn chance() -> f64 {
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}
