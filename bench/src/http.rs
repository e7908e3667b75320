//! One HTTP/1.1 connection and a way to listen: what the generator and the driver share.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Listeners stay below the range from which the kernel takes ports for outgoing connections.
const PORTS: std::ops::Range<u16> = 21_000..32_000;
const CALL_TIME_MAX: Duration = Duration::from_secs(30);

pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

impl Connection {
    pub async fn open(addr: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(addr).await.with_context(|| format!("connect to {addr}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender, host: addr.to_string() })
    }

    /// Sends one JSON request and reads the whole answer.
    pub async fn call(&mut self, method: Method, path: &str, body: Bytes) -> Result<(StatusCode, Bytes)> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        timeout(CALL_TIME_MAX, self.exchange(request)).await.context("no answer in time")?
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes)> {
        self.sender.ready().await?;
        let answer: Response<Incoming> = self.sender.send_request(request).await?;
        let status = answer.status();
        Ok((status, answer.into_body().collect().await?.to_bytes()))
    }
}

/// One call on a connection of its own; anything but 2xx is an error that shows the answer.
pub async fn call(addr: SocketAddr, method: Method, path: &str, body: Bytes) -> Result<Bytes> {
    let (status, answer) = Connection::open(addr).await?.call(method.clone(), path, body).await?;
    if !status.is_success() {
        bail!("{method} {path} answered {status}: {}", excerpt(&answer));
    }
    Ok(answer)
}

pub fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned()
}

/// Listens on a free port of 127.0.0.1 below the ephemeral range.
pub async fn listen() -> Result<TcpListener> {
    let span = u32::from(PORTS.end - PORTS.start);
    // Process ids differ between the parts, so that they do not try the same ports in the same order.
    let first = std::process::id().wrapping_mul(97) % span;
    for offset in 0..span {
        let port = PORTS.start + ((first + offset) % span) as u16;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)).await {
            return Ok(listener);
        }
    }
    bail!("no free port in {PORTS:?}")
}
