//! What a node answers while it cannot start: that it runs, and what it waits for.

use std::{sync::Mutex, time::Duration};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Nobody is waited for longer than this: the answers are short.
const TIME_MAX: Duration = Duration::from_millis(200);

/// What is waited for, in words.
#[derive(Default)]
pub struct Reason(Mutex<String>);

impl Reason {
    pub fn set(&self, reason: String) {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = reason;
    }

    fn get(&self) -> String {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

/// Answers every connection, one after another, until it is dropped.
pub async fn answer(listener: &TcpListener, reason: &Reason) {
    loop {
        match listener.accept().await {
            // A client that is gone needs no answer.
            Ok((connection, _)) => drop(timeout(TIME_MAX, reply(connection, reason)).await),
            // Out of file descriptors, or the client gave up: the next one may have more luck.
            Err(_) => tokio::time::sleep(TIME_MAX).await,
        }
    }
}

async fn reply(mut connection: TcpStream, reason: &Reason) -> std::io::Result<()> {
    let mut request = [0; 4096];
    let length = connection.read(&mut request).await?;
    let (status, body) = if request[..length].starts_with(b"GET /health ") {
        ("200 OK", json!({ "status": "ok" }))
    } else {
        let error = json!({ "code": "node.not-ready", "title": "The node is not ready", "detail": reason.get() });
        ("503 Service Unavailable\r\nretry-after: 1", json!({ "error": error }))
    };
    let body = body.to_string();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close");
    let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    connection.write_all(answer.as_bytes()).await?;
    connection.shutdown().await
}
