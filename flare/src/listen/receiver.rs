//! What is done with each delivery: check, count, show, answer.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::Args;
use super::attempts::Attempts;
use super::delivery::Delivery;
use super::signature;
use crate::terminal;

/// The largest body that is read.
const BODY_BYTES_MAX: usize = 16 << 20;

/// The time that a client has to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Receives deliveries as the arguments say.
pub struct Receiver {
    args: Args,
    stop: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    attempts: Attempts,
    received: u64,
    /// Why nothing more can be shown.
    failed: Option<anyhow::Error>,
}

impl Receiver {
    /// A receiver that cancels `stop` when it has received enough or cannot show more.
    pub fn new(args: Args, stop: CancellationToken) -> Self {
        Self { args, stop, state: Mutex::default() }
    }

    /// How many deliveries were received, or why they could not be shown.
    pub fn finish(&self) -> anyhow::Result<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.failed.take() {
            Some(error) => Err(error),
            None => Ok(state.received),
        }
    }

    /// Takes one request; the result is what to answer.
    pub async fn receive(&self, request: Request<Incoming>) -> StatusCode {
        let (head, body) = request.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect();
        let body = match tokio::time::timeout(BODY_TIMEOUT, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return StatusCode::PAYLOAD_TOO_LARGE,
            Ok(Err(_)) => return StatusCode::BAD_REQUEST,
            Err(_) => return StatusCode::REQUEST_TIMEOUT,
        };
        let path = head.uri.path_and_query().map_or_else(|| head.uri.path().to_owned(), ToString::to_string);
        let at = Timestamp::now();
        let signature = self.check_signature(&head.headers, &body, at);
        let Some(answered) = self.show(Delivery {
            at,
            method: head.method,
            path,
            headers: head.headers,
            body,
            signature,
            attempt: 0,
            answered: StatusCode::OK,
        }) else {
            return StatusCode::SERVICE_UNAVAILABLE;
        };
        tokio::time::sleep(self.args.delay.get()).await;
        answered
    }

    fn check_signature(&self, headers: &HeaderMap, body: &Bytes, at: Timestamp) -> Option<Result<(), String>> {
        let secrets = &self.args.secrets;
        (!secrets.is_empty()).then(|| signature::verify(secrets, headers, body, at.as_second()))
    }

    /// Counts and shows the delivery and decides the answer; `None` once enough was received.
    fn show(&self, mut delivery: Delivery) -> Option<StatusCode> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.failed.is_some() || self.args.count.is_some_and(|count| state.received >= count) {
            return None;
        }
        state.received += 1;
        delivery.attempt = state.attempts.count(&message(&delivery));
        delivery.answered = self.answer(&delivery);
        let shown = match (self.args.json, self.args.quiet) {
            (true, _) => terminal::print(delivery.json_line()),
            (false, true) => Ok(()),
            (false, false) => terminal::print(delivery.lines()),
        };
        state.failed = shown.err();
        if state.failed.is_some() || self.args.count.is_some_and(|count| state.received >= count) {
            self.stop.cancel();
        }
        Some(delivery.answered)
    }

    fn answer(&self, delivery: &Delivery) -> StatusCode {
        if matches!(delivery.signature, Some(Err(_))) {
            return StatusCode::UNAUTHORIZED;
        }
        if delivery.attempt <= self.args.fail_first { self.args.fail_status } else { self.args.status }
    }
}

/// What makes two requests attempts of the same message: its id, or method and path where it has none.
fn message(delivery: &Delivery) -> String {
    match delivery.headers.get("webhook-id") {
        Some(id) => String::from_utf8_lossy(id.as_bytes()).into_owned(),
        None => format!("{} {}", delivery.method, delivery.path),
    }
}
