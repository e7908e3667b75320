//! Promise 5: everything has a named maximum; past it the caller gets a clear error, and nobody else notices.

use std::process::Command;

use flare_tests::{Flare, RawConnection, binary, run_to_end};
use http::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::{USERS, user};

const BODY_MAX: usize = 1 << 20;

/// A document of exactly so many bytes.
fn document_of(bytes: usize) -> String {
    let frame = r#"{"revision":1,"padding":""}"#.len();
    format!(r#"{{"revision":1,"padding":"{}"}}"#, "x".repeat(bytes - frame))
}

#[tokio::test]
async fn a_body_of_one_mebibyte_is_taken_and_one_byte_more_is_not() {
    let flare = Flare::start().await;
    flare.resource(USERS).await;
    let path = format!("/documents/{}", user(1));
    flare.client().send(Method::PUT, &path, &[], document_of(BODY_MAX)).await.unwrap().expect(202);
    // The server answers before the body has arrived, so a client may see the connection end while it writes.
    if let Ok(answer) = flare.client().send(Method::PUT, &path, &[], document_of(BODY_MAX + 1)).await {
        answer.expect_error(413, "request.too-large");
    }
    assert_eq!(flare.revision(&user(1)).await, 1);
}

#[tokio::test]
async fn a_body_whose_length_is_past_the_limit_is_refused_before_it_comes() {
    let flare = Flare::start().await;
    flare.resource(USERS).await;
    for (method, path) in [("PUT", format!("/documents/{}", user(1))), ("POST", "/resources".to_owned())] {
        let mut connection = RawConnection::open(flare.addr()).await;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", 1_u64 << 40);
        assert!(connection.write(head).await);
        let answer = connection.head().await;
        assert!(answer.starts_with("http/1.1 413 "), "{method} {path}: {answer}");
        // The rest of the body is not read, so the connection ends here; a client that is not told would use it again.
        assert!(answer.contains("\r\nconnection: close\r\n"), "{method} {path}: {answer}");
        connection.closed().await;
    }
}

#[tokio::test]
async fn a_body_without_a_length_is_cut_at_the_limit() {
    const PIECE: usize = 64 << 10;
    /// What the limit allows, and what the buffers of both sockets may hold besides.
    const PIECES_MAX: usize = BODY_MAX / PIECE + (16 << 20) / PIECE;
    let flare = Flare::start().await;
    flare.resource(USERS).await;
    let mut connection = RawConnection::open(flare.addr()).await;
    let path = format!("/documents/{}", user(1));
    let head = format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert!(connection.write(head).await);
    let piece = format!("{PIECE:x}\r\n{}\r\n", "x".repeat(PIECE));
    let (status, taken) = connection.write_until_answered(piece.as_bytes(), usize::MAX).await;
    assert!(taken <= PIECES_MAX, "the server read {} MiB", (taken * PIECE) >> 20);
    // The answer may be lost when the server closes while we still write; then the end of the connection says no.
    assert!(matches!(status, Some(413) | None), "{status:?}");
    flare.client().get_document(&user(1)).await.expect(404);
}

#[tokio::test]
async fn json_that_is_nested_too_deeply_is_refused() {
    let flare = Flare::start().await;
    flare.resource(USERS).await;
    let path = format!("/documents/{}", user(1));
    let nested = |depth: usize| format!(r#"{{"revision":1,"x":{}{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1));
    for depth in [65, 10_000, 400_000] {
        let answer = flare.client().send(Method::PUT, &path, &[], nested(depth)).await.unwrap();
        assert!([400, 422].contains(&answer.status), "depth {depth}: {} {}", answer.status, answer.text());
    }
    flare.client().send(Method::PUT, &path, &[], nested(64)).await.unwrap().expect(202);
    let deep = format!(r#"{{"endpoint":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let answer = flare.client().send(Method::POST, "/resources", &[("content-type", "application/json")], deep).await;
    answer.unwrap().expect(400);
}

#[tokio::test]
async fn a_url_that_is_too_long_is_refused() {
    let flare = Flare::start().await;
    flare.resource("http://api.test/{*}").await;
    let long = format!("http://api.test/{}", "x".repeat(5000));
    flare.client().put_document(&long, &json!({ "revision": 1 })).await.expect_error(414, "request.url-too-long");
    let mut connection = RawConnection::open(flare.addr()).await;
    connection.write(format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(1 << 20))).await;
    let status = connection.status().await;
    assert!(matches!(status, Some(414 | 431 | 400) | None), "{status:?}");
}

#[tokio::test]
async fn headers_that_are_too_large_are_refused() {
    let flare = Flare::start().await;
    for headers in [
        format!("X-Large: {}\r\n", "x".repeat(64 << 10)),
        (0..5000).map(|number| format!("X-{number}: x\r\n")).collect::<String>(),
        (0..200).map(|number| format!("X-{number}: {}\r\n", "x".repeat(100))).collect::<String>(),
    ] {
        let mut connection = RawConnection::open(flare.addr()).await;
        connection.write(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")).await;
        let status = connection.status().await;
        assert!(matches!(status, Some(431) | None), "{status:?} for {} bytes", headers.len());
    }
    flare.client().get("/").await.expect(200);
}

#[tokio::test]
async fn slow_clients_are_cut_while_others_work() {
    let flare = Flare::configured("[http]\nread-timeout = \"500ms\"\n").await;
    flare.resource(USERS).await;
    let mut slow = Vec::new();
    for number in 0..50 {
        let mut connection = RawConnection::open(flare.addr()).await;
        let begin = match number % 3 {
            0 => "GET / HT".to_owned(),
            1 => "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ".to_owned(),
            _ => format!("PUT /documents/{} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{", user(0)),
        };
        assert!(connection.write(begin).await);
        slow.push(connection);
    }
    for number in 1..=20 {
        flare.put(&user(number), 1).await;
    }
    for connection in slow {
        connection.closed().await;
    }
    flare.client().get_document(&user(0)).await.expect(404);
}

#[tokio::test]
async fn a_body_that_drips_is_cut_as_a_whole() {
    let flare = Flare::configured("[http]\nread-timeout = \"10s\"\nbody-timeout = \"500ms\"\n").await;
    flare.resource(USERS).await;
    let mut connection = RawConnection::open(flare.addr()).await;
    let path = format!("/documents/{}", user(1));
    connection.write(format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")).await;
    let dripping = async {
        while connection.write("x").await {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    flare_tests::within("the server cuts the drip", dripping).await;
}

#[tokio::test]
async fn a_connection_past_the_cap_is_told_and_served_once_there_is_room() {
    const CAP: usize = 4;
    let flare = Flare::configured(&format!("[http]\nconnections-max = {CAP}\n")).await;
    let ask = async || {
        let mut connection = RawConnection::open(flare.addr()).await;
        connection.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        (connection.status().await, connection)
    };
    let mut held = Vec::new();
    let refused = loop {
        match ask().await {
            (Some(200), connection) => held.push(connection),
            (refused, _) => break refused,
        }
        assert!(held.len() <= CAP, "{} connections are served at once", held.len());
    };
    assert_eq!(refused, Some(503));
    drop(held);
    let served = async { while ask().await.0 != Some(200) {} };
    flare_tests::within("the server serves again", served).await;
}

#[tokio::test]
async fn a_batch_past_the_limit_is_refused_as_a_whole() {
    let flare = Flare::configured("[http]\nbatch-max = 10\n").await;
    flare.resource(USERS).await;
    let batch = |count| -> Vec<_> {
        (0..count).map(|number| json!({ "id": user(number), "document": { "revision": 1 } })).collect()
    };
    flare.client().post("/documents", &json!(batch(11))).await.expect_error(413, "request.batch-too-large");
    flare.client().get_document(&user(0)).await.expect(404);
    flare.client().post("/documents", &json!(batch(10))).await.expect(202);
    assert_eq!(flare.revision(&user(9)).await, 1);
}

#[tokio::test]
async fn a_list_past_the_limit_is_refused_or_cut() {
    let flare = Flare::configured("[http]\ndefault-limit = 2\nlimit-max = 5\n").await;
    for number in 0..8 {
        flare.resource(&format!("http://api.test/{number}/{{id}}")).await;
    }
    let list = flare.client().get("/resources").await.expect(200).json();
    assert_eq!(list["pagination"], json!({ "limit": 2, "offset": 0, "total": 8 }));
    let answer = flare.client().get("/resources?limit=6").await;
    let cut = answer.status == 200 && answer.json()["pagination"]["limit"] == 5;
    assert!(cut || answer.status == 400, "{} {}", answer.status, answer.text());
    let list = flare.client().get("/resources?limit=5&offset=5").await.expect(200).json();
    assert_eq!(list["pagination"], json!({ "limit": 5, "offset": 5, "total": 8 }));
}

#[tokio::test]
async fn unknown_fields_are_refused_by_name() {
    let flare = Flare::start().await;
    let resource = flare.resource(USERS).await;
    let subscriptions = format!("/resources/{resource}/subscriptions");
    let cases = [
        ("/resources", json!({ "endpoint": "http://b.test/{id}", "change": { "field": "revision" }, "kolor": 1 })),
        ("/resources", json!({ "endpoint": "http://b.test/{id}", "change": { "field": "revision", "kolor": 1 } })),
        (&subscriptions, json!({ "name": "a", "endpoint": { "url": "http://127.0.0.1/", "kolor": "post" } })),
        (
            &subscriptions,
            json!({ "name": "a", "endpoint": { "url": "http://127.0.0.1/" }, "delivery": { "retry": { "kolor": 1 } } }),
        ),
    ];
    for (path, body) in cases {
        let answer = flare.client().post(path, &body).await.expect_error(400, "request.unknown-field");
        assert!(answer.text().contains("kolor"), "{}", answer.text());
    }
}

#[tokio::test]
async fn an_unknown_key_of_the_configuration_is_refused_with_its_place_and_the_nearest_name() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("flare.toml");
    std::fs::write(&file, "[http]\naddr = \"127.0.0.1:0\"\nbody-mex = \"1MiB\"\n").unwrap();
    for arguments in [&["start", "--config"][..], &["config", "--check"]] {
        let mut command = Command::new(binary());
        command.args(arguments).arg(&file).current_dir(&folder);
        let ended = run_to_end(command).await;
        assert!(!ended.status.success(), "{arguments:?}: {ended:?}");
        for said in ["body-mex", "body-max", "flare.toml:3"] {
            assert!(ended.output.contains(said), "{arguments:?} does not say {said}: {}", ended.output);
        }
    }
}
