//! A connection on which a scenario writes bytes that no decent client would send.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::wait::within;

pub struct RawConnection(TcpStream);

impl RawConnection {
    pub async fn open(addr: SocketAddr) -> Self {
        let stream = within("a connection", TcpStream::connect(addr)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    /// Writes; `false` if the server no longer listens.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        within("the server reads or closes", self.0.write_all(bytes.as_ref())).await.is_ok()
    }

    /// The status of the answer that comes next, or none if the server closes the connection without one.
    pub async fn status(&mut self) -> Option<u16> {
        self.head().await.strip_prefix("http/1.1 ")?.get(..3)?.parse().ok()
    }

    /// The status line and headers of the answer that comes next, in lower case; empty if the server closes the
    /// connection without one.
    pub async fn head(&mut self) -> String {
        const HEAD_BYTES_MAX: usize = 64 << 10;
        let mut head = Vec::new();
        let mut buffer = [0; 4096];
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            match within("an answer or the end of the connection", self.0.read(&mut buffer)).await {
                Ok(0) | Err(_) => break,
                Ok(count) => head.extend_from_slice(&buffer[..count]),
            }
            assert!(head.len() < HEAD_BYTES_MAX, "the head of an answer is endless");
        }
        String::from_utf8_lossy(&head).to_lowercase()
    }

    /// Waits until the server has closed the connection, whatever it says before.
    pub async fn closed(mut self) {
        let mut buffer = [0; 4096];
        let end = async { while matches!(self.0.read(&mut buffer).await, Ok(count) if count > 0) {} };
        within("the server closes the connection", end).await;
    }

    /// Writes pieces until the server answers, at most `pieces_max`. Returns the status and how many were taken.
    pub async fn write_until_answered(&mut self, piece: &[u8], pieces_max: usize) -> (Option<u16>, usize) {
        let mut taken = 0;
        let (reader, mut writer) = self.0.split();
        let writing = async {
            while taken < pieces_max {
                tokio::select! {
                    biased;
                    _ = reader.readable() => return,
                    written = writer.write_all(piece) => if written.is_err() { return },
                }
                taken += 1;
            }
        };
        within("the server reads or answers", writing).await;
        (self.status().await, taken)
    }
}
