//! One connection, from its first byte to its last.
//!
//! Hyper speaks HTTP. What is added here is time: a head must arrive within the read timeout, an idle connection is
//! closed after the idle timeout, and when the node stops, a connection ends with its request. Hyper's own timer for
//! heads also runs while a connection is idle, so it cannot tell a slow client from a quiet one; the [`Pulse`] can. It
//! costs no timer per request: a connection has one, which is set anew when it rings too early.

mod pulse;
mod socket;

use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    net::IpAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use axum::response::Response;
use flare_node::{Supervisor, supervisor::Failure};
use http::{Request, Version};
use hyper::{body::Incoming, rt::Executor, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulConnection},
};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use self::{
    pulse::Pulse,
    socket::{Linger, Socket},
};
use crate::{api::Api, settings::ApiSettings};

/// How long a connection that is being closed may still talk.
const CLOSING: Duration = Duration::from_secs(2);

/// Requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;

/// The least buffer of a connection: the head of a request that is too large must fit to be answered in our words.
const BUFFER_BYTES_MIN: usize = 64 << 10;

/// HTTP/1.1 and HTTP/2, whichever the client speaks.
pub(crate) type Protocol = auto::Builder<Spawner>;

pub(crate) fn protocol(settings: &ApiSettings, supervisor: &Supervisor) -> Protocol {
    let mut protocol = Protocol::new(Spawner(supervisor.clone()));
    protocol.http1().header_read_timeout(None).max_buf_size(BUFFER_BYTES_MIN.max(settings.header_bytes_max * 4));
    protocol
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(settings.header_bytes_max).unwrap_or(u32::MAX))
        .keep_alive_interval(settings.idle_timeout)
        .keep_alive_timeout(settings.read_timeout);
    protocol
}

/// Runs the tasks of connections as tasks of the supervisor.
#[derive(Clone)]
pub(crate) struct Spawner(pub Supervisor);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Spawner {
    fn execute(&self, task: F) {
        self.0.spawn("http stream", Failure::IsLogged, task);
    }
}

/// What ends a connection from outside.
pub(crate) struct Ends<'a> {
    /// After the request in flight.
    pub stop: &'a CancellationToken,
    /// At once.
    pub cut: &'a CancellationToken,
}

/// Serves the connection until it ends.
pub(crate) async fn run(api: &Api, protocol: &Protocol, stream: TcpStream, peer: IpAddr, ends: Ends<'_>) {
    let settings = &api.shared().settings;
    let pulse = Arc::new(Pulse::new(settings.read_timeout, settings.idle_timeout));
    let socket = TokioIo::new(Socket::new(stream, pulse.clone()));
    let service = {
        let (api, pulse) = (api.clone(), pulse.clone());
        service_fn(move |request| answer(api.clone(), pulse.clone(), peer, request))
    };
    let connection = pin!(protocol.serve_connection(socket, service));
    tokio::select! {
        biased;
        () = ends.cut.cancelled() => {}
        () = drive(connection, &pulse, ends.stop) => {}
    }
}

async fn answer(api: Api, pulse: Arc<Pulse>, peer: IpAddr, request: Request<Incoming>) -> Result<Response, Infallible> {
    let _in_flight = pulse.begin(request.version() == Version::HTTP_2);
    Ok(api.answer(request, peer).await)
}

/// Drives the connection until it ends by itself, has been quiet for too long, or is to stop.
async fn drive<C: GracefulConnection>(mut connection: Pin<&mut C>, pulse: &Pulse, stop: &CancellationToken) {
    let mut stopped = pin!(stop.cancelled());
    let mut alarm = pin!(sleep_until(Instant::now() + pulse.read_timeout));
    // Set when the connection is asked to end: it may finish what it is doing, and is dropped if it does nothing.
    let mut closing: Option<Instant> = None;
    poll_fn(|cx| {
        if closing.is_none() && stopped.as_mut().poll(cx).is_ready() {
            connection.as_mut().graceful_shutdown();
            closing = Some(Instant::now() + CLOSING);
        }
        loop {
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            let due = pulse.due().map(|due| closing.unwrap_or(due));
            if let Some(due) = due
                && due < alarm.deadline()
            {
                alarm.as_mut().reset(due);
            }
            std::task::ready!(alarm.as_mut().poll(cx));
            let now = Instant::now();
            match due {
                Some(due) if due <= now && closing.is_some() => return Poll::Ready(()),
                Some(due) if due <= now => {
                    connection.as_mut().graceful_shutdown();
                    closing = Some(now + CLOSING);
                    alarm.as_mut().reset(now + CLOSING);
                }
                Some(due) => alarm.as_mut().reset(due),
                None => alarm.as_mut().reset(now + pulse.idle_timeout),
            }
        }
    })
    .await;
}

/// Says one thing to a client for which there is no place.
pub(crate) async fn refuse(mut stream: TcpStream, answer: &str) {
    let say = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        let mut linger = Linger::start();
        poll_fn(|cx| linger.poll(&mut stream, cx)).await;
        io::Result::Ok(())
    };
    // Whether the client heard it is the client's affair.
    let _ = timeout(CLOSING, say).await;
}
