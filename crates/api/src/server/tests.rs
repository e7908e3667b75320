//! The server over real sockets: limits, timeouts, and its end.

use std::{net::SocketAddr, time::Duration};

use axum::body::Body;
use flare_core::{
    change::{ChangeRule, FieldPath},
    pattern::Pattern,
    revision::RevisionFormat,
};
use flare_node::NewStream;
use http::Request;
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout},
};

use super::*;
use crate::tests::lab;

struct Running {
    addr: SocketAddr,
    stop: CancellationToken,
    supervisor: Supervisor,
}

const BRIEF: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(20);

async fn start(settings: ApiSettings) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (addr, stop, supervisor) = (listener.local_addr().unwrap(), CancellationToken::new(), Supervisor::default());
    let node = lab::node().await;
    let endpoint = Pattern::parse("http://api/u/{id}").unwrap();
    let change = ChangeRule { field: FieldPath::parse("version").unwrap(), format: RevisionFormat::Integer };
    node.create_stream(NewStream { endpoint, change }, None).await.unwrap();
    let (spawner, until) = (supervisor.clone(), stop.clone());
    supervisor.spawn("server", Failure::StopsNode, async move {
        serve(node, settings, vec![listener], &spawner, until).await;
    });
    Running { addr, stop, supervisor }
}

impl Running {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }

    /// Says all of it, then hears all of it until the server closes.
    async fn talk(&self, text: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        hear(&mut stream).await
    }
}

async fn hear(stream: &mut TcpStream) -> String {
    let mut heard = Vec::new();
    timeout(LONG, stream.read_to_end(&mut heard)).await.expect("the server closes").unwrap();
    String::from_utf8(heard).unwrap()
}

/// One answer of a connection that stays open.
async fn hear_one(stream: &mut TcpStream) -> String {
    let mut heard = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&heard).contains("\r\n\r\n") {
        let bytes = timeout(LONG, stream.read(&mut buffer)).await.expect("an answer").unwrap();
        assert!(bytes > 0, "closed after {:?}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&buffer[..bytes]);
    }
    String::from_utf8(heard).unwrap()
}

fn code_of(answer: &str) -> (&str, &str) {
    let status = answer.split(' ').nth(1).unwrap_or_default();
    let code = answer.split("\"code\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
    (status, code)
}

const PUT: &str = "PUT /documents/http://api/u/1 HTTP/1.1\r\nhost: localhost\r\n";

#[tokio::test]
async fn a_body_that_is_announced_too_large_is_refused_at_once() {
    let running = start(ApiSettings::default()).await;
    let answer = running.talk(&format!("{PUT}content-length: 1000000000000\r\n\r\n")).await;
    assert_eq!(code_of(&answer), ("413", "request.too-large"), "{answer}");
}

#[tokio::test]
async fn a_body_without_length_is_cut_at_the_limit() {
    let running = start(ApiSettings { body_bytes_max: 1000, ..ApiSettings::default() }).await;
    let mut stream = running.connect().await;
    stream.write_all(format!("{PUT}transfer-encoding: chunked\r\n\r\n").as_bytes()).await.unwrap();
    let chunk = format!("1f4\r\n{}\r\n", "x".repeat(500));
    // The third chunk is past the limit; more is sent than is ever read.
    for _ in 0..200 {
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    let answer = hear_one(&mut stream).await;
    assert_eq!(code_of(&answer), ("413", "request.too-large"), "{answer}");
}

#[tokio::test]
async fn a_client_that_waits_for_a_continue_is_told_before_it_sends() {
    let running = start(ApiSettings::default()).await;
    let head = format!("{PUT}expect: 100-continue\r\nconnection: close\r\n");
    let answer = running.talk(&format!("{head}content-length: 99999999\r\n\r\n")).await;
    assert_eq!(code_of(&answer), ("413", "request.too-large"), "{answer}");
    let mut stream = running.connect().await;
    stream.write_all(format!("{head}content-length: 13\r\n\r\n").as_bytes()).await.unwrap();
    assert!(hear_one(&mut stream).await.starts_with("HTTP/1.1 100"));
    stream.write_all(b"{\"version\":1}").await.unwrap();
    assert!(hear(&mut stream).await.starts_with("HTTP/1.1 202"));
}

#[tokio::test]
async fn a_slow_body_is_given_up() {
    let running = start(ApiSettings { read_timeout: BRIEF, ..ApiSettings::default() }).await;
    let answer = running.talk(&format!("{PUT}content-length: 13\r\n\r\n{{\"ver")).await;
    assert_eq!(code_of(&answer), ("408", "request.too-slow"), "{answer}");
}

#[tokio::test]
async fn a_body_that_trickles_has_an_end_too() {
    let settings = ApiSettings { read_timeout: Duration::from_secs(5), body_timeout: BRIEF, ..ApiSettings::default() };
    let running = start(settings).await;
    let mut stream = running.connect().await;
    stream.write_all(format!("{PUT}content-length: 1000\r\n\r\n").as_bytes()).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let mut heard = String::new();
    let trickle = async {
        while writer.write_all(b" ").await.is_ok() {
            sleep(BRIEF / 10).await;
        }
    };
    let answer = timeout(LONG, reader.read_to_string(&mut heard));
    tokio::select! { _ = answer => {}, () = trickle => {} }
    assert_eq!(code_of(&heard), ("408", "request.too-slow"), "{heard}");
}

#[tokio::test]
async fn a_slow_head_costs_the_connection_and_a_quiet_one_may_stay() {
    let settings = ApiSettings { read_timeout: BRIEF, idle_timeout: Duration::from_secs(30), ..ApiSettings::default() };
    let running = start(settings).await;
    let begun = Instant::now();
    assert_eq!(running.talk("GET / HTTP/1.1\r\nhost: loc").await, "");
    assert!(begun.elapsed() >= BRIEF);
    // After an answer the connection is idle, which may last longer than a head.
    let mut stream = running.connect().await;
    for _ in 0..2 {
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        assert!(hear_one(&mut stream).await.starts_with("HTTP/1.1 200"));
        sleep(BRIEF * 3).await;
    }
    // A second head that does not come to an end is too slow as well.
    stream.write_all(b"GET / HT").await.unwrap();
    assert_eq!(hear(&mut stream).await, "");
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let running = start(ApiSettings { idle_timeout: BRIEF, ..ApiSettings::default() }).await;
    let mut stream = running.connect().await;
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let begun = Instant::now();
    assert!(hear(&mut stream).await.starts_with("HTTP/1.1 200"));
    assert!((BRIEF..LONG / 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn large_heads_are_refused() {
    let running = start(ApiSettings::default()).await;
    let head = |bytes: usize| {
        format!("GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-a: {}\r\n\r\n", "x".repeat(bytes))
    };
    let answer = running.talk(&head(20 << 10)).await;
    assert_eq!(code_of(&answer), ("431", "request.headers-too-large"), "{answer}");
    assert_eq!(code_of(&running.talk(&head(200 << 10)).await).0, "431");
    let long = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", "x".repeat(5000));
    let answer = running.talk(&long).await;
    assert_eq!(code_of(&answer), ("414", "request.url-too-long"), "{answer}");
}

#[tokio::test]
async fn past_the_cap_a_connection_is_told_so_and_closed() {
    let running = start(ApiSettings { connections_max: 2, ..ApiSettings::default() }).await;
    let hello = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = running.connect().await;
        stream.write_all(hello).await.unwrap();
        assert!(hear_one(&mut stream).await.starts_with("HTTP/1.1 200"));
        held.push(stream);
    }
    let mut refused = running.connect().await;
    refused.write_all(hello).await.unwrap();
    let answer = hear(&mut refused).await;
    assert_eq!(code_of(&answer), ("503", "server.busy"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    let body = answer.split("\r\n\r\n").nth(1).unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(body).is_ok(), "{body}");
    drop(held);
    // A place becomes free as soon as the server has seen the end.
    for _ in 0..100 {
        let mut stream = running.connect().await;
        stream.write_all(hello).await.unwrap();
        if hear_one(&mut stream).await.starts_with("HTTP/1.1 200") {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("no place became free");
}

#[tokio::test]
async fn a_stop_waits_for_the_request_in_flight_only() {
    let running = start(ApiSettings::default()).await;
    let mut idle = running.connect().await;
    idle.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    hear_one(&mut idle).await;
    let mut fresh = running.connect().await;
    let mut busy = running.connect().await;
    busy.write_all(format!("{PUT}content-length: 13\r\n\r\n{{\"ver").as_bytes()).await.unwrap();
    sleep(BRIEF).await;
    running.stop.cancel();
    assert_eq!(hear(&mut idle).await, "");
    assert_eq!(hear(&mut fresh).await, "");
    assert!(TcpStream::connect(running.addr).await.is_err());
    busy.write_all(b"sion\":1}").await.unwrap();
    let answer = hear(&mut busy).await;
    assert!(answer.starts_with("HTTP/1.1 202") && answer.contains("connection: close"), "{answer}");
    running.supervisor.finish(LONG).await;
}

#[tokio::test]
async fn a_request_that_never_ends_is_cut_after_the_grace_period() {
    let running = start(ApiSettings { grace: BRIEF, ..ApiSettings::default() }).await;
    let mut busy = running.connect().await;
    busy.write_all(format!("{PUT}content-length: 13\r\n\r\n{{\"ver").as_bytes()).await.unwrap();
    sleep(BRIEF).await;
    let begun = Instant::now();
    running.stop.cancel();
    let mut heard = Vec::new();
    let _ = timeout(LONG, busy.read_to_end(&mut heard)).await.expect("the server closes");
    assert!(heard.is_empty() && begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    running.supervisor.finish(LONG).await;
}

#[tokio::test]
async fn http2_is_spoken_on_the_same_port() {
    let running = start(ApiSettings::default()).await;
    let io = TokioIo::new(running.connect().await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    running.supervisor.spawn("client", Failure::IsLogged, async move { drop(connection.await) });
    let uri = format!("http://{}/documents/http://api/u/1", running.addr);
    let put = Request::put(&uri).body(Body::from(r#"{"version":1}"#)).unwrap();
    assert_eq!(sender.send_request(put).await.unwrap().status(), 202);
    let got = sender.send_request(Request::get(&uri).body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(got.into_body().collect().await.unwrap().to_bytes(), r#"{"version":1}"#);
    let huge = Request::put(&uri).body(Body::from(vec![b'x'; 2 << 20])).unwrap();
    assert_eq!(sender.send_request(huge).await.unwrap().status(), 413);
}
