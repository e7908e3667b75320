//! A store that fails, hangs or breaks.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use flare_core::{
    Error, Result, StreamId,
    port::{Engine, Idempotency, Inserted, Limits, Store, Streams},
    stream::Stream,
};

use super::lab::{self, Lab};
use crate::ApiSettings;

const TIMEOUT: Duration = Duration::from_millis(50);
const USERS: &str = r#"{"endpoint":"http://api/users/{id}","change":{"field":"version"}}"#;

#[derive(Clone, Copy)]
enum Fault {
    Fails,
    Breaks,
    Hangs,
    /// Until after the time of a request.
    Lingers,
    Panics,
}

struct Faulty(Fault);

#[async_trait]
impl Streams for Faulty {
    async fn insert(&self, _: &Stream, _: Option<Idempotency>, _: Option<u64>) -> Result<Option<Inserted<StreamId>>> {
        match self.0 {
            Fault::Fails => {
                let cause = std::io::Error::other("no space left on device");
                Err(Error::unavailable("could not write to the disk").because(cause))
            }
            Fault::Breaks => Err(Error::internal("a row could not be read at 0xdead")),
            Fault::Hangs => std::future::pending().await,
            Fault::Lingers => {
                tokio::time::sleep(TIMEOUT * 2).await;
                Ok(Some(Inserted::New))
            }
            Fault::Panics => panic!("on purpose"),
        }
    }

    async fn made_by(&self, _: &Idempotency) -> Result<Option<StreamId>> {
        Ok(None)
    }

    async fn page(&self, _: Option<StreamId>, _: usize) -> Result<Vec<Stream>> {
        Ok(Vec::new())
    }

    async fn delete(&self, _: StreamId) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Engine for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn limits(&self) -> Limits {
        Limits { is_shared: false }
    }

    async fn entities_revision(&self) -> Result<u64> {
        Ok(0)
    }

    fn trouble(&self) -> Option<String> {
        Some("no space left on device".to_owned())
    }

    async fn flush(&self) -> Result<()> {
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

async fn lab(fault: Fault) -> Lab {
    let faulty = Arc::new(Faulty(fault));
    let store = Store { streams: faulty.clone(), engine: faulty, ..lab::store() };
    let settings = ApiSettings { timeout: TIMEOUT, ..ApiSettings::default() };
    Lab::over(lab::node_over(store).await, settings)
}

#[tokio::test]
async fn a_store_in_trouble_is_503_with_the_reason() {
    let lab = lab(Fault::Fails).await;
    insta::assert_snapshot!("store_unavailable", lab.send("POST", "/resources", USERS).await.shown());
    let ready = lab.get("/ready").await;
    assert_eq!(
        (ready.error(), ready.detail()),
        (
            (503, "node.not-ready".to_owned()),
            "the repository (faulty) is in trouble: no space left on device".to_owned()
        )
    );
    let repository = &lab.get("/status").await.json()["repository"];
    assert_eq!((&repository["healthy"], &repository["reason"]), (&false.into(), &"no space left on device".into()));
    assert_eq!(lab.get("/health").await.status, 200);
}

#[tokio::test]
async fn a_fault_of_flare_is_500_and_tells_no_internals() {
    for fault in [Fault::Breaks, Fault::Panics] {
        let answer = lab(fault).await.send("POST", "/resources", USERS).await;
        assert_eq!(answer.error(), (500, "internal".to_owned()));
        assert_eq!(answer.detail(), "the log of the node has the cause, under this request id");
    }
}

#[tokio::test]
async fn a_handler_that_takes_too_long_is_answered_for() {
    insta::assert_snapshot!("timeout", lab(Fault::Hangs).await.send("POST", "/resources", USERS).await.shown());
}

#[tokio::test]
async fn a_write_goes_on_when_nobody_waits_for_it_any_more() {
    let lab = lab(Fault::Lingers).await;
    assert_eq!(lab.send("POST", "/resources", USERS).await.error(), (503, "request.timeout".to_owned()));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while lab.send("PUT", "/documents/http://api/users/1", "{}").await.error().1 != "document.invalid-change" {
        assert!(tokio::time::Instant::now() < deadline, "the resource was dropped half way");
        tokio::time::sleep(TIMEOUT / 5).await;
    }
}
