//! A delivery as it is shown: for people on several lines, for programs on one.

use std::fmt::Write;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use jiff::Timestamp;
use serde_json::Value;

use crate::json;
use crate::terminal::harmless;

/// How much of a body people are shown.
const BODY_SHOWN_BYTES_MAX: usize = 64 << 10;

/// A request that was received, and what is answered to it.
#[derive(Debug)]
pub struct Delivery {
    /// When it had arrived.
    pub at: Timestamp,
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub path: String,
    /// All of its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// What was found out about its signature, if that was asked for.
    pub signature: Option<Result<(), String>>,
    /// Which attempt of its message this is, from 1.
    pub attempt: u32,
    /// What is answered.
    pub answered: StatusCode,
}

impl Delivery {
    /// The delivery for people.
    pub fn lines(&self) -> String {
        let mut lines = format!(
            "{} {} {} → {}",
            self.at.strftime("%H:%M:%S%.3fZ"),
            self.method,
            harmless(&self.path),
            self.answered.as_u16()
        );
        if self.attempt > 1 {
            let _ = write!(lines, " (attempt {})", self.attempt);
        }
        for (name, value) in &self.headers {
            if matters(name.as_str()) {
                let value = String::from_utf8_lossy(value.as_bytes());
                let _ = write!(lines, "\n  {name}: {}", harmless(&value));
            }
        }
        match &self.signature {
            Some(Ok(())) => lines.push_str("\n  signature ok"),
            Some(Err(reason)) => {
                let _ = write!(lines, "\n  signature WRONG: {reason}");
            }
            None => (),
        }
        for line in harmless(&self.shown_body()).lines() {
            let _ = write!(lines, "\n  {line}");
        }
        lines.push('\n');
        lines
    }

    /// The body laid out, or only the beginning of a large one.
    fn shown_body(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self.body.len().checked_sub(BODY_SHOWN_BYTES_MAX) {
            None | Some(0) => json::pretty(&self.body).unwrap_or_else(|| text(&self.body)),
            Some(more) => format!("{}\n… and {more} bytes more", text(&self.body[..BODY_SHOWN_BYTES_MAX])),
        }
    }

    /// The delivery for programs: one JSON object on one line. A body that is not JSON becomes a string.
    pub fn json_line(&self) -> String {
        let text = |text: &str| Value::from(text).to_string();
        let mut headers = serde_json::Map::new();
        for name in self.headers.keys() {
            let values: Vec<_> =
                self.headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
            headers.insert(name.to_string(), values.join(", ").into());
        }
        let body = if self.body.is_empty() { Some("null".to_owned()) } else { json::compact(&self.body) };
        let body = body.unwrap_or_else(|| text(&String::from_utf8_lossy(&self.body)));
        let signature = match &self.signature {
            None => "null".to_owned(),
            Some(Ok(())) => text("ok"),
            Some(Err(reason)) => text(&format!("wrong: {reason}")),
        };
        format!(
            r#"{{"at":"{:.3}","method":{},"path":{},"headers":{},"body":{body},"signature":{signature},"attempt":{},"answered":{}}}"#,
            self.at,
            text(self.method.as_str()),
            text(&self.path),
            Value::Object(headers),
            self.attempt,
            self.answered.as_u16()
        )
    }
}

/// Whether a person wants to see the header.
fn matters(name: &str) -> bool {
    let prefixes = ["webhook-", "flare-", "ce-"];
    name == "content-type" || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(body: &'static [u8]) -> Delivery {
        let mut headers = HeaderMap::new();
        headers.insert("host", "127.0.0.1:9000".parse().unwrap());
        headers.insert("content-type", "application/json".parse().unwrap());
        headers.insert("webhook-id", "msg_1".parse().unwrap());
        headers.append("flare-test", "a".parse().unwrap());
        headers.append("flare-test", "b\"".parse().unwrap());
        Delivery {
            at: Timestamp::UNIX_EPOCH,
            method: Method::POST,
            path: "/users/1?x=\"y\"".to_owned(),
            headers,
            body: Bytes::from_static(body),
            signature: Some(Ok(())),
            attempt: 1,
            answered: StatusCode::OK,
        }
    }

    #[test]
    fn people_see_what_matters() {
        insta::assert_snapshot!(delivery(br#"{"id":1,"a":[1.0,{"b":"c"}]}"#).lines());
        let mut plain = delivery(b"not json \x1b[1m\nline 2");
        plain.signature = Some(Err("no".to_owned()));
        plain.answered = StatusCode::UNAUTHORIZED;
        plain.attempt = 2;
        insta::assert_snapshot!(plain.lines());
        let large = delivery(&[b'x'; BODY_SHOWN_BYTES_MAX + 7]).lines();
        assert!(large.ends_with("xxx\n  … and 7 bytes more\n"));
    }

    #[test]
    fn programs_see_everything_on_one_line() {
        let check = |body: &'static [u8], expected: &str| {
            let line = delivery(body).json_line();
            assert!(!line.contains('\n'));
            assert!(line.contains(&format!("\"body\":{expected},")), "{line}");
            let value: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(value["headers"]["flare-test"], "a, b\"");
            assert_eq!(value["at"], "1970-01-01T00:00:00.000Z");
            assert_eq!(value["signature"], "ok");
            assert_eq!(value["answered"], 200);
        };
        check(b"{\"b\": 1.50,\n \"a\": 2}", "{\"b\":1.50,\"a\":2}");
        check(b"", "null");
        check(b"plain\n\xff", "\"plain\\n\u{fffd}\"");
    }
}
