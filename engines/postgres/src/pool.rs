//! A few connections that all calls share, and what is known of the server behind them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use flare_core::{Error, Result};
use flare_toolkit::health::{Backoff, Health};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::Row;

use crate::{
    address::Address,
    connection::{Call, Connection, Session},
    failure::Failure,
};

const RECONNECT_MIN: Duration = Duration::from_millis(50);
const RECONNECT_MAX: Duration = Duration::from_secs(2);

pub(crate) struct Pool {
    pub address: Address,
    pub session: Session,
    pub health: Health,
    idle: Mutex<Vec<Connection>>,
    places: Semaphore,
    gate: Mutex<Gate>,
    is_closed: AtomicBool,
}

/// Keeps callers from hammering a server that is away.
struct Gate {
    backoff: Backoff,
    shut: Option<(Instant, Error)>,
}

impl Pool {
    pub fn new(address: Address, session: Session, limit: usize) -> Arc<Self> {
        Arc::new(Self {
            address,
            session,
            health: Health::default(),
            idle: Mutex::default(),
            places: Semaphore::new(limit.max(1)),
            gate: Mutex::new(Gate { backoff: Backoff::new(RECONNECT_MIN, RECONNECT_MAX), shut: None }),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Takes a connection, for as long as the lease lives.
    pub async fn lease(&self) -> Result<Lease<'_>> {
        let waiting = tokio::time::timeout(self.session.timeout, self.places.acquire());
        let Ok(place) = waiting.await else {
            return Err(Error::unavailable(format!("all connections to PostgreSQL at {} are busy", self.address.name)));
        };
        let place = place.map_err(|_| closed())?;
        if self.is_closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        let idle = std::iter::from_fn(|| self.idle.lock().pop()).find(|connection| !connection.is_closed());
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(Lease { pool: self, connection: Some(connection), is_clean: true, _place: place })
    }

    async fn connect(&self) -> Result<Connection> {
        if let Some((until, error)) = &self.gate.lock().shut
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        let opened = Connection::open(&self.address, &self.session, |_| {}).await;
        let mut gate = self.gate.lock();
        match opened {
            Ok(connection) => {
                gate.backoff.reset();
                gate.shut = None;
                Ok(connection)
            }
            Err(failure) => {
                let error = failure.into_error(&self.address.name);
                let wait = gate.backoff.next(chance());
                gate.shut = Some((Instant::now() + wait, error.clone()));
                drop(gate);
                // Other connections to the same server are most likely gone, too.
                self.idle.lock().clear();
                self.health.note(Err(error))
            }
        }
    }

    /// Runs one statement that may be run twice: a connection that was lost while nobody looked is no failure.
    pub async fn query(&self, call: &Call) -> Result<Vec<Row>> {
        Ok(self.query_all(&[call]).await?.pop().unwrap_or_default())
    }

    /// Runs statements that may be run twice, in one round trip. Each is a transaction of its own.
    pub async fn query_all(&self, calls: &[&Call]) -> Result<Vec<Vec<Row>>> {
        self.query_between(None, calls, None).await
    }

    /// Like [`Pool::query_all`], in one transaction.
    pub async fn query_together(&self, calls: &[&Call]) -> Result<Vec<Vec<Row>>> {
        self.query_between(Some("BEGIN"), calls, Some("COMMIT")).await
    }

    async fn query_between(&self, before: Option<&str>, calls: &[&Call], after: Option<&str>) -> Result<Vec<Vec<Row>>> {
        let mut has_failed = false;
        loop {
            let mut lease = self.lease().await?;
            let outcome = match lease.connection().pipeline(before, calls, after).await {
                Ok(ran) => ran.all(),
                Err(failure) => Err(failure),
            };
            lease.note(&outcome);
            match outcome {
                Err(failure) if !has_failed && failure.is_worth_another_connection() => has_failed = true,
                outcome => return self.note(outcome),
            }
        }
    }

    /// Runs one statement that must not be run twice.
    pub async fn query_once(&self, call: &Call) -> Result<Vec<Row>, Failure> {
        let mut lease = self.lease().await?;
        let outcome = lease.connection().query(call).await;
        lease.note(&outcome);
        outcome
    }

    /// Turns an outcome into that of a port, and remembers whether the server answered.
    pub fn note<T>(&self, outcome: Result<T, Failure>) -> Result<T> {
        self.health.note(outcome.map_err(|failure| failure.into_error(&self.address.name)))
    }

    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.idle.lock().clear();
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

pub(crate) fn closed() -> Error {
    Error::unavailable("the store is closed")
}

/// A number between 0 and 1.
pub(crate) fn chance() -> f64 {
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}

/// A connection that is given back, if it is still good.
pub(crate) struct Lease<'p> {
    pool: &'p Pool,
    connection: Option<Connection>,
    /// No transaction is under way.
    is_clean: bool,
    _place: SemaphorePermit<'p>,
}

impl Lease<'_> {
    pub fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("it is taken only when the lease is dropped")
    }

    /// A transaction begins: unless it is ended, the connection is not used again.
    pub fn begin(&mut self) {
        self.is_clean = false;
    }

    /// The transaction has ended.
    pub fn end(&mut self) {
        self.is_clean = true;
    }

    /// A connection on which something else than an answer came is not used again.
    pub fn note<T>(&mut self, outcome: &Result<T, Failure>) {
        if let Err(failure) = outcome
            && (!failure.is_answer() || failure.is_worth_another_connection())
        {
            self.is_clean = false;
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && self.is_clean
            && !connection.is_closed()
            && !self.pool.is_closed()
        {
            self.pool.idle.lock().push(connection);
        }
    }
}
