//! TLS as the URL asks for it, through a door that speaks TLS before a server that need not.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use std::path::PathBuf;

use flare_contract::{
    make,
    tls::{Door, Greeting},
};
use flare_core::{ErrorKind, Result, port::Store};
use flare_postgres::Options;
use server::Server;

/// What a client sends when it asks for TLS, and the server's yes.
const GREETING: Greeting = Greeting { asked: &[0, 0, 0, 8, 4, 210, 22, 47], answered: b"S" };

#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_asked_who_it_is_as_the_url_says() {
    let Some(server) = Server::find() else { return };
    let open = async |door: &Door, mode: &str, ca: Option<PathBuf>| -> Result<Store> {
        let base = server.url.replace(&server.host(), &format!("localhost:{}", door.port()));
        let url = Some(format!("{base}?sslmode={mode}"));
        flare_postgres::open(&Options { url, ca, ..server.options("tls") }).await
    };
    let door = async |host: &str| Door::open(&server.host(), host, GREETING).await;
    let (right, wrong) = (door("localhost").await, door("elsewhere.test").await);
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
        let opened = open(door, mode, with_ca.then(|| door.ca().to_owned())).await;
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
    assert!(open(&right, "require", Some(wrong.ca().to_owned())).await.is_err());
    server.clean_up().await;
}
