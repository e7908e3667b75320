//! A node with its API, and requests to it.

use std::{net::IpAddr, sync::Arc};

use axum::body::Body;
use bytes::Bytes;
use flare_core::port::Store;
use flare_node::{Node, Settings, Supervisor};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{Api, ApiSettings};

pub(crate) const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

pub(crate) struct Lab {
    pub api: Api,
    pub stop: CancellationToken,
}

pub(crate) fn store() -> Store {
    flare_memory::open(&flare_keyvalue::Options::default()).unwrap()
}

pub(crate) async fn node() -> Arc<Node> {
    node_over(store()).await
}

pub(crate) async fn node_over(store: Store) -> Arc<Node> {
    Node::start(store, &Settings::default(), &Supervisor::default()).await.unwrap()
}

impl Lab {
    pub async fn new() -> Self {
        Self::with(ApiSettings::default()).await
    }

    pub async fn with(settings: ApiSettings) -> Self {
        Self::over(node().await, settings)
    }

    pub fn over(node: Arc<Node>, settings: ApiSettings) -> Self {
        let stop = CancellationToken::new();
        Self { api: Api::new(node, settings, Supervisor::default(), stop.clone()), stop }
    }

    pub async fn ask(&self, request: Request<Body>) -> Answer {
        let (head, body) = self.api.answer(request, LOCAL).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: head.status, headers: head.headers, body }
    }

    /// A request as a local client makes it, without anything special.
    pub async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        self.ask(request(method, path).body(Body::from(body.to_owned())).unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "").await
    }

    /// A resource of users with an integer `version`; its id.
    pub async fn resource(&self) -> String {
        let body = r#"{"endpoint":"http://api/users/{id}","change":{"field":"version"}}"#;
        let made = self.send("POST", "/resources", body).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.json()["id"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(path).header("host", "localhost:8080")
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Status and code of an error.
    pub fn error(&self) -> (u16, String) {
        (self.status.as_u16(), self.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
    }

    pub fn detail(&self) -> String {
        self.json()["error"]["detail"].as_str().unwrap_or_default().to_owned()
    }

    /// Status, headers and body, with what differs between runs left out.
    pub fn shown(&self) -> String {
        let mut shown = format!("{}\n", self.status);
        // The length differs with the digits of times.
        for (name, value) in self.headers.iter().filter(|(name, _)| *name != "content-length") {
            shown.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
        }
        if !self.body.is_empty() {
            let mut json = self.json();
            settle(&mut json);
            shown.push_str(&serde_json::to_string_pretty(&json).unwrap());
        }
        without_ids(&shown)
    }
}

/// Replaces times, secrets and process ids.
fn settle(json: &mut Value) {
    match json {
        Value::Array(items) => items.iter_mut().for_each(settle),
        Value::Object(members) => {
            for (name, value) in members {
                match name.as_str() {
                    "pid" | "startTimeEpochSecs" | "currentTimeEpochSecs" => *value = Value::from("[number]"),
                    "uptime" => *value = Value::from("[n]seconds"),
                    _ => settle(value),
                }
            }
        }
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() && text.len() > 20 => {
            *text = "[time]".to_owned()
        }
        Value::String(text) if text.starts_with("whsec_") => *text = "whsec_[secret]".to_owned(),
        Value::String(text) if text.starts_with("flare_") => *text = "flare_[secret]".to_owned(),
        _ => {}
    }
}

fn without_ids(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if let Some(id) = rest.get(..36).filter(|id| id.is_ascii() && Uuid::try_parse(id).is_ok()) {
            shown.push_str("[id]");
            rest = &rest[id.len()..];
        } else {
            shown.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    shown
}
