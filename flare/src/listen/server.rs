//! The connections of the receiver.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::receiver::Receiver;

/// How many connections are open at once; further ones wait.
const CONNECTIONS_MAX: usize = 1024;

/// The time that a client has to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// The pause after a connection could not be accepted, mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until `stop`; then waits, but not longer than `grace`, for the answers under way.
pub async fn serve(listener: TcpListener, receiver: Arc<Receiver>, stop: CancellationToken, grace: Duration) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => (),
            accepted = accept(&listener, &places) => {
                if let Some((stream, place)) = accepted {
                    let connection = connection(stream, Arc::clone(&receiver), stop.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
            }
        }
    }
    drop(listener);
    let rest = async { while connections.join_next().await.is_some() {} };
    // What takes longer is cut off when the tasks are dropped.
    let _ = tokio::time::timeout(grace, rest).await;
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(_) => {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn connection(stream: TcpStream, receiver: Arc<Receiver>, stop: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let service = service_fn(|request: Request<Incoming>| {
        let receiver = Arc::clone(&receiver);
        async move {
            let mut answer = Response::new(Empty::<Bytes>::new());
            *answer.status_mut() = receiver.receive(request).await;
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    // A connection that breaks is the sender's affair; it will try again.
    tokio::select! {
        _ = connection.as_mut() => (),
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
