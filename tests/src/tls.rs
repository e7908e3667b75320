//! A client of Flare that speaks TLS, and an authority of its own for the certificates.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::wait::within;

/// Signs certificates that nobody trusts who was not told to.
pub struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = named(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    pub fn issue(&self, name: &str, hosts: &[&str]) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = named(name, hosts).signed_by(&key, &self.issuer).unwrap();
        Identity { certificate: certificate.der().clone(), key: key.serialize_der() }
    }

    pub fn pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        Arc::new(roots)
    }
}

impl Identity {
    pub fn certificate_pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", &self.key)
    }
}

fn named(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn pem(label: &str, content: &[u8]) -> String {
    let encoded = STANDARD.encode(content);
    let lines: Vec<_> = encoded.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

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
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(identity.key.clone()));
        let mut config = builder.with_single_cert(vec![identity.certificate.clone()], key).unwrap();
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
