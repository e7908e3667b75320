//! A store whose login stops working while it is open, and works again.

use flare_core::{ErrorKind, Result, port::Store};

use crate::{
    make,
    proxy::Proxy,
    wait::{LOOK_AGAIN, LOOKS_MAX, until},
};

/// What is said meanwhile.
pub struct Refusal<'a> {
    /// The engine, as in its messages.
    pub engine: &'a str,
    pub told: &'a str,
    /// Part of every password of the test.
    pub secret: &'a str,
}

/// The store, which reaches its server through the proxy, loses its login by `take` and gets it again by `give`: it tells
/// so, keeps what it accepted, and needs not be opened again.
pub async fn check_login(
    store: &Store,
    proxy: &Proxy,
    refusal: Refusal<'_>,
    take: impl AsyncFnOnce(),
    give: impl AsyncFnOnce(),
) {
    let Refusal { engine, told, secret } = refusal;
    let stream = make::stored_stream(store, "http://api.test/users/{id}").await;
    make::write(store, make::put(&stream, "1", 1)).await.unwrap();
    take().await;
    // A server asks those who are in for no password.
    proxy.cut();
    until("the refusal is told, though nobody writes", || {
        store.engine.trouble().is_some_and(|trouble| trouble.contains(told))
    })
    .await;
    let trouble = store.engine.trouble().unwrap();
    assert!(trouble.contains(&format!("{engine} at {}", proxy.address())) && !trouble.contains(secret), "{trouble}");
    is_refused(told, secret, async || store.documents.write(vec![make::put(&stream, "1", 2)]).await).await;
    is_refused(told, secret, async || store.documents.get(stream.id, &make::url("1")).await).await;
    give().await;
    until("it is let in again", || store.engine.trouble().is_none()).await;
    // What was refused was not written.
    assert!(make::write(store, make::put(&stream, "1", 2)).await.is_some());
    store.engine.close().await.unwrap();
}

/// The call fails, in the end with what is told. A connection that was cut may be found so only now.
async fn is_refused<T>(told: &str, secret: &str, call: impl AsyncFn() -> Result<T>) {
    let mut last = String::new();
    for _ in 0..LOOKS_MAX {
        let error = call().await.err().unwrap();
        last = error.chain();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{last}");
        assert!(!last.contains(secret), "{last}");
        if last.contains(told) {
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    panic!("nobody said that it {told}: {last}");
}
