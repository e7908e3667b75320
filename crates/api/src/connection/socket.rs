//! The socket of a connection: tells the pulse of bytes, and closes so that the last answer is heard.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

use super::pulse::Pulse;

/// What is read and thrown away after the last answer, and for how long. Closing a socket that has unread bytes resets
/// the connection, and the client may lose the answer, which was perhaps that it sends too much.
const LINGER_BYTES_MAX: usize = 4 << 20;
const LINGER: Duration = Duration::from_secs(1);

pub(crate) struct Socket {
    stream: TcpStream,
    pulse: Arc<Pulse>,
    linger: Option<Linger>,
}

impl Socket {
    pub fn new(stream: TcpStream, pulse: Arc<Pulse>) -> Self {
        Self { stream, pulse, linger: None }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.pulse.received();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.pulse.sent();
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.pulse.sent();
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, linger, .. } = &mut *self;
        if linger.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
        }
        ready!(linger.get_or_insert_with(Linger::start).poll(stream, cx));
        Poll::Ready(Ok(()))
    }
}

/// Waits for the client to close, with an end to patience.
pub(crate) struct Linger {
    end: Pin<Box<Sleep>>,
    bytes: usize,
}

impl Linger {
    pub fn start() -> Self {
        Self { end: Box::pin(sleep(LINGER)), bytes: 0 }
    }

    pub fn poll(&mut self, stream: &mut TcpStream, cx: &mut Context<'_>) -> Poll<()> {
        let mut waste = [0; 4096];
        while self.bytes < LINGER_BYTES_MAX && self.end.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut waste);
            let read = ready!(Pin::new(&mut *stream).poll_read(cx, &mut buf));
            if read.is_err() || buf.filled().is_empty() {
                break;
            }
            self.bytes += buf.filled().len();
        }
        Poll::Ready(())
    }
}
