use aws_lc_rs::digest;
use flare_core::{TokenId, token::Scope};
use http::Request;

use super::*;

const TOKEN: &str = "0123456789abcdef";
const ISSUED: &str = "a-token-of-the-server";
const EXPIRED: &str = "a-token-of-long-ago";

fn guard() -> Guard {
    let mut token = [0; 32];
    token.copy_from_slice(digest::digest(&digest::SHA256, TOKEN.as_bytes()).as_ref());
    let settings = ApiSettings {
        tokens: vec![[7; 32], token],
        hosts: vec!["flare.company.com".to_owned()],
        origins: vec!["https://console.company.com".to_owned()],
        ..ApiSettings::default()
    };
    Guard::new(&settings, secret(), Box::new(issued))
}

fn secret() -> Password {
    serde_json::from_value("the-secret-of-this-node".into()).unwrap()
}

fn issued(text: &[u8]) -> Option<Arc<Token>> {
    let expires_at = match text {
        text if text == ISSUED.as_bytes() => None,
        text if text == EXPIRED.as_bytes() => Some(Timestamp::UNIX_EPOCH),
        _ => return None,
    };
    Some(Arc::new(Token {
        id: TokenId::generate(),
        name: "ci".into(),
        scope: Scope::Read,
        streams: vec![],
        digest: [0; 32],
        created_at: Timestamp::UNIX_EPOCH,
        expires_at,
    }))
}

/// The code of the refusal, or "ok".
fn admit(peer: &str, uri: &str, headers: &[(&str, &str)]) -> &'static str {
    let mut request = Request::builder().uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (head, ()) = request.body(()).unwrap().into_parts();
    guard().admit(&head, peer.parse().unwrap()).map_or_else(|error| error.code().code, |_| "ok")
}

#[test]
fn the_own_machine_needs_no_token_and_others_do() {
    let host = ("host", "localhost:8080");
    let bearer = ("authorization", "Bearer 0123456789abcdef");
    let check = |peer: &str, headers: &[(&str, &str)], expected: &str| {
        assert_eq!(admit(peer, "/resources", headers), expected, "{peer} {headers:?}");
    };
    check("127.0.0.1", &[host], "ok");
    check("::1", &[host], "ok");
    check("::ffff:127.0.0.1", &[host], "ok");
    check("10.0.0.1", &[host], "request.unauthorized");
    check("10.0.0.1", &[host, bearer], "ok");
    check("10.0.0.1", &[host, ("authorization", "bearer  0123456789abcdef")], "ok");
    check("10.0.0.1", &[host, ("authorization", "Bearer 0123456789abcdeX")], "request.unauthorized");
    check("10.0.0.1", &[host, ("authorization", "Bearer ")], "request.unauthorized");
    check("10.0.0.1", &[host, ("authorization", "Basic 0123456789abcdef")], "request.unauthorized");
    for proxy in ["forwarded", "via", "x-real-ip", "x-forwarded-for", "X-Forwarded-Proto", "x-forwarded-anything"] {
        check("127.0.0.1", &[host, (proxy, "x")], "request.unauthorized");
        check("127.0.0.1", &[host, (proxy, "x"), bearer], "ok");
    }
}

#[test]
fn a_token_counts_wherever_it_comes_from() {
    let caller = |peer: &str, headers: &[(&str, &str)]| {
        let mut request = Request::builder().uri("/resources").header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        match guard().admit(&head, peer.parse().unwrap()) {
            Ok(admission) => admission.caller.to_string(),
            Err(error) => error.code().code.to_owned(),
        }
    };
    assert_eq!(caller("127.0.0.1", &[]), "loopback");
    assert_eq!(caller("127.0.0.1", &[("authorization", "Basic x")]), "loopback", "it is no bearer token");
    for peer in ["127.0.0.1", "10.0.0.1"] {
        let bearer = |token: &str| caller(peer, &[("authorization", &format!("Bearer {token}"))]);
        assert_eq!(bearer(TOKEN), "config token");
        let holder = bearer(ISSUED);
        assert!(holder.starts_with("token 0") && holder.ends_with(" \"ci\""), "{holder}");
        assert_eq!(bearer(EXPIRED), "request.unauthorized");
        assert_eq!(bearer("unknown"), "request.unauthorized");
        assert_eq!(bearer(""), "request.unauthorized");
    }
}

#[test]
fn another_node_is_known_by_the_secret_of_this_one() {
    let check = |secret: &str, expected: &str| {
        assert_eq!(admit("10.0.0.1", "/resources", &[("flare-forwarded", secret)]), expected, "{secret}");
        // A token does not help one who says that it is a node.
        let bearer = ("authorization", "Bearer 0123456789abcdef");
        assert_eq!(admit("127.0.0.1", "/resources", &[("flare-forwarded", secret), bearer]), expected, "{secret}");
    };
    check("the-secret-of-this-node", "ok");
    for wrong in ["", "the-secret-of-this-nod", "the-secret-of-this-node2", "0123456789abcdef"] {
        check(wrong, "request.unauthorized");
    }
}

#[test]
fn a_host_must_be_an_address_or_known() {
    let check = |host: &str, expected: &str| {
        assert_eq!(admit("127.0.0.1", "/", &[("host", host)]), expected, "{host}");
    };
    for known in ["localhost", "LOCALHOST:1", "localhost.", "127.0.0.1", "10.1.2.3:8080", "[::1]", "[::1]:8080"] {
        check(known, "ok");
    }
    check("flare.company.com", "ok");
    check("Flare.Company.com:443", "ok");
    for foreign in ["evil.com", "localhost.evil.com", "127.0.0.1.evil.com", "evil.com:8080", "", "company.com"] {
        check(foreign, "request.host-refused");
    }
    assert_eq!(admit("127.0.0.1", "/", &[]), "request.host-refused");
    assert_eq!(admit("127.0.0.1", "/", &[("host", "localhost"), ("host", "localhost")]), "request.host-refused");
    assert_eq!(admit("127.0.0.1", "http://evil.com/", &[("host", "localhost")]), "request.host-refused");
    let token = ("authorization", "Bearer 0123456789abcdef");
    assert_eq!(admit("127.0.0.1", "/", &[("host", "evil.com"), token]), "ok");
}

#[test]
fn an_origin_must_be_the_servers_own_or_listed() {
    let check = |host: &str, origin: &str, expected: &str| {
        assert_eq!(admit("127.0.0.1", "/", &[("host", host), ("origin", origin)]), expected, "{host} {origin}");
    };
    check("localhost:8080", "http://localhost:8080", "ok");
    check("localhost", "http://localhost:80", "ok");
    check("localhost:443", "https://localhost", "ok");
    check("localhost", "https://console.company.com", "ok");
    check("localhost:8080", "http://localhost", "request.origin-refused");
    check("localhost:8080", "http://localhost:3000", "request.origin-refused");
    check("localhost", "null", "request.origin-refused");
    check("localhost", "http://evil.com", "request.origin-refused");
    check("localhost", "ftp://localhost", "request.origin-refused");
    let token = ("authorization", "Bearer 0123456789abcdef");
    let foreign = [("host", "localhost"), ("origin", "http://evil.com"), token];
    assert_eq!(admit("127.0.0.1", "/", &foreign), "request.origin-refused");
}

#[test]
fn health_is_open_to_all() {
    for path in ["/health", "/ready"] {
        assert_eq!(admit("10.0.0.1", path, &[("host", "evil.com"), ("origin", "http://evil.com")]), "ok");
    }
    assert_eq!(admit("10.0.0.1", "/healthy", &[("host", "evil.com")]), "request.unauthorized");
}

#[test]
fn long_urls_and_headers_are_refused() {
    let long = "x".repeat(5000);
    assert_eq!(admit("127.0.0.1", &format!("/{long}"), &[("host", "localhost")]), "request.url-too-long");
    assert_eq!(admit("127.0.0.1", &format!("/?{long}"), &[("host", "localhost")]), "request.url-too-long");
    let huge = "x".repeat(17 << 10);
    assert_eq!(admit("127.0.0.1", "/", &[("host", "localhost"), ("x-y", &huge)]), "request.headers-too-large");
}

#[test]
fn a_refusal_says_what_to_configure() {
    let detail = |peer: &str, headers: &[(&str, &str)]| {
        let mut request = Request::builder().uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        guard().admit(&head, peer.parse().unwrap()).unwrap_err().detail().to_owned()
    };
    let host = ("host", "localhost");
    let remote = detail("10.0.0.1", &[host]);
    assert!(remote.contains("it came from 10.0.0.1") && remote.contains("`security.tokens`"), "{remote}");
    let unknown = detail("10.0.0.1", &[host, ("authorization", "Bearer unknown-secret")]);
    assert!(unknown.contains("`flare token create`") && !unknown.contains("unknown-secret"), "{unknown}");
    let expired = detail("10.0.0.1", &[host, ("authorization", &format!("Bearer {EXPIRED}"))]);
    assert!(expired.contains("\"ci\"") && expired.contains("expired at 1970-01-01T00:00:00Z"), "{expired}");
    let proxied = detail("127.0.0.1", &[host, ("via", "x")]);
    assert!(proxied.contains("came through a proxy"), "{proxied}");
    let foreign = detail("127.0.0.1", &[("host", "evil.com")]);
    assert!(foreign.contains("\"evil.com\"") && foreign.contains("`security.hosts`"), "{foreign}");
    let origin = detail("127.0.0.1", &[host, ("origin", "http://evil.com")]);
    assert!(origin.contains("http://evil.com") && origin.contains("`security.origins`"), "{origin}");
}
