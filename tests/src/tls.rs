//! A client of Flare that speaks TLS.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use flare_contract::tls::{Authority, Identity};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::wait::within;

/// Takes everything that comes to it by https. It ends when it is dropped.
pub struct TlsReceiver {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    bodies: Mutex<Vec<Bytes>>,
    arrived: Notify,
}

impl TlsReceiver {
    /// With `clients`, only those get in who show a certificate of that authority.
    pub async fn start(identity: &Identity, clients: Option<&Authority>) -> Self {
        let builder = match clients {
            Some(authority) => {
                let verifier = WebPkiClientVerifier::builder(authority.roots()).build().unwrap();
                ServerConfig::builder().with_client_cert_verifier(verifier)
            }
            None => ServerConfig::builder().with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(vec![identity.certificate.clone()], identity.key()).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let mut server = JoinSet::new();
        server.spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), Arc::clone(&shared)));
        Self { addr, shared, _server: server }
    }

    /// The URL of a path of this receiver, by this name or address.
    pub fn url(&self, host: &str, path: &str) -> String {
        format!("https://{host}:{}{path}", self.addr.port())
    }

    pub fn count(&self) -> usize {
        self.shared.bodies.lock().unwrap().len()
    }

    /// Waits until so many requests have arrived.
    pub async fn wait(&self, count: usize) {
        let arrived = async {
            while self.count() < count {
                self.shared.arrived.notified().await;
            }
        };
        within(&format!("{count} requests arrive by https"), arrived).await;
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, acceptor.clone(), Arc::clone(&shared)));
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(|request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move {
            let body = request.into_body().collect().await?.to_bytes();
            shared.bodies.lock().unwrap().push(body);
            shared.arrived.notify_one();
            Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::new())))
        }
    });
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}
