//! Who may log in, and over what: with servers of the test's own, which insist on it.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use flare_contract::tls::Authority;
use flare_core::{ErrorKind, queue::QueueName};
use flare_nats::Options;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// A server that ends with the test.
struct Guarded {
    folder: TempDir,
    port: u16,
    _process: Child,
}

impl Guarded {
    /// Starts a server with these lines in its configuration; `FOLDER` stands for its folder.
    async fn start(lines: &str, fill: impl Fn(&Path)) -> Option<Self> {
        let Some(program) = program() else {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "there is no nats-server, and CI=true");
            println!("skipped: there is no nats-server; dev/servers install nats gets it");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path());
        // Free a moment ago, and most likely still.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let path = folder.path().display().to_string();
        let config = folder.path().join("nats.conf");
        let lines = lines.replace("FOLDER", &path);
        let text = format!("listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{path}/data\" }}\n{lines}\n");
        std::fs::write(&config, text).unwrap();
        let process = Command::new(program)
            .args(["--config", config.to_str().unwrap(), "--log", &format!("{path}/log")])
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let server = Self { folder, port, _process: process };
        for _ in 0..200 {
            let log = std::fs::read_to_string(server.folder.path().join("log")).unwrap_or_default();
            if log.contains("Server is ready") {
                return Some(server);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the server does not start");
    }

    fn options(&self) -> Options {
        let addrs = vec![format!("localhost:{}", self.port)];
        Options { addrs, timeout: Duration::from_secs(5), ..Options::default() }
    }
}

/// The program that `dev/servers` runs.
fn program() -> Option<PathBuf> {
    let cache = std::env::var("FLARE_SERVERS_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|_| std::env::var("HOME").map(|home| Path::new(&home).join(".cache/flare-servers")));
    let folders = std::fs::read_dir(cache.ok()?).ok()?;
    folders.filter_map(|folder| Some(folder.ok()?.path().join("nats-server"))).find(|program| program.is_file())
}

async fn is_welcome(options: &Options) -> bool {
    let name = QueueName::new("login").unwrap();
    match flare_nats::open(options).await {
        Ok(queue) => {
            queue.declare(&name).await.unwrap();
            queue.push(&name, vec![Bytes::from_static(b"a")]).await.unwrap();
            queue.close().await.unwrap();
            true
        }
        Err(error) => {
            let text = error.chain();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{text}");
            assert!(text.contains(&options.addrs[0]) && !text.contains("secret"), "{text}");
            false
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_needs_the_right_password() {
    let Some(server) = Guarded::start("authorization { user: me, password: secret }", |_| {}).await else { return };
    let options = |password: Option<&str>| Options {
        username: password.map(|_| "me".into()),
        password: password.map(Into::into),
        ..server.options()
    };
    assert!(is_welcome(&options(Some("secret"))).await);
    assert!(!is_welcome(&options(Some("secret2"))).await);
    assert!(!is_welcome(&options(None)).await);
    let error = flare_nats::open(&options(Some("secret2"))).await.err().unwrap().chain();
    assert!(error.to_lowercase().contains("authorization violation"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_takes_the_place_of_a_user() {
    let Some(server) = Guarded::start("authorization { token: secret }", |_| {}).await else { return };
    let options = |token: &str| Options { token: Some(token.into()), ..server.options() };
    assert!(is_welcome(&options("secret")).await);
    assert!(!is_welcome(&options("secret2")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_user_may_not_do_is_named() {
    let users = r#"authorization { users: [ { user: me, password: secret, permissions: {
        publish: ["$JS.API.STREAM.>"], subscribe: ["_INBOX.>"] } } ] }"#;
    let Some(server) = Guarded::start(users, |_| {}).await else { return };
    let (username, password) = (Some("me".into()), Some("secret".into()));
    let options = Options { username, password, timeout: Duration::from_secs(1), ..server.options() };
    let queue = flare_nats::open(&options).await.unwrap();
    let error = queue.declare(&QueueName::new("login").unwrap()).await.unwrap_err();
    assert!(error.chain().contains("Permissions Violation"), "{}", error.chain());
    assert!(queue.trouble().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_credentials_that_cannot_be_read_is_named() {
    let options = Options { credentials: Some("/nowhere/flare.creds".into()), ..Options::default() };
    let error = flare_nats::open(&options).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.chain().contains("/nowhere/flare.creds"), "{}", error.chain());
}

/// An authority, and a certificate for `localhost` that it has signed.
fn certify(folder: &Path) {
    let authority = Authority::new("ours");
    let identity = authority.issue("the server", &["localhost"]);
    std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
    std::fs::write(folder.join("cert.pem"), identity.certificate_pem()).unwrap();
    std::fs::write(folder.join("key.pem"), identity.key_pem()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_of_the_server_is_asked_for() {
    let lines = "tls { cert_file: \"FOLDER/cert.pem\", key_file: \"FOLDER/key.pem\" }";
    let Some(server) = Guarded::start(lines, certify).await else { return };
    let ca = Some(server.folder.path().join("ca.pem"));
    assert!(is_welcome(&Options { ca: ca.clone(), ..server.options() }).await);
    assert!(is_welcome(&Options { ca: ca.clone(), tls: true, ..server.options() }).await);
    assert!(!is_welcome(&server.options()).await, "no authority of the system has signed for it");
    let elsewhere = Options { addrs: vec![format!("127.0.0.1:{}", server.port)], ca, ..server.options() };
    assert!(!is_welcome(&elsewhere).await, "the certificate is for another name");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_refused_where_tls_is_asked_for() {
    let Some(server) = Guarded::start("", |_| {}).await else { return };
    assert!(is_welcome(&server.options()).await);
    assert!(!is_welcome(&Options { tls: true, ..server.options() }).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_jetstream_says_so() {
    let Some(server) = Guarded::start("accounts { one { users: [ { user: me, password: secret } ] } }", |_| {}).await
    else {
        return;
    };
    let (username, password) = (Some("me".into()), Some("secret".into()));
    let error = flare_nats::open(&Options { username, password, ..server.options() }).await.err().unwrap();
    assert!(error.chain().to_lowercase().contains("jetstream"), "{}", error.chain());
    assert!(error.chain().contains("enabled"), "{}", error.chain());
}
