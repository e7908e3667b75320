//! A client of Flare: an HTTP server that records what arrives and answers as the scenario says.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::delivery::{Delivery, Records};
use crate::wait::WAIT_MAX;

/// How a request is answered.
#[derive(Clone)]
pub enum Reply {
    /// At once, with this status.
    Status(u16),
    /// At once, with this status and header.
    Header(u16, &'static str, String),
    /// With this status, after this time.
    After(Duration, u16),
    /// With this status, once the gate is open.
    Behind(Gate, u16),
    /// Not at all: the connection is reset.
    Reset,
    /// With 200 and a body of so many bytes.
    Huge(u64),
    /// With 200 and a body that comes byte by byte, one per so much time, and never ends.
    Drip(Duration),
}

/// Holds requests back until it is opened.
#[derive(Clone)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    pub fn closed() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    async fn passed(&self) {
        // The sender lives in this gate, so the wait cannot fail.
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

/// The receiver. It ends, and its connections with it, when it is dropped.
pub struct Receiver {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    records: Mutex<Records>,
    arrivals: watch::Sender<usize>,
    replies: Mutex<Replies>,
    connections: AtomicU64,
    body_bytes: AtomicU64,
}

#[derive(Default)]
struct Replies {
    in_turn: HashMap<String, VecDeque<Reply>>,
    always: HashMap<String, Reply>,
}

impl Replies {
    /// What was scripted for the path, then its constant reply, then 200.
    fn next(&mut self, path: &str) -> Reply {
        let scripted = self.in_turn.get_mut(path).and_then(VecDeque::pop_front);
        scripted.or_else(|| self.always.get(path).cloned()).unwrap_or(Reply::Status(200))
    }
}

impl Receiver {
    pub async fn start() -> Self {
        Self::on("127.0.0.1:0".parse().unwrap()).await
    }

    /// Listens on an address that was used before.
    pub async fn on(addr: SocketAddr) -> Self {
        let listener = TcpListener::bind(addr).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let mut server = JoinSet::new();
        server.spawn(accept(listener, Arc::clone(&shared)));
        Self { addr, shared, _server: server }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL of a path of this receiver.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// Answers every request at a path so, from now on.
    pub fn reply(&self, path: &str, reply: Reply) {
        self.shared.replies.lock().unwrap().always.insert(path.to_owned(), reply);
    }

    /// Answers the next requests at a path so, one after the other; later ones as before.
    pub fn reply_in_turn(&self, path: &str, replies: impl IntoIterator<Item = Reply>) {
        self.shared.replies.lock().unwrap().in_turn.entry(path.to_owned()).or_default().extend(replies);
    }

    pub fn records(&self) -> MutexGuard<'_, Records> {
        self.shared.records.lock().unwrap()
    }

    /// How many connections were made so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many bytes of huge bodies the sockets have taken so far.
    pub fn body_bytes(&self) -> u64 {
        self.shared.body_bytes.load(Ordering::SeqCst)
    }

    /// Waits until what arrived is as told.
    #[track_caller]
    pub fn wait(&self, what: &str, done: impl Fn(&Records) -> bool) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        async move {
            let mut arrivals = self.shared.arrivals.subscribe();
            let waiting = async {
                loop {
                    arrivals.mark_unchanged();
                    if done(&self.records()) {
                        return;
                    }
                    arrivals.changed().await.expect("the receiver lives as long as the wait");
                }
            };
            if tokio::time::timeout(WAIT_MAX, waiting).await.is_err() {
                panic!("{place}: did not arrive within {WAIT_MAX:?}: {what}\n{}", self.records().summary());
            }
        }
    }

    /// Waits until this revision of a document, or a newer one, has arrived at a path.
    #[track_caller]
    pub fn wait_revision(&self, path: &str, url: &str, revision: i64) -> impl Future<Output = ()> {
        let what = format!("revision {revision} of {url} at {path}");
        let (path, url) = (path.to_owned(), url.to_owned());
        let wait = move |records: &Records| records.newest(&path, &url) >= Some(revision);
        let place = std::panic::Location::caller();
        async move { self.wait(&format!("{what} (asked at {place})"), wait).await }
    }

    /// Fails the scenario if an older revision of a document arrived after a newer one.
    #[track_caller]
    pub fn expect_never_backwards(&self) {
        let backwards = self.records().backwards();
        assert!(backwards.is_empty(), "{} documents went backwards: {:?}", backwards.len(), &backwards);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(serve(stream, Arc::clone(&shared)));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let connection = shared.connections.fetch_add(1, Ordering::SeqCst);
    let reset = Arc::new(AtomicBool::new(false));
    let io = Resettable { stream, reset: Arc::clone(&reset) };
    let service = service_fn(|request| answer(request, connection, Arc::clone(&shared), Arc::clone(&reset)));
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(io), service).await;
}

type Body = BoxBody<Bytes, Infallible>;

async fn answer(
    request: Request<Incoming>,
    connection: u64,
    shared: Arc<Shared>,
    reset: Arc<AtomicBool>,
) -> Result<Response<Body>, Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(Error::other)?.to_bytes();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let reply = shared.replies.lock().unwrap().next(&path);
    let envelope = serde_json::from_slice(&body).ok();
    let at = Instant::now();
    let (method, headers) = (head.method, head.headers);
    shared.records.lock().unwrap().add(Delivery { at, connection, method, path, headers, body, envelope });
    shared.arrivals.send_modify(|arrivals| *arrivals += 1);

    let status = match reply {
        Reply::Status(status) => status,
        Reply::Header(status, name, value) => {
            let mut response = empty(status);
            response.headers_mut().insert(name, HeaderValue::from_str(&value).unwrap());
            return Ok(response);
        }
        Reply::After(time, status) => {
            tokio::time::sleep(time).await;
            status
        }
        Reply::Behind(gate, status) => {
            gate.passed().await;
            status
        }
        Reply::Reset => {
            reset.store(true, Ordering::SeqCst);
            return Err(Error::new(ErrorKind::ConnectionReset, "as the scenario says"));
        }
        Reply::Huge(bytes) => return Ok(Response::new(body_of(huge(bytes, shared)))),
        Reply::Drip(every) => return Ok(Response::new(body_of(drip(every)))),
    };
    Ok(empty(status))
}

fn empty(status: u16) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::new()).boxed());
    *response.status_mut() = status.try_into().unwrap();
    response
}

fn body_of(chunks: impl Stream<Item = Bytes> + Send + Sync + 'static) -> Body {
    BodyExt::boxed(StreamBody::new(chunks.map(|chunk| Ok(Frame::data(chunk)))))
}

/// Made piece by piece, as fast as the socket takes it.
fn huge(bytes: u64, shared: Arc<Shared>) -> impl Stream<Item = Bytes> + Send + Sync {
    const PIECE: Bytes = Bytes::from_static(&[b'x'; 16 << 10]);
    let pieces = bytes.div_ceil(PIECE.len() as u64);
    stream::iter(0..pieces).map(move |_| {
        shared.body_bytes.fetch_add(PIECE.len() as u64, Ordering::SeqCst);
        PIECE
    })
}

fn drip(every: Duration) -> impl Stream<Item = Bytes> + Send + Sync {
    stream::unfold((), move |()| async move {
        tokio::time::sleep(every).await;
        Some((Bytes::from_static(b"."), ()))
    })
}

/// A connection that is reset instead of closed, if the flag is set when it is dropped.
struct Resettable {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for Resettable {
    fn drop(&mut self) {
        if self.reset.load(Ordering::SeqCst) {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Resettable {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Resettable {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize, Error>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
