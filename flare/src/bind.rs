//! Binding an address to listen on, with an error that says what to do.

use std::io;

use anyhow::Context;
use tokio::net::TcpListener;

use crate::config::ListenAddr;

/// Listens on the address. `how` names the way to choose another one, for the error.
pub async fn bind(addr: ListenAddr, how: &str) -> anyhow::Result<TcpListener> {
    let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
    for candidate in addr.candidates() {
        result = TcpListener::bind(candidate).await;
        match &result {
            Err(error) if !is_final(error) => (),
            _ => break,
        }
    }
    result.with_context(|| format!("cannot listen on {addr}; choose another address with {how}"))
}

/// Whether another candidate would fail the same way.
fn is_final(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_in_use_is_named() {
        let first = bind(ListenAddr::loopback(0), "--addr").await.unwrap();
        let port = first.local_addr().unwrap().port();
        let error = bind(ListenAddr::loopback(port), "--addr").await.unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(&format!("cannot listen on 127.0.0.1:{port}; choose another address with --addr")));
        assert!(error.contains("in use"), "{error}");
    }
}
