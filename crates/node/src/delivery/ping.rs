//! A test of an endpoint: a signed request that is no delivery, and what the endpoint said to it.

use std::{sync::Arc, time::Duration};

use flare_core::{
    DocumentNumber, Sequence,
    document::{Action, Change, WrittenChange},
    outlet::{Outlet, Verdict},
    revision::Revision,
    stream::Stream,
    url::DocumentUrl,
};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Delivery, request::Push, wire::Wire};

/// Stands for every wildcard of the resource's endpoint.
const WILDCARD: &str = "test";

/// What came of a test.
#[derive(Clone, Debug)]
pub struct Tested {
    /// The URL that was called.
    pub url: String,
    /// What the endpoint answered, with the beginning of the body; or why it did not.
    pub answer: Result<(u16, String), String>,
    /// The answer would have counted as a delivery.
    pub is_delivered: bool,
    pub duration: Duration,
}

impl Delivery {
    /// An error is a template that gives no valid request.
    pub async fn test(&self, outlet: &Arc<Outlet>, stream: &Stream) -> Result<Tested, String> {
        let now = Timestamp::now();
        let change = sample(stream, now)?;
        let wire = Wire::of(outlet);
        let push = Push {
            outlet,
            stream,
            change: &change,
            action: Action::Test,
            attempt: 1,
            now,
            wire: wire.as_deref(),
            origin: &self.shared.settings.origin,
        };
        let request = push.request()?;
        let url = request.uri().to_string();
        let (timeout, started) = (outlet.delivery.timeout, Instant::now());
        let answer = match tokio::time::timeout(timeout, self.shared.client.send(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("the endpoint did not answer within {timeout:?}")),
        };
        let duration = started.elapsed();
        let answer = answer.map(|answer| {
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            (answer.status.as_u16(), body)
        });
        let verdict = answer.as_ref().map(|(status, _)| outlet.delivery.judge(*status));
        Ok(Tested { url, is_delivered: verdict == Ok(Verdict::Delivered), answer, duration })
    }
}

/// A change of a document that does not exist.
fn sample(stream: &Stream, now: Timestamp) -> Result<Change, String> {
    let mut url = String::new();
    let mut rest = stream.endpoint.as_str();
    while let Some((before, wildcard)) = rest.split_once('{') {
        url.push_str(before);
        url.push_str(WILDCARD);
        rest = wildcard.split_once('}').map_or("", |(_, after)| after);
    }
    url.push_str(rest);
    let url = DocumentUrl::parse(&url).map_err(|error| format!("{url} is not a URL: {error}"))?;
    // Each test is a message of its own.
    let sequence = Sequence(now.as_microsecond().unsigned_abs());
    let number = DocumentNumber(sequence.0);
    let written = WrittenChange { sequence, number, revision: Revision::new(0), replaces: None };
    Ok(Change::new(stream.id, &written, url, now, None))
}
