//! The server under test: the real binary, in a process of its own, on a folder of its own.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use http::Method;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::client::Client;
use crate::port::Port;
use crate::process::{Ended, Process, run_to_end};
use crate::wait::within;

/// How often a state that gives no signal is looked at.
const POLL: Duration = Duration::from_millis(5);

/// Tables are made one after another, which takes some servers a second each.
const MIGRATION_MAX: Duration = Duration::from_secs(180);

/// How much of the log a failed scenario shows.
const LOG_BYTES_SHOWN: u64 = 16 << 10;

/// A server. It is killed, and its folder removed, when it is dropped.
pub struct Flare {
    /// None while it is stopped.
    process: Option<Process>,
    folder: TempDir,
    data: PathBuf,
    /// Where the server is called.
    port: Port,
    /// Where the server listens, as it is told.
    listen: String,
    client: Client,
}

/// A subscription as it was made.
pub struct Subscription {
    /// `/resources/…/subscriptions/…`
    pub path: String,
    pub secret: String,
}

impl Flare {
    /// Starts a server with an empty store and the default configuration.
    pub async fn start() -> Self {
        Self::configured("").await
    }

    /// Starts a server with an empty store and this configuration.
    pub async fn configured(config: &str) -> Self {
        let folder = TempDir::with_prefix("flare-test-").unwrap();
        let data = folder.path().join("data");
        Self::launch(folder, data, config).await
    }

    /// A server with this configuration that was not started yet.
    pub fn stopped(config: &str) -> Self {
        let folder = TempDir::with_prefix("flare-test-").unwrap();
        let data = folder.path().join("data");
        Self::prepare(folder, data, config)
    }

    /// Runs `flare migrate up` with the configuration of this server, which must not run; returns what it said.
    pub async fn migrate(&self) -> String {
        let mut command = tokio::process::Command::new(binary());
        command.args(["migrate", "up", "--config"]).arg(self.folder.path().join("flare.toml"));
        command.current_dir(self.folder.path()).stdin(Stdio::null()).kill_on_drop(true);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"FLARE_")) {
            command.env_remove(name);
        }
        let output = tokio::time::timeout(MIGRATION_MAX, command.output()).await.expect("the migration ends").unwrap();
        let said = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        assert!(output.status.success(), "{}{}", said(&output.stdout), said(&output.stderr));
        said(&output.stdout)
    }

    /// Starts a server with this configuration on a folder that outlives it.
    pub async fn on_folder(data: &Path, config: &str) -> Self {
        Self::launch(TempDir::with_prefix("flare-test-").unwrap(), data.to_owned(), config).await
    }

    /// Starts a server that listens on all interfaces.
    pub async fn everywhere(config: &str) -> Self {
        let folder = TempDir::with_prefix("flare-test-").unwrap();
        let data = folder.path().join("data");
        let mut flare = Self::prepare(folder, data, config);
        flare.listen = format!(":{}", flare.addr().port());
        flare.start_again().await;
        flare
    }

    async fn launch(folder: TempDir, data: PathBuf, config: &str) -> Self {
        let mut flare = Self::prepare(folder, data, config);
        flare.start_again().await;
        flare
    }

    fn prepare(folder: TempDir, data: PathBuf, config: &str) -> Self {
        fs::write(folder.path().join("flare.toml"), config).unwrap();
        let port = Port::free();
        let addr = port.addr();
        Self { process: None, folder, data, port, listen: addr.to_string(), client: Client::new(addr) }
    }

    /// Starts the stopped server again, on the same folder and address, and waits until it is ready.
    pub async fn start_again(&mut self) {
        self.spawn();
        within("the server is ready", async {
            while !self.is_ready().await {
                if let Some(status) = self.process.as_mut().and_then(Process::status) {
                    panic!("the server ended instead of starting: {status}");
                }
                tokio::time::sleep(POLL).await;
            }
        })
        .await;
    }

    /// Starts the stopped server again and does not wait for it.
    pub fn spawn(&mut self) {
        assert!(self.process.is_none(), "the server runs already");
        let log = OpenOptions::new().create(true).append(true).open(self.log_file()).unwrap();
        let mut command = self.command(&self.listen);
        self.process = Some(Process::start(command.stdout(log.try_clone().unwrap()).stderr(log)));
    }

    fn command(&self, listen: &str) -> Command {
        let mut command = Command::new(binary());
        command.arg("start").arg("--config").arg(self.folder.path().join("flare.toml"));
        command.arg("--addr").arg(listen).arg("--data").arg(&self.data);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        // The log shall fit into the failure of a scenario.
        command.env("RUST_BACKTRACE", "0");
        // What the shell of the developer says about a server is not meant for this one.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"FLARE_")) {
            command.env_remove(name);
        }
        command
    }

    /// Starts a second server on the folder of this one, at an address of its own, and waits for its end.
    pub async fn second_on_the_same_folder(&self) -> Ended {
        let port = Port::free();
        run_to_end(self.command(&port.addr().to_string())).await
    }

    pub async fn is_ready(&self) -> bool {
        let answer = self.client.send(Method::GET, "/ready", &[], "").await;
        answer.is_ok_and(|answer| answer.status == 200)
    }

    /// Waits until nobody accepts connections at the address of the server any more.
    pub async fn takes_no_more_requests(&self) {
        let closed = async {
            while tokio::net::TcpStream::connect(self.addr()).await.is_ok() {
                tokio::time::sleep(POLL).await;
            }
        };
        within("the server takes no more requests", closed).await;
    }

    /// kill -9.
    pub async fn kill(&mut self) {
        self.process.as_mut().expect("the server runs").kill();
        self.ended().await;
    }

    /// Sends SIGTERM and does not wait.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// The machine of the server sleeps, or is awake again.
    pub fn suspend(&self, sleeps: bool) {
        self.signal(if sleeps { "STOP" } else { "CONT" });
    }

    fn signal(&self, name: &str) {
        let pid = self.process.as_ref().expect("the server runs").id();
        // The shell's own `kill`: there is no system call for it without `unsafe`.
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
        assert!(sent.success(), "cannot signal the server");
    }

    /// Sends SIGTERM and waits for the end.
    pub async fn stop(&mut self) -> ExitStatus {
        self.terminate();
        self.ended().await
    }

    /// Waits for the end of the process.
    pub async fn ended(&mut self) -> ExitStatus {
        let status = self.process.take().expect("the server runs").ended().await;
        status.unwrap_or_else(|| panic!("the server does not end\n{}", self.log_tail()))
    }

    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The physical memory of the server, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let pid = self.process.as_ref().expect("the server runs").id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// All that the server has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("flare.log")
    }

    fn log_tail(&self) -> String {
        let Ok(mut file) = File::open(self.log_file()) else { return String::new() };
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let mut tail = Vec::new();
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES_SHOWN)));
        let _ = file.read_to_end(&mut tail);
        format!("--- the server's log, last part ---\n{}", String::from_utf8_lossy(&tail))
    }

    /// Makes a resource whose documents have an integer `revision`; returns its id.
    pub async fn resource(&self, endpoint: &str) -> String {
        let asked = json!({ "endpoint": endpoint, "change": { "field": "revision" } });
        let made = self.client.post("/resources", &asked).await.expect(201);
        made.json()["id"].as_str().expect("a resource has an id").to_owned()
    }

    /// Subscribes `url` to a resource.
    pub async fn subscribe(&self, resource: &str, name: &str, url: &str) -> Subscription {
        self.subscribe_with(resource, name, url, &json!({})).await
    }

    /// Subscribes `url` to a resource, with these members besides or instead.
    pub async fn subscribe_with(&self, resource: &str, name: &str, url: &str, members: &Json) -> Subscription {
        let mut asked = json!({ "name": name, "endpoint": { "url": url, "method": "post" } });
        merge(&mut asked, members);
        let made = self.client.post(&format!("/resources/{resource}/subscriptions"), &asked).await.expect(201).json();
        let id = made["id"].as_str().expect("a subscription has an id");
        Subscription {
            path: format!("/resources/{resource}/subscriptions/{id}"),
            secret: made["secret"].as_str().expect("the secret is shown once").to_owned(),
        }
    }

    /// Publishes a revision of a document.
    pub async fn put(&self, url: &str, revision: i64) {
        self.client.put_document(url, &json!({ "revision": revision, "name": "sample" })).await.expect(202);
    }

    /// The revision of a document that the server has.
    pub async fn revision(&self, url: &str) -> i64 {
        let answer = self.client.get_document(url).await.expect(200);
        answer.json()["revision"].as_i64().expect("the document has a revision")
    }
}

impl Drop for Flare {
    fn drop(&mut self) {
        drop(self.process.take());
        if std::thread::panicking() {
            eprintln!("{}", self.log_tail());
        } else {
            // Whatever the scenario saw, a server that panicked is broken.
            assert!(!self.log().contains("panicked at"), "the server panicked\n{}", self.log_tail());
        }
    }
}

/// The binary under test: `FLARE_TEST_BINARY`, or what `cargo build` made.
pub fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("FLARE_TEST_BINARY") {
        return named.into();
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in a workspace");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
    target.join("debug/flare")
}

/// Puts the members of `over` into `base`, objects member by member.
fn merge(base: &mut Json, over: &Json) {
    match (base, over) {
        (Json::Object(base), Json::Object(over)) => {
            for (name, value) in over {
                merge(base.entry(name.clone()).or_insert(Json::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}
