//! Where deliveries may go: to public addresses and to what the operator allows; and whom they trust there.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use flare_tests::{Authority, Flare, Receiver, TlsReceiver, binary, quick_retries, run_to_end, within};
use serde_json::json;
use tempfile::TempDir;

use crate::{USERS, user};

const DEBUG: &str = "[log]\nlevel = \"debug\"\n";

/// Waits until the server has logged this.
async fn says(flare: &Flare, text: &str) {
    let said = async {
        while !flare.log().contains(text) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(&format!("the server says: {text}"), said).await;
}

/// Asks for a subscription; the reason why it is refused.
async fn refusal(flare: &Flare, resource: &str, url: &str) -> String {
    let asked = json!({ "name": "a", "endpoint": { "url": url } });
    let answer = flare.client().post(&format!("/resources/{resource}/subscriptions"), &asked).await;
    let answer = answer.expect_error(422, "subscription.invalid").json();
    answer["error"]["detail"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_server_that_others_can_call_does_not_deliver_to_its_own_machine() {
    // Some address is allowed, so that names have to be resolved before plain http can be refused.
    let flare = Flare::everywhere(&format!("{DEBUG}[delivery]\nallow = [\"10.9.8.7\"]\n")).await;
    let receiver = Receiver::start().await;
    let port = receiver.addr().port();
    let resource = flare.resource(USERS).await;
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "169.254.169.254", "10.0.0.1", "0.0.0.0"] {
        let reason = refusal(&flare, &resource, &format!("http://{host}:{port}/")).await;
        assert!(reason.starts_with("endpoint.url: the address ") && reason.contains("is not allowed"), "{reason}");
    }
    // Where these lead is known only when they are resolved.
    for host in ["localhost", "2130706433", "0x7f.1", "127.1"] {
        let url = format!("http://{host}:{port}/");
        flare.subscribe_with(&resource, host, &url, &quick_retries()).await;
    }
    flare.put(&user(1), 1).await;
    says(&flare, "1 of localhost is not allowed: it is loopback").await;
    says(&flare, "the address 127.0.0.1 of 2130706433 is not allowed: it is loopback").await;
    says(&flare, "the address 127.0.0.1 of 0x7f.1 is not allowed: it is loopback").await;
    says(&flare, "the address 127.0.0.1 of 127.1 is not allowed: it is loopback").await;
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn what_the_operator_allows_is_delivered() {
    let receiver = Receiver::start().await;
    let named = format!("http://localhost:{}/hook", receiver.addr().port());
    for (allow, url) in [("127.0.0.0/8", receiver.url("/hook")), ("localhost", named)] {
        let flare = Flare::everywhere(&format!("[delivery]\nallow = [\"{allow}\"]\n")).await;
        let resource = flare.resource(USERS).await;
        flare.subscribe(&resource, "a", &url).await;
        let before = receiver.records().count("/hook");
        flare.put(&user(1), 1).await;
        receiver.wait(&format!("a delivery with {allow}"), |records| records.count("/hook") > before).await;
    }
}

#[tokio::test]
async fn what_the_operator_denies_is_not_delivered_any_more() {
    let data = TempDir::with_prefix("flare-test-").unwrap();
    let receiver = Receiver::start().await;
    let mut flare = Flare::on_folder(data.path(), "").await;
    let resource = flare.resource(USERS).await;
    flare.subscribe_with(&resource, "a", &receiver.url("/hook"), &quick_retries()).await;
    flare.put(&user(1), 1).await;
    receiver.wait_revision("/hook", &user(1), 1).await;
    flare.stop().await;

    let lists = "[delivery]\nallow = [\"127.0.0.1\"]\ndeny = [\"127.0.0.0/8\"]\n";
    let mut flare = Flare::on_folder(data.path(), &format!("{DEBUG}{lists}")).await;
    let reason = refusal(&flare, &resource, &receiver.url("/other")).await;
    assert_eq!(reason, "endpoint.url: the address 127.0.0.1 is not allowed: delivery.deny has 127.0.0.0/8");
    flare.put(&user(1), 2).await;
    says(&flare, "the address 127.0.0.1 is not allowed: delivery.deny has 127.0.0.0/8").await;
    assert_eq!((receiver.connections(), receiver.records().newest("/hook", &user(1))), (1, Some(1)));
    flare.stop().await;

    // Nothing was lost meanwhile.
    let _flare = Flare::on_folder(data.path(), "").await;
    receiver.wait_revision("/hook", &user(1), 2).await;
}

#[tokio::test]
async fn plain_http_is_for_loopback_and_for_what_is_allowed() {
    let flare = Flare::everywhere("[delivery]\nallow = [\"hooks.internal\"]\n").await;
    let resource = flare.resource(USERS).await;
    for (host, place) in [("hooks.test", "the host hooks.test"), ("1.1.1.1", "the address 1.1.1.1")] {
        let reason = refusal(&flare, &resource, &format!("http://{host}/")).await;
        assert!(reason.contains(&format!("http:// is not allowed to {place}: use https://")), "{reason}");
    }
    flare.subscribe(&resource, "listed", "http://hooks.internal/").await;
    flare.subscribe(&resource, "encrypted", "https://hooks.test/").await;
}

#[tokio::test]
async fn an_authority_is_trusted_when_the_operator_says_so() {
    let authority = Authority::new("the operator's authority");
    let receiver = TlsReceiver::start(&authority.issue("receiver", &["127.0.0.1", "localhost"]), None).await;
    let folder = TempDir::with_prefix("flare-test-").unwrap();
    let file = folder.path().join("ca.pem");
    fs::write(&file, authority.pem()).unwrap();

    let trusting = Flare::configured(&format!("[delivery]\nca = {file:?}\n")).await;
    let doubting = Flare::configured(DEBUG).await;
    for flare in [&trusting, &doubting] {
        let resource = flare.resource(USERS).await;
        flare.subscribe(&resource, "a", &receiver.url("127.0.0.1", "/")).await;
        flare.subscribe(&resource, "b", &receiver.url("localhost", "/")).await;
        flare.put(&user(1), 1).await;
    }
    receiver.wait(2).await;
    says(&doubting, "invalid peer certificate: UnknownIssuer").await;
    assert_eq!(receiver.count(), 2);
}

#[tokio::test]
async fn flare_shows_its_certificate_to_clients_that_ask_for_it() {
    let authority = Authority::new("the operator's authority");
    let identity = authority.issue("receiver", &["127.0.0.1"]);
    let receiver = TlsReceiver::start(&identity, Some(&authority)).await;
    let folder = TempDir::with_prefix("flare-test-").unwrap();
    let write = |name: &str, content: String| {
        let file = folder.path().join(name);
        fs::write(&file, content).unwrap();
        file
    };
    let own = authority.issue("flare", &[]);
    let (ca, certificate) = (write("ca.pem", authority.pem()), write("cert.pem", own.certificate_pem()));
    let key = write("key.pem", own.key_pem());
    let trust = format!("[delivery]\nca = {ca:?}\n");

    let known = Flare::configured(&format!("{trust}certificate = {certificate:?}\nkey = {key:?}\n")).await;
    let unknown = Flare::configured(&format!("{DEBUG}{trust}")).await;
    for flare in [&known, &unknown] {
        let resource = flare.resource(USERS).await;
        flare.subscribe(&resource, "a", &receiver.url("127.0.0.1", "/")).await;
        flare.put(&user(1), 1).await;
    }
    receiver.wait(1).await;
    says(&unknown, "a delivery failed").await;
    assert_eq!(receiver.count(), 1);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_at_the_start() {
    let authority = Authority::new("the operator's authority");
    let (one, other) = (authority.issue("one", &[]), authority.issue("other", &[]));
    let folder = TempDir::with_prefix("flare-test-").unwrap();
    let write = |name: &str, content: &str| fs::write(folder.path().join(name), content).unwrap();
    write("one.pem", &one.certificate_pem());
    write("one.key", &one.key_pem());
    write("other.key", &other.key_pem());
    write("empty.pem", "");
    write("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let check = async |keys: &str, expected: &[&str]| {
        write("flare.toml", &format!("[delivery]\n{keys}\n"));
        let mut command = Command::new(binary());
        command.args(["start", "--config", "flare.toml", "--addr", "127.0.0.1:0", "--data", "data"]);
        command.current_dir(folder.path()).stdin(Stdio::null()).env("RUST_BACKTRACE", "0");
        let ended = run_to_end(command).await;
        assert!(!ended.status.success(), "{keys}: {}", ended.output);
        for text in expected {
            assert!(ended.output.contains(text), "{keys}: {}", ended.output);
        }
    };
    check("ca = \"none.pem\"", &["delivery.ca none.pem", "No such file"]).await;
    check("ca = \"empty.pem\"", &["delivery.ca empty.pem", "holds no certificate"]).await;
    check("ca = \"broken.pem\"", &["delivery.ca broken.pem", "cannot be an authority"]).await;
    check("certificate = \"none.pem\"\nkey = \"one.key\"", &["delivery.certificate none.pem", "No such file"]).await;
    check("certificate = \"one.pem\"\nkey = \"one.pem\"", &["delivery.key one.pem", "holds no private key"]).await;
    check("certificate = \"one.pem\"\nkey = \"other.key\"", &["one.pem", "other.key", "do not go together"]).await;
    check("certificate = \"one.pem\"", &["flare.toml:2:15", "`delivery.certificate` and `delivery.key` go together"])
        .await;
}
