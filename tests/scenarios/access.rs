//! Who may call: this machine without a token, others with one, web pages of others not at all.

use std::net::{IpAddr, UdpSocket};

use bytes::Bytes;
use flare_tests::{Client, Flare, skipped};
use http::Method;

const TOKEN: &str = "a-token-of-more-than-sixteen-characters";

async fn status(client: &Client, headers: &[(&str, &str)]) -> u16 {
    client.send(Method::GET, "/resources", headers, Bytes::new()).await.unwrap().status
}

#[tokio::test]
async fn this_machine_needs_no_token() {
    let flare = Flare::start().await;
    assert_eq!(status(&flare.client(), &[]).await, 200);
    assert_eq!(status(&flare.client(), &[("host", "localhost")]).await, 200);
}

#[tokio::test]
async fn what_came_through_a_proxy_needs_a_token() {
    let flare = Flare::configured(&format!("[security]\ntokens = [\"{TOKEN}\"]\n")).await;
    let client = flare.client();
    let bearer = format!("Bearer {TOKEN}");
    for header in [("x-forwarded-for", "127.0.0.1"), ("forwarded", "for=127.0.0.1"), ("x-real-ip", "127.0.0.1")] {
        let answer = client.send(Method::GET, "/resources", &[header], Bytes::new()).await.unwrap();
        let answer = answer.expect_error(401, "request.unauthorized");
        assert!(answer.header("www-authenticate").is_some());
        assert_eq!(status(&client, &[header, ("authorization", "Bearer wrong-wrong-wrong-wrong")]).await, 401);
        assert_eq!(status(&client, &[header, ("authorization", &bearer)]).await, 200, "{header:?}");
    }
}

#[tokio::test]
async fn a_proxy_without_configured_tokens_cannot_get_in() {
    let flare = Flare::start().await;
    for authorization in ["", "Bearer ", "Bearer x", "Basic Og=="] {
        let headers = [("x-forwarded-for", "10.0.0.1"), ("authorization", authorization)];
        assert_eq!(status(&flare.client(), &headers).await, 401, "{authorization:?}");
    }
}

#[tokio::test]
async fn a_foreign_host_is_refused() {
    let flare = Flare::configured("[security]\nhosts = [\"flare.company.test\"]\n").await;
    let client = flare.client();
    for host in ["evil.test", "evil.test:8080", "localhost.evil.test"] {
        let answer = client.send(Method::GET, "/resources", &[("host", host)], Bytes::new()).await.unwrap();
        answer.expect_error(403, "request.host-refused");
    }
    assert_eq!(status(&client, &[("host", "flare.company.test")]).await, 200);
    assert_eq!(status(&client, &[("host", "flare.company.test:443")]).await, 200);
}

#[tokio::test]
async fn a_foreign_origin_is_refused() {
    let flare = Flare::configured("[security]\norigins = [\"https://console.company.test\"]\n").await;
    let client = flare.client();
    for origin in ["http://evil.test", "https://console.company.test.evil.test", "null", "http://console.company.test"]
    {
        let answer = client.send(Method::GET, "/resources", &[("origin", origin)], Bytes::new()).await.unwrap();
        answer.expect_error(403, "request.origin-refused");
    }
    assert_eq!(status(&client, &[("origin", "https://console.company.test")]).await, 200);
}

#[tokio::test]
async fn another_machine_needs_a_token() {
    let Some(ip) = own_address() else {
        return skipped("another_machine_needs_a_token", "this machine has no address besides loopback");
    };
    let config = format!("[security]\ntokens = [\"{TOKEN}\"]\nhosts = [\"{ip}\"]\n");
    let flare = Flare::everywhere(&config).await;
    let client = Client::new((ip, flare.addr().port()).into());
    assert_eq!(status(&client, &[]).await, 401);
    assert_eq!(status(&client, &[("authorization", &format!("Bearer {TOKEN}"))]).await, 200);
    assert_eq!(status(&flare.client(), &[]).await, 200, "this machine still needs none");
}

/// The address that this machine would use to speak to the world. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}
