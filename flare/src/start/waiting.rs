//! What a node answers while it waits for its turn: that it does.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Nobody is waited for longer than this: there is only one answer.
const TIME_MAX: Duration = Duration::from_millis(200);
const DETAIL: &str = "another node works on the same data; this one waits until it is gone";

/// Answers every connection with 503, one after another, until it is dropped.
pub async fn answer(listener: &TcpListener) {
    loop {
        match listener.accept().await {
            // A client that is gone needs no answer.
            Ok((connection, _)) => drop(timeout(TIME_MAX, refuse(connection)).await),
            // Out of file descriptors, or the client gave up: the next one may have more luck.
            Err(_) => tokio::time::sleep(TIME_MAX).await,
        }
    }
}

async fn refuse(mut connection: TcpStream) -> std::io::Result<()> {
    let mut request = [0; 4096];
    let _first_part = connection.read(&mut request).await?;
    let head =
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close";
    let error = json!({ "code": "node.not-ready", "title": "The node is not ready", "detail": DETAIL });
    let body = json!({ "error": error }).to_string();
    let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    connection.write_all(answer.as_bytes()).await?;
    connection.shutdown().await
}
