//! A proxy between an engine and its server that does to connections what networks do.
//!
//! It forwards bytes of whatever protocol. A test tells it to cut, to refuse, to hold back or to slow down; or to wait
//! for certain bytes on their way to the server, and to cut just before or just after them: so that the answer to
//! exactly this request is lost.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::spawn;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

/// How long a server may work on a request whose answer nobody waits for.
const DRAIN: Duration = Duration::from_millis(500);
const BUFFER_BYTES: usize = 64 << 10;

/// Where a connection is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// The server never gets the bytes.
    Before,
    /// The server gets them, and its answer is lost.
    After,
}

pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: tokio::task::AbortHandle,
}

struct Shared {
    target: String,
    /// Connections of older generations are cut.
    generation: watch::Sender<usize>,
    /// Connections up to this number hold back what they have.
    held: watch::Sender<usize>,
    is_refusing: AtomicBool,
    loses_answers: AtomicBool,
    delay: Mutex<Duration>,
    trap: Mutex<Option<Trap>>,
    opened: AtomicUsize,
    /// How often a client has begun to speak after its server had spoken.
    round_trips: AtomicUsize,
}

#[derive(Clone)]
struct Trap {
    bytes: Vec<u8>,
    cut: Cut,
    then_refuse: bool,
    /// All connections of then are held back, and none is cut.
    then_hold: bool,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

impl Proxy {
    /// Starts to forward to `target`, a host and a port.
    pub async fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target: target.into(),
            generation: watch::Sender::new(0),
            held: watch::Sender::new(0),
            is_refusing: AtomicBool::new(false),
            loses_answers: AtomicBool::new(false),
            delay: Mutex::default(),
            trap: Mutex::default(),
            opened: AtomicUsize::new(0),
            round_trips: AtomicUsize::new(0),
        });
        let accepting = spawn(accept(listener, shared.clone()));
        Self { address, shared, accepting }
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.shared.generation.send_modify(|generation| *generation += 1);
    }

    /// Ends all connections and takes no new ones, or takes them again.
    pub fn refuse(&self, is_refusing: bool) {
        self.shared.is_refusing.store(is_refusing, Ordering::Release);
        if is_refusing {
            self.cut();
        }
    }

    /// What the connections of now bring to the server is held back; new connections are not.
    pub fn hold(&self) {
        self.shared.held.send_replace(self.shared.opened.load(Ordering::Acquire));
    }

    /// What was held back goes on, even if its client is gone.
    pub fn release(&self) {
        self.shared.held.send_replace(0);
    }

    /// Everything takes so much longer in each direction.
    pub fn delay(&self, delay: Duration) {
        *self.shared.delay.lock() = delay;
    }

    /// Cuts the connection that next brings these bytes to the server.
    pub fn cut_at(&self, bytes: &[u8], cut: Cut) {
        *self.shared.trap.lock() = Some(Trap { bytes: bytes.into(), cut, then_refuse: false, then_hold: false });
    }

    /// Like [`Proxy::cut_at`], and from then on the server cannot be reached.
    pub fn vanish_at(&self, bytes: &[u8], cut: Cut) {
        *self.shared.trap.lock() = Some(Trap { bytes: bytes.into(), cut, then_refuse: true, then_hold: false });
    }

    /// Holds these bytes back when they next come, and all that comes after them on the connections of then.
    pub fn hold_at(&self, bytes: &[u8]) {
        *self.shared.trap.lock() =
            Some(Trap { bytes: bytes.into(), cut: Cut::Before, then_refuse: false, then_hold: true });
    }

    /// Requests arrive and answers do not: nobody knows what became of them. Answers that were lost do not come back: cut
    /// the connections afterwards.
    pub fn lose_answers(&self) {
        self.shared.loses_answers.store(true, Ordering::Release);
    }

    /// From now on everything goes through as if there were no proxy.
    pub fn calm(&self) {
        *self.shared.trap.lock() = None;
        self.delay(Duration::ZERO);
        self.release();
        self.refuse(false);
        self.shared.loses_answers.store(false, Ordering::Release);
    }

    /// Whether the bytes have come.
    pub fn has_cut(&self) -> bool {
        self.shared.trap.lock().is_none()
    }

    /// Connections that were taken so far.
    pub fn connections(&self) -> usize {
        self.shared.opened.load(Ordering::Acquire)
    }

    /// How often clients have waited for an answer so far.
    pub fn round_trips(&self) -> usize {
        self.shared.round_trips.load(Ordering::Acquire)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        if shared.is_refusing.load(Ordering::Acquire) {
            continue;
        }
        let number = shared.opened.fetch_add(1, Ordering::AcqRel) + 1;
        spawn(forward(client, number, shared.clone()));
    }
}

async fn forward(client: TcpStream, number: usize, shared: Arc<Shared>) {
    let mut generation = shared.generation.subscribe();
    let begun = *generation.borrow_and_update();
    let Ok(server) = TcpStream::connect(&shared.target).await else { return };
    let _may_be_gone = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let line = Line { number, has_answered: AtomicBool::new(true), is_cut: AtomicBool::new(false), shared: &shared };
    let answers = line.answers(from_server, to_client);
    let requests = line.requests(from_client, to_server);
    tokio::pin!(answers, requests);
    let cut = tokio::select! {
        _ = generation.wait_for(|now| *now > begun) => return,
        () = &mut answers => return,
        cut = &mut requests => cut,
    };
    if cut == Some(Cut::After) {
        // The server does its work, and nobody hears of it.
        let _may_have_ended = tokio::time::timeout(DRAIN, &mut answers).await;
    }
}

/// One connection.
struct Line<'s> {
    number: usize,
    /// The server has spoken last.
    has_answered: AtomicBool,
    is_cut: AtomicBool,
    shared: &'s Shared,
}

impl Line<'_> {
    async fn answers(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            wait(self.shared).await;
            self.has_answered.store(true, Ordering::Release);
            let is_lost = self.is_cut.load(Ordering::Acquire) || self.shared.loses_answers.load(Ordering::Acquire);
            if !is_lost && to.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    }

    /// Says how the connection was cut, if it was.
    async fn requests(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> Option<Cut> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut held = self.shared.held.subscribe();
        let mut tail: Vec<u8> = Vec::new();
        loop {
            let Ok(length @ 1..) = from.read(&mut buffer).await else { return None };
            if self.has_answered.swap(false, Ordering::AcqRel) {
                self.shared.round_trips.fetch_add(1, Ordering::AcqRel);
            }
            wait(self.shared).await;
            let cut = spring(self.shared, &mut tail, &buffer[..length]);
            drop(held.wait_for(|held| self.number > *held).await);
            self.is_cut.store(cut.is_some(), Ordering::Release);
            if cut == Some(Cut::Before) || to.write_all(&buffer[..length]).await.is_err() || cut.is_some() {
                return cut;
            }
        }
    }
}

/// Whether these bytes, with those before them, are what a trap was set for. It springs once.
fn spring(shared: &Shared, tail: &mut Vec<u8>, bytes: &[u8]) -> Option<Cut> {
    let mut trap = shared.trap.lock();
    let wanted = trap.as_ref()?.bytes.clone();
    tail.extend_from_slice(bytes);
    let is_there = tail.windows(wanted.len()).any(|window| window == wanted);
    let kept = tail.len().saturating_sub(wanted.len() - 1);
    tail.drain(..kept);
    let sprung = if is_there { trap.take()? } else { return None };
    if sprung.then_refuse {
        shared.is_refusing.store(true, Ordering::Release);
        shared.generation.send_modify(|generation| *generation += 1);
    }
    if sprung.then_hold {
        shared.held.send_replace(shared.opened.load(Ordering::Acquire));
        return None;
    }
    Some(sprung.cut)
}

async fn wait(shared: &Shared) {
    let delay = *shared.delay.lock();
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}
