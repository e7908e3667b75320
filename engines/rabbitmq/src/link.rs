//! A connection that is made again when it breaks.

use std::{sync::Arc, time::Duration};

use flare_core::{Error, Result, queue::QueueName};
use flare_toolkit::health::Backoff;
use futures_util::StreamExt;
use lapin::Event;
use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{address::Address, closed, failure, session::Session, spawn};

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// How often to look whether the connection is up, should the driver not tell that it is not.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Link {
    address: Arc<Address>,
    purpose: &'static str,
    phase: watch::Sender<Phase>,
    /// Why the broker takes no messages, if it does not.
    blocked: watch::Sender<Option<String>>,
    stop: CancellationToken,
}

#[derive(Clone)]
enum Phase {
    Up(Arc<Session>),
    Down(Error),
    Ended,
}

impl Link {
    /// Connects, and keeps connected from then on.
    pub async fn open(address: Arc<Address>, purpose: &'static str, stop: CancellationToken) -> Result<Arc<Self>> {
        let session = connect(&address, purpose).await?;
        let link = Arc::new(Self {
            address,
            purpose,
            phase: watch::Sender::new(Phase::Up(session.clone())),
            blocked: watch::Sender::new(None),
            stop,
        });
        spawn(link.clone().keep(session));
        Ok(link)
    }

    pub fn timeout(&self) -> Duration {
        self.address.timeout
    }

    /// The connection, once there is one.
    pub async fn session(&self, deadline: Instant) -> Result<Arc<Session>> {
        let mut phase = self.phase.subscribe();
        let up = phase.wait_for(|phase| match phase {
            Phase::Up(session) => session.is_up(),
            Phase::Down(_) => false,
            Phase::Ended => true,
        });
        match timeout_at(deadline, up).await {
            Ok(Ok(phase)) => match &*phase {
                Phase::Up(session) => Ok(session.clone()),
                _ => Err(closed()),
            },
            Ok(Err(_)) => Err(closed()),
            Err(_) => Err(self.away()),
        }
    }

    /// Why nothing can be done, after waiting for it.
    fn away(&self) -> Error {
        match &*self.phase.borrow() {
            Phase::Down(error) => error.clone(),
            _ => Error::unavailable(format!("RabbitMQ at {} does not answer", self.address.names())),
        }
    }

    pub fn trouble(&self) -> Option<String> {
        if let Phase::Down(error) = &*self.phase.borrow() {
            return Some(error.chain());
        }
        self.blocked.borrow().as_deref().map(blocked_text)
    }

    /// Waits until the broker takes messages, and tells whether it does.
    pub async fn unblocked(&self, deadline: Instant) -> bool {
        let mut blocked = self.blocked.subscribe();
        timeout_at(deadline, blocked.wait_for(Option::is_none)).await.is_ok()
    }

    /// Why messages were not confirmed in time.
    pub fn unconfirmed(&self, queue: &QueueName) -> Error {
        let silence = || {
            let servers = self.address.names();
            format!("RabbitMQ at {servers} has not confirmed messages for the queue {queue} in time")
        };
        Error::unavailable(self.trouble().unwrap_or_else(silence))
    }

    pub fn watch_blocked(&self) -> watch::Receiver<Option<String>> {
        self.blocked.subscribe()
    }

    /// Waits until the connection is closed for good.
    pub async fn ended(&self) {
        let mut phase = self.phase.subscribe();
        let _sender_is_ours = phase.wait_for(|phase| matches!(phase, Phase::Ended)).await;
    }

    async fn keep(self: Arc<Self>, mut session: Arc<Session>) {
        loop {
            let broken = self.watch(&session).await;
            self.blocked.send_replace(None);
            let Some(error) = broken else { break };
            tracing::warn!(reason = error.chain(), "the connection of the {} to the queue broke", self.purpose);
            self.phase.send_replace(Phase::Down(error));
            session.cut();
            match self.reconnect().await {
                Some(new) => session = new,
                None => break,
            }
            tracing::info!("the {} is connected to the queue again", self.purpose);
            self.phase.send_replace(Phase::Up(session.clone()));
        }
        let _may_be_slow = timeout(self.address.timeout, session.close()).await;
        session.cut();
        self.phase.send_replace(Phase::Ended);
    }

    /// Until the connection breaks, and why it did; nothing if the queue is closed.
    async fn watch(&self, session: &Session) -> Option<Error> {
        let events = session.connection.events_listener();
        tokio::pin!(events);
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        let mut last = None;
        loop {
            let event = tokio::select! {
                () = self.stop.cancelled() => return None,
                event = events.next() => event,
                _ = look.tick() => Some(Event::Connected),
            };
            match event {
                Some(Event::ConnectionBlocked(reason)) => {
                    tracing::warn!(reason, "the queue takes no messages");
                    self.blocked.send_replace(Some(reason));
                }
                Some(Event::ConnectionUnblocked) => {
                    tracing::info!("the queue takes messages again");
                    self.blocked.send_replace(None);
                }
                // It may be one of a channel.
                Some(Event::Error(error)) => last = Some(failure::reason(&error)),
                _ => {}
            }
            if !session.is_up() {
                let reason = last.unwrap_or_else(|| "the connection was closed".into());
                return Some(Error::unavailable(format!("RabbitMQ at {} is gone: {reason}", session.server)));
            }
        }
    }

    /// Tries until it works; nothing if the queue is closed meanwhile.
    async fn reconnect(&self) -> Option<Arc<Session>> {
        let mut backoff = Backoff::new(BACKOFF_MIN, BACKOFF_MAX);
        loop {
            let attempt = async {
                tokio::time::sleep(backoff.next(chance())).await;
                connect(&self.address, self.purpose).await
            };
            let outcome = tokio::select! {
                () = self.stop.cancelled() => return None,
                outcome = attempt => outcome,
            };
            match outcome {
                Ok(session) => return Some(session),
                Err(error) => self.phase.send_replace(Phase::Down(error)),
            };
        }
    }
}

/// The first broker that answers, beginning with any: nodes spread over a cluster.
pub(crate) async fn connect(address: &Address, purpose: &str) -> Result<Arc<Session>> {
    let count = address.servers.len();
    let first = (chance() * count as f64) as usize;
    let mut reasons = Vec::new();
    for offset in 0..count {
        match Session::open(address, &address.servers[(first + offset) % count], purpose).await {
            Ok(session) => return Ok(Arc::new(session)),
            Err(error) => reasons.push(error.chain()),
        }
    }
    Err(Error::unavailable(reasons.join("; ")))
}

fn blocked_text(reason: &str) -> String {
    format!("RabbitMQ has blocked publishers: {reason}")
}

/// From 0 to 1, and never 1.
fn chance() -> f64 {
    f64::from(getrandom::u32().unwrap_or_default()) / (f64::from(u32::MAX) + 1.0)
}
