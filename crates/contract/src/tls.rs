//! Certificates for tests, and a door that speaks TLS before a server that does not.

use std::{net::SocketAddr, path::Path, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tempfile::TempPath;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

/// Signs certificates that nobody trusts who was not told to.
pub struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
pub struct Identity {
    pub certificate: CertificateDer<'static>,
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

    /// A certificate for hosts, each a name or an address.
    pub fn issue(&self, name: &str, hosts: &[&str]) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = named(name, hosts).signed_by(&key, &self.issuer).unwrap();
        Identity { certificate: certificate.der().clone(), key: key.serialize_der() }
    }

    pub fn pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    /// A file with its certificate, which goes when it is dropped.
    pub fn file(&self) -> TempPath {
        let path = tempfile::Builder::new().prefix("flare-ca-").suffix(".pem").tempfile().unwrap().into_temp_path();
        std::fs::write(&path, self.pem()).unwrap();
        path
    }

    pub fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        Arc::new(roots)
    }
}

impl Identity {
    pub fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()))
    }

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

/// What a client and a server say before they speak TLS.
#[derive(Clone, Copy, Default)]
pub struct Greeting {
    pub asked: &'static [u8],
    pub answered: &'static [u8],
}

/// Speaks TLS, and nothing else, before a server that does not. It closes when it is dropped.
pub struct Door {
    address: SocketAddr,
    ca: TempPath,
    accepting: tokio::task::AbortHandle,
}

impl Door {
    /// A door before `target`, with a certificate for `host` from an authority of its own.
    pub async fn open(target: &str, host: &str, greeting: Greeting) -> Self {
        let authority = Authority::new("the authority of a door");
        let identity = authority.issue("a door", &[host]);
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![identity.certificate.clone()], identity.key())
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, target) = (listener.local_addr().unwrap(), target.to_owned());
        let accepting = crate::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                crate::spawn(pass(client, acceptor.clone(), target.clone(), greeting));
            }
        });
        Self { address, ca: authority.file(), accepting }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// A file with the authority that has signed for it.
    pub fn ca(&self) -> &Path {
        &self.ca
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pass(mut client: TcpStream, acceptor: TlsAcceptor, target: String, greeting: Greeting) {
    let mut asked = vec![0; greeting.asked.len()];
    let is_asked = client.read_exact(&mut asked).await.is_ok() && asked == greeting.asked;
    if !is_asked || client.write_all(greeting.answered).await.is_err() {
        return;
    }
    let Ok(mut client) = acceptor.accept(client).await else { return };
    let mut server = TcpStream::connect(target).await.unwrap();
    let _ended = copy_bidirectional(&mut client, &mut server).await;
}
