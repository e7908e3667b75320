//! TLS as the URL asks for it, through a door that speaks TLS before a server that need not.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use flare_contract::make;
use flare_core::{ErrorKind, Result, port::Store};
use flare_postgres::Options;
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::{ServerConfig, crypto::aws_lc_rs, pki_types::PrivateKeyDer};
use server::Server;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

/// What a client sends when it asks for TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

struct Door {
    address: SocketAddr,
    /// The authority that has signed for it.
    ca: PathBuf,
}

impl Door {
    /// A door whose certificate is for `name`.
    async fn open(server: &Server, name: &str) -> Self {
        let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut ca = CertificateParams::new(vec![]).unwrap();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_certificate = ca.self_signed(&ca_key).unwrap();
        let certificate =
            CertificateParams::new(vec![name.into()]).unwrap().signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
        let path = std::env::temp_dir().join(format!("flare-ca-{:016x}.pem", getrandom::u64().unwrap()));
        let text = STANDARD.encode(ca_certificate.der());
        std::fs::write(&path, format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, target) = (listener.local_addr().unwrap(), server.host());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, acceptor.clone(), target.clone()));
            }
        });
        Self { address, ca: path }
    }
}

async fn serve(mut client: TcpStream, acceptor: TlsAcceptor, target: String) {
    let mut asked = [0; 8];
    if client.read_exact(&mut asked).await.is_err() || asked != SSL_REQUEST || client.write_all(b"S").await.is_err() {
        return;
    }
    let Ok(mut client) = acceptor.accept(client).await else { return };
    let mut server = TcpStream::connect(target).await.unwrap();
    let _ended = copy_bidirectional(&mut client, &mut server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_asked_who_it_is_as_the_url_says() {
    let Some(server) = Server::find() else { return };
    let open = async |door: &Door, mode: &str, ca: Option<PathBuf>| -> Result<Store> {
        let base = server.url.replace(&server.host(), &format!("localhost:{}", door.address.port()));
        let url = Some(format!("{base}?sslmode={mode}"));
        flare_postgres::open(&Options { url, ca, ..server.options("tls") }).await
    };
    let (right, wrong) = (Door::open(&server, "localhost").await, Door::open(&server, "elsewhere.test").await);
    for (door, mode, with_ca, is_welcome) in [
        (&right, "require", false, true),
        (&right, "prefer", false, true),
        (&right, "verify-full", true, true),
        (&right, "verify-full", false, false),
        (&right, "verify-ca", false, false),
        (&wrong, "verify-full", true, false),
        (&wrong, "verify-ca", true, true),
        (&wrong, "require", true, true),
        // The door lets nobody in without TLS.
        (&right, "disable", false, false),
    ] {
        let opened = open(door, mode, with_ca.then(|| door.ca.clone())).await;
        match opened {
            Ok(store) => {
                assert!(is_welcome, "{mode}, ca {with_ca}");
                make::stored_token(&store).await;
                store.engine.close().await.unwrap();
            }
            Err(error) => {
                assert!(!is_welcome, "{mode}, ca {with_ca}: {error:?}");
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            }
        }
    }
    // An authority that is named is asked also by `require`.
    assert!(open(&right, "require", Some(wrong.ca.clone())).await.is_err());
    std::fs::remove_file(&right.ca).unwrap();
    std::fs::remove_file(&wrong.ca).unwrap();
    server.clean_up().await;
}
