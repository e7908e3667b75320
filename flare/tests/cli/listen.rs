//! `flare listen`, with a client that speaks HTTP by hand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::{Ran, flare, ran};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A receiver that runs, and where.
struct Listener {
    child: Child,
    addr: String,
    /// What it wrote while it was waited for.
    head: String,
}

impl Listener {
    fn start(arguments: &[&str]) -> Self {
        let json = arguments.contains(&"--json");
        let mut child = flare(&["listen", "127.0.0.1:0"]).args(arguments).spawn().unwrap();
        // Read byte by byte, so that nothing behind the line is lost in a buffer.
        let mut head = String::new();
        let stream: &mut dyn Read = if json { child.stderr.as_mut().unwrap() } else { child.stdout.as_mut().unwrap() };
        BufReader::with_capacity(1, stream).read_line(&mut head).unwrap();
        let addr = head.trim_end().strip_prefix("listening on http://").unwrap().to_owned();
        Self { child, addr, head }
    }

    /// Sends a POST and returns the status of the answer.
    fn post(&self, path: &str, headers: &str, body: &str) -> u16 {
        let mut stream = TcpStream::connect(&self.addr).unwrap();
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: {}\r\n{headers}content-length: {length}\r\n", self.addr);
        write!(stream, "{head}connection: close\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap()
    }

    /// Waits for its end; needs `--count`.
    fn finish(self) -> Ran {
        ran(self.child.wait_with_output().unwrap())
    }
}

/// The headers of a signed delivery.
fn signed(id: &str, body: &str, age_seconds: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - age_seconds;
    let key = BASE64_STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let tag = hmac::sign(&key, format!("{id}.{now}.{body}").as_bytes());
    let signature = BASE64_STANDARD.encode(tag.as_ref());
    format!("webhook-id: {id}\r\nwebhook-timestamp: {now}\r\nwebhook-signature: v1,AAAA v1,{signature}\r\n")
}

#[test]
fn a_delivery_is_shown_readably() {
    let listener = Listener::start(&["--count", "1", "--status", "202"]);
    let headers = "content-type: application/json\r\nx-other: 1\r\nflare-action: create\r\nwebhook-id: m1\r\n";
    assert_eq!(listener.post("/users/1?a=b", headers, r#"{"id":1,"name":"Ana"}"#), 202);
    let out = listener.finish().succeeded();
    let (time, rest) = out.split_once(' ').unwrap();
    assert_eq!(time.len(), "12:34:56.789Z".len(), "{out}");
    insta::assert_snapshot!(rest);
}

#[test]
fn deliveries_are_lines_of_json() {
    let listener = Listener::start(&["--count", "2", "--json"]);
    assert_eq!(listener.post("/a", "X-Other: 1\r\n", "{\"b\": 1,\n\"a\": 2}"), 200);
    assert_eq!(listener.post("/b", "", ""), 200);
    let ran = listener.finish();
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), "received 2 deliveries\n"));
    let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[0]["method"], &lines[0]["path"]), (&"POST".into(), &"/a".into()));
    assert_eq!((&lines[0]["headers"]["x-other"], &lines[0]["answered"]), (&"1".into(), &200.into()));
    assert_eq!(lines[0]["body"], serde_json::json!({"a": 2, "b": 1}));
    assert_eq!((&lines[1]["body"], &lines[1]["signature"]), (&Value::Null, &Value::Null));
}

#[test]
fn signatures_are_checked() {
    let listener = Listener::start(&["--count", "4", "--json", "--secret", "whsec_AAAA", "--secret", SECRET]);
    let body = "{\"é\":1}";
    assert_eq!(listener.post("/", &signed("m1", body, 0), body), 200);
    assert_eq!(listener.post("/", &signed("m2", body, 0), "{}"), 401);
    assert_eq!(listener.post("/", &signed("m3", body, 400), body), 401);
    assert_eq!(listener.post("/", "", body), 401);
    let out = listener.finish().out;
    let signatures: Vec<String> = out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["signature"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(signatures[0], "ok");
    assert_eq!(signatures[1], "wrong: no signature matches the secret and the body");
    assert!(signatures[2].starts_with("wrong: it was signed 40"), "{}", signatures[2]);
    assert_eq!(signatures[3], "wrong: the header webhook-id is missing");
}

#[test]
fn people_see_whether_the_signature_is_right() {
    let listener = Listener::start(&["--count", "2", "--secret", SECRET]);
    assert_eq!(listener.post("/", &signed("m1", "{}", 0), "{}"), 200);
    assert_eq!(listener.post("/", "", "{}"), 401);
    let out = listener.finish().succeeded();
    assert!(out.contains("\n  signature ok\n"), "{out}");
    assert!(out.contains("\n  signature WRONG: the header webhook-id is missing\n"), "{out}");
}

#[test]
fn the_first_attempts_of_each_message_fail() {
    let listener = Listener::start(&["--quiet", "--count", "6", "--fail-first", "2", "--fail-status", "503"]);
    let answers = ["a", "a", "b", "a", "b", "b"].map(|id| listener.post("/", &format!("webhook-id: {id}\r\n"), ""));
    assert_eq!(answers, [503, 503, 503, 200, 503, 200]);
    assert_eq!(listener.finish().succeeded(), "received 6 deliveries\n");
}

#[test]
fn an_answer_can_take_its_time() {
    let listener = Listener::start(&["--quiet", "--count", "1", "--delay", "300ms"]);
    let begun = std::time::Instant::now();
    assert_eq!(listener.post("/", "", ""), 200);
    assert!(begun.elapsed().as_millis() >= 300);
}

#[test]
fn a_body_that_is_too_large_is_cut() {
    let listener = Listener::start(&["--quiet"]);
    let mut stream = TcpStream::connect(&listener.addr).unwrap();
    let head = "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 99999999999\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = vec![b'x'; 1 << 20];
    // The receiver stops reading past its limit and closes, so that a write fails sooner or later.
    let sent = (0..4096).take_while(|_| stream.write_all(&chunk).is_ok()).count();
    assert!((16..4096).contains(&sent), "{sent}");
    stop(listener);
}

#[test]
fn an_interrupt_ends_it_with_a_count() {
    let listener = Listener::start(&["--delay", "1m", "--quiet"]);
    let stream = TcpStream::connect(&listener.addr).unwrap();
    write!(&stream, "POST / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    // An answer under way with a long delay does not hold it up.
    let ran = stop(listener);
    assert_eq!(ran.code, Some(0));
    assert!(ran.out.starts_with("received "), "{}", ran.out);
}

#[test]
fn an_address_in_use_is_told() {
    let listener = Listener::start(&["--quiet"]);
    assert!(listener.head.starts_with("listening on http://127.0.0.1:"));
    let err = super::run(&mut flare(&["listen", &listener.addr])).failed(1);
    assert!(err.starts_with(&format!("error: cannot listen on {}; choose another address", listener.addr)), "{err}");
    stop(listener);
}

/// Interrupts the receiver as Ctrl-C does.
fn stop(listener: Listener) -> Ran {
    let id = listener.child.id().to_string();
    let status = std::process::Command::new("kill").args(["-INT", &id]).stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
    listener.finish()
}
