use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use flare_core::egress::{Egress, Target};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::*;

const OPEN: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const CLOSED: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// A server that gives one answer to everything, and counts its connections.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Server {
    async fn start(address: &str, answer: &'static str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                serving.spawn(serve(stream, answer));
            }
        });
        Self { address, connections, _task: task }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(mut stream: TcpStream, answer: &'static str) {
    let mut buffer = [0; 4096];
    // The requests of these tests are without a body and fit into one packet.
    while matches!(stream.read(&mut buffer).await, Ok(count) if count > 0) {
        if stream.write_all(answer.as_bytes()).await.is_err() || answer == CLOSED {
            return;
        }
    }
}

/// Gives its answers one after the other, as an attacker's DNS does.
#[derive(Default)]
struct Hostile {
    answers: Mutex<Vec<Vec<IpAddr>>>,
    asked: AtomicUsize,
}

impl Hostile {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |answer: &&[&str]| answer.iter().map(|ip| ip.parse().unwrap()).collect();
        let answers = Mutex::new(answers.iter().rev().map(parse).collect());
        Arc::new(Self { answers, asked: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl Resolve for Hostile {
    async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(self.answers.lock().pop().unwrap_or_default())
    }
}

/// Stands for a public address that a test can listen on; 127.0.0.1 is what must not be reached.
const PUBLIC: &str = "127.0.0.2";

#[allow(clippy::needless_pass_by_value, reason = "the resolvers of the tests become trait objects here")]
fn client(resolver: Arc<dyn Resolve>, allow: &[&str]) -> Client {
    let allow: Vec<Target> = allow.iter().map(|entry| entry.parse().unwrap()).collect();
    let egress = Arc::new(Egress::new(allow, Vec::new(), false));
    let settings = Settings { egress, connect_timeout: Duration::from_secs(5), ..Settings::default() };
    Client::resolving_by(&resolver, &settings, &Supervisor::default()).unwrap()
}

async fn get(client: &Client, url: &str) -> Result<u16, String> {
    let request = Request::get(url).body(Full::new(Bytes::new())).unwrap();
    client.send(request).await.map(|parts| parts.status.as_u16())
}

#[tokio::test]
async fn a_name_that_is_bound_anew_is_refused() {
    let public = Server::start(&format!("{PUBLIC}:0"), CLOSED).await;
    let port = public.address.port();
    let inner = Server::start(&format!("127.0.0.1:{port}"), CLOSED).await;
    let resolver = Hostile::new(&[&[PUBLIC], &["127.0.0.1"], &[PUBLIC]]);
    let client = client(resolver.clone(), &[PUBLIC]);
    let url = format!("http://rebinding.test:{port}/");
    assert_eq!(get(&client, &url).await, Ok(200));
    assert_eq!(resolver.asked.load(Ordering::SeqCst), 1, "what was checked is what is connected to");
    let refused = get(&client, &url).await.unwrap_err();
    assert_eq!(
        refused,
        "the address 127.0.0.1 of rebinding.test is not allowed: it is loopback (127.0.0.0/8); the operator can allow \
         it in delivery.allow"
    );
    assert_eq!(get(&client, &url).await, Ok(200));
    assert_eq!((public.connections(), inner.connections()), (2, 0));
}

#[tokio::test]
async fn a_pooled_connection_needs_no_second_resolution() {
    let public = Server::start(&format!("{PUBLIC}:0"), OPEN).await;
    let resolver = Hostile::new(&[&[PUBLIC], &["127.0.0.1"]]);
    let client = client(resolver.clone(), &[PUBLIC]);
    let url = format!("http://rebinding.test:{}/", public.address.port());
    for _ in 0..3 {
        assert_eq!(get(&client, &url).await, Ok(200));
    }
    assert_eq!((public.connections(), resolver.asked.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn of_mixed_answers_only_the_allowed_are_connected_to() {
    let public = Server::start(&format!("{PUBLIC}:0"), CLOSED).await;
    let port = public.address.port();
    let inner = Server::start(&format!("127.0.0.1:{port}"), CLOSED).await;
    let resolver = Hostile::new(&[
        &["127.0.0.1", "169.254.169.254", PUBLIC, "::1"],
        &["::1", "127.0.0.1", PUBLIC],
        &["10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"],
        &[],
    ]);
    let client = client(resolver, &[PUBLIC]);
    let url = format!("http://mixed.test:{port}/");
    assert_eq!(get(&client, &url).await, Ok(200));
    assert_eq!(get(&client, &url).await, Ok(200));
    let refused = get(&client, &url).await.unwrap_err();
    assert!(refused.starts_with("the address 10.0.0.1 of mixed.test is not allowed: it is private"), "{refused}");
    let empty = get(&client, &url).await.unwrap_err();
    assert!(empty.contains("mixed.test has no addresses"), "{empty}");
    assert_eq!((public.connections(), inner.connections()), (2, 0));
}

#[tokio::test]
async fn no_spelling_of_an_address_gets_around_the_rule() {
    let inner = Server::start("127.0.0.1:0", OPEN).await;
    let port = inner.address.port();
    let hosts = [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "017700000001",
        "localhost",
        "LOCALHOST",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
    ];
    // Some address is allowed, so that the rule has to see where a name leads.
    let guarded = client(Arc::new(SystemResolver), &["10.0.0.0/8"]);
    for host in hosts.into_iter().chain(["0.0.0.0", "0", "[::]", "[::1]", "[::127.0.0.1]"]) {
        for scheme in ["http", "https"] {
            let refused = get(&guarded, &format!("{scheme}://{host}:{port}/")).await.unwrap_err();
            // No certificate can be for some of the spellings, which is found out first.
            let is_clear = refused.contains("is not allowed") || refused.contains("invalid dns name");
            assert!(is_clear, "{scheme}://{host}: {refused}");
        }
    }
    assert_eq!(inner.connections(), 0);
    // The spellings do lead there: without the rule each of them would be answered.
    let open = client(Arc::new(SystemResolver), &["127.0.0.1", "::1"]);
    for host in hosts {
        assert_eq!(get(&open, &format!("http://{host}:{port}/")).await, Ok(200), "{host}");
    }
}

#[tokio::test]
async fn plain_http_is_refused_before_anything_is_resolved() {
    let resolver = Hostile::new(&[&["1.1.1.1"]]);
    let refused = get(&client(resolver.clone(), &["other.test"]), "http://hooks.test/").await.unwrap_err();
    assert!(refused.starts_with("http:// is not allowed to the host hooks.test: use https://"), "{refused}");
    assert_eq!(resolver.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn plain_http_to_a_public_address_is_refused() {
    let resolver = Hostile::new(&[&["1.1.1.1"]]);
    let refused = get(&client(resolver, &["10.0.0.0/8"]), "http://hooks.test/").await.unwrap_err();
    assert!(refused.starts_with("http:// is not allowed to the address 1.1.1.1 of hooks.test"), "{refused}");
}

#[tokio::test]
async fn a_listed_name_may_lead_anywhere() {
    let inner = Server::start("127.0.0.1:0", OPEN).await;
    let url = |host: &str| format!("http://{host}:{}/", inner.address.port());
    let resolver = Hostile::new(&[&["127.0.0.1"], &["127.0.0.1"], &["127.0.0.1"]]);
    let client = client(resolver, &["hooks.internal", "*.company.internal"]);
    assert_eq!(get(&client, &url("hooks.internal")).await, Ok(200));
    assert_eq!(get(&client, &url("a.company.internal")).await, Ok(200));
    assert!(get(&client, &url("company.internal")).await.is_err());
}
