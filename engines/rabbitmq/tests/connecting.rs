//! Who may connect, to whom, and what is said if it does not work.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use std::time::Duration;

use flare_contract::tls::{Door, Greeting};
use flare_core::ErrorKind;
use flare_rabbitmq::Options;
use server::Server;

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

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_must_prove_who_it_is() {
    let Some(server) = Server::find() else { return };
    let door = async |host: &str| Door::open(&server.host(), host, Greeting::default()).await;
    let (right, wrong) = (door("localhost").await, door("elsewhere.test").await);
    for (door, scheme, with_ca, is_welcome) in [
        (&right, "amqps", true, true),
        (&right, "amqps", false, false),
        (&wrong, "amqps", true, false),
        // The door lets nobody in without TLS.
        (&right, "amqp", true, false),
    ] {
        let url = server.url_at(&format!("localhost:{}", door.port())).replace("amqp://", &format!("{scheme}://"));
        let options = Options { ca: with_ca.then(|| door.ca().to_owned()), ..at(url) };
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
}
