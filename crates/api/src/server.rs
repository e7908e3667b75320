//! The server loop: accepts connections, as many as there are places, and ends them when the node stops.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use flare_node::{Node, Supervisor, supervisor::Failure};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    api::Api,
    connection::{self, Ends, Protocol},
    error::BUSY,
    settings::ApiSettings,
};

/// How long nothing is accepted when accepting failed, most likely for want of file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that are told at once that there is no place for them; more are closed without a word.
const REFUSALS_MAX: usize = 64;

/// Serves the API of `node` until `stop`, then finishes the requests in flight, for at most `settings.grace`.
pub async fn serve(
    node: Arc<Node>,
    settings: ApiSettings,
    listeners: Vec<TcpListener>,
    supervisor: &Supervisor,
    stop: CancellationToken,
) {
    let (grace, places) = (settings.grace, settings.connections_max);
    let server = Arc::new(Server::new(node, settings, supervisor.clone(), stop.clone()));
    for listener in listeners {
        supervisor.spawn("http listener", Failure::StopsNode, server.clone().accept(listener));
    }
    stop.cancelled().await;
    let all = u32::try_from(places).unwrap_or(u32::MAX);
    if timeout(grace, server.api.shared().connections.acquire_many(all)).await.is_err() {
        let open = server.api.shared().connections_open();
        tracing::warn!(open, "connections are cut, their requests did not end within the grace period");
        server.cut.cancel();
    }
}

struct Server {
    api: Api,
    protocol: Protocol,
    supervisor: Supervisor,
    refusals: Arc<Semaphore>,
    stop: CancellationToken,
    /// Ends connections at once.
    cut: CancellationToken,
}

impl Server {
    fn new(node: Arc<Node>, settings: ApiSettings, supervisor: Supervisor, stop: CancellationToken) -> Self {
        Self {
            protocol: connection::protocol(&settings, &supervisor),
            api: Api::new(node, settings, supervisor.clone(), stop.clone()),
            supervisor,
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
            stop,
            cut: CancellationToken::new(),
        }
    }

    async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => self.take(stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn take(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        // Answers are small and written at once; waiting to fill a packet would only delay them.
        let _ = stream.set_nodelay(true);
        let Ok(place) = self.api.shared().connections.clone().try_acquire_owned() else {
            return self.refuse(stream);
        };
        let server = self.clone();
        self.supervisor.spawn("http connection", Failure::IsLogged, async move {
            let ends = Ends { stop: &server.stop, cut: &server.cut };
            connection::run(&server.api, &server.protocol, stream, peer.ip(), ends).await;
            drop(place);
        });
    }

    fn refuse(&self, stream: TcpStream) {
        let Ok(permit) = self.refusals.clone().try_acquire_owned() else { return };
        self.supervisor.spawn("http refusal", Failure::IsLogged, async move {
            connection::refuse(stream, &busy()).await;
            drop(permit);
        });
    }
}

/// The whole answer to a connection for which there is no place; whatever it was about to ask.
fn busy() -> String {
    let id = uuid::Uuid::now_v7();
    let body = format!(
        "{{\"error\":{{\"code\":\"{}\",\"title\":\"{}\",\"detail\":\"all connections of `http.connections-max` are in \
         use\",\"requestId\":\"{id}\"}}}}",
        BUSY.code, BUSY.title
    );
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\nretry-after: 1\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests;
