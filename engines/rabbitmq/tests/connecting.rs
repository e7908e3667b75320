//! Who may connect, to whom, and what is said if it does not work.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use flare_core::ErrorKind;
use flare_rabbitmq::Options;
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::{ServerConfig, crypto::aws_lc_rs, pki_types::PrivateKeyDer};
use server::Server;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

async fn refusal(options: &Options) -> String {
    let error = flare_rabbitmq::open(options).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    error.chain()
}

fn at(url: String) -> Options {
    Options { url: Some(url), timeout: Duration::from_secs(2), ..Options::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_not_there_is_named_without_the_password() {
    let text = refusal(&at("amqp://me:secret@127.0.0.1:1,127.0.0.1:2/%2f".into())).await;
    assert!(text.contains("127.0.0.1:1 ") && text.contains("127.0.0.1:2 ") && text.contains("refused"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_does_not_let_us_in_says_why() {
    let Some(server) = Server::find() else { return };
    let text = refusal(&at(format!("amqp://guest:secret@{}/%2f", server.host()))).await;
    assert!(text.contains(&server.host()) && text.contains("refuses the user guest"), "{text}");
    assert!(text.contains("ACCESS_REFUSED") && !text.contains("secret"), "{text}");
    let text = refusal(&at(server.url.replace("%2f", "nowhere"))).await;
    assert!(text.contains("vhost nowhere not found"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_broker_that_answers_will_do() {
    let Some(server) = Server::find() else { return };
    for _ in 0..6 {
        let options = at(server.url_at(&format!("127.0.0.1:1,{}", server.host())));
        let queue = flare_rabbitmq::open(&options).await.unwrap();
        queue.close().await.unwrap();
    }
}

/// Speaks TLS before a broker that does not.
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
                let (acceptor, target) = (acceptor.clone(), target.clone());
                tokio::spawn(async move {
                    let Ok(mut client) = acceptor.accept(client).await else { return };
                    let mut server = TcpStream::connect(target).await.unwrap();
                    let _ended = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { address, ca: path }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_must_prove_who_it_is() {
    let Some(server) = Server::find() else { return };
    let (right, wrong) = (Door::open(&server, "localhost").await, Door::open(&server, "elsewhere.test").await);
    for (door, scheme, with_ca, is_welcome) in [
        (&right, "amqps", true, true),
        (&right, "amqps", false, false),
        (&wrong, "amqps", true, false),
        // The door lets nobody in without TLS.
        (&right, "amqp", true, false),
    ] {
        let url =
            server.url_at(&format!("localhost:{}", door.address.port())).replace("amqp://", &format!("{scheme}://"));
        let options = Options { ca: with_ca.then(|| door.ca.clone()), ..at(url) };
        match flare_rabbitmq::open(&options).await {
            Ok(queue) => {
                assert!(is_welcome, "{scheme}, ca {with_ca}");
                assert_eq!(queue.depth(&server::fresh_name()).await.unwrap_err().kind(), ErrorKind::NotFound);
                queue.close().await.unwrap();
            }
            Err(error) => {
                assert!(!is_welcome, "{scheme}, ca {with_ca}: {error:?}");
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            }
        }
    }
    std::fs::remove_file(&right.ca).unwrap();
    std::fs::remove_file(&wrong.ca).unwrap();
}
