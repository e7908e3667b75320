//! One attempt to bring an outlet up to date on one document.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use flare_core::{
    Error,
    document::{Action, Change, Version},
    outlet::{Outlet, Verdict},
    stream::Stream,
    url::DocumentUrl,
};
use http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use jiff::Timestamp;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep},
};

use super::{Shared, request::Push};

/// What is to be delivered.
pub(crate) enum Source {
    /// This change, taken from the feed. `fresh` says that the outlet cannot have any version of the document,
    /// `doubtful` that it may have one that is not on record.
    Change { change: Arc<Change>, fresh: bool, doubtful: bool },
    /// The newest change of the document, whatever it is by now.
    Newest(DocumentUrl),
}

/// What became of an attempt.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Nothing had to be sent: the outlet has it, or its filter leaves it out.
    UpToDate,
    Delivered(Version),
    Discarded,
    Failed(Failed),
    /// The store could not be read; no attempt was made.
    Unread(Error),
}

#[derive(Debug)]
pub(crate) struct Failed {
    pub reason: String,
    /// The client asks to be left alone for so long.
    pub retry_after: Option<Duration>,
}

pub(crate) struct Attempt {
    pub shared: Arc<Shared>,
    pub outlet: Arc<Outlet>,
    pub stream: Arc<Stream>,
    pub source: Source,
    /// Attempts that failed before this one.
    pub failed: u32,
}

impl Attempt {
    /// Holds `place` for as long as the request is in flight. Without one it waits for one when there is something to
    /// send.
    pub async fn run(self, place: Option<OwnedSemaphorePermit>) -> Outcome {
        let (change, fresh, doubtful) = match &self.source {
            Source::Change { change, fresh, doubtful } => (change.clone(), *fresh, *doubtful),
            Source::Newest(url) => match self.shared.documents.get(self.stream.id, url).await {
                Ok(Some(change)) => (Arc::new(change), false, true),
                Ok(None) => return Outcome::UpToDate,
                Err(error) => return Outcome::Unread(error),
            },
        };
        let wanted = match self.shared.filtering.wants(&self.outlet, &change).await {
            Ok(wanted) => wanted,
            Err(error) => return Outcome::Unread(error),
        };
        if !wanted && !change.is_delete() {
            return Outcome::UpToDate;
        }
        let version = if fresh {
            None
        } else {
            match self.shared.recorder.version(self.outlet.id, change.number) {
                Ok(version) => version,
                Err(error) => return Outcome::Unread(error),
            }
        };
        if !wanted && !misses_delete(version, doubtful) {
            return Outcome::UpToDate;
        }
        let Some(action) = action(&change, version) else { return Outcome::UpToDate };
        let place = match place {
            Some(place) => place,
            None => match self.shared.requests.clone().acquire_owned().await {
                Ok(place) => place,
                Err(error) => {
                    return Outcome::Unread(Error::internal("there are no places for requests").because(error));
                }
            },
        };
        self.push(&change, action, place).await
    }

    async fn push(&self, change: &Change, action: Action, place: OwnedSemaphorePermit) -> Outcome {
        let push = Push {
            outlet: &self.outlet,
            stream: &self.stream,
            change,
            action,
            attempt: self.failed + 1,
            now: Timestamp::now(),
        };
        let request = match push.request() {
            Ok(request) => request,
            Err(reason) => return Outcome::Failed(Failed { reason, retry_after: None }),
        };
        let in_flight = &self.shared.counters.in_flight;
        in_flight.fetch_add(1, Ordering::Relaxed);
        let answer = self.send(request, place).await;
        in_flight.fetch_sub(1, Ordering::Relaxed);
        let (status, headers) = match answer {
            Ok(parts) => (parts.status, parts.headers),
            Err(reason) => return Outcome::Failed(Failed { reason, retry_after: None }),
        };
        match self.outlet.delivery.judge(status.as_u16()) {
            Verdict::Delivered => Outcome::Delivered(Version {
                sequence: change.sequence,
                revision: change.revision,
                deleted: change.is_delete(),
            }),
            Verdict::Discarded => Outcome::Discarded,
            Verdict::Failed => Outcome::Failed(Failed {
                reason: format!("the endpoint answered {status}"),
                retry_after: retry_after(status, &headers, self.shared.settings.retry_after_max),
            }),
        }
    }

    /// A request that is not answered soon gives its place to others and waits among the slow ones, so that endpoints
    /// that hang do not hold up those that do not.
    async fn send(
        &self,
        request: http::Request<http_body_util::Full<bytes::Bytes>>,
        place: OwnedSemaphorePermit,
    ) -> Result<http::response::Parts, String> {
        let timeout = self.outlet.delivery.timeout;
        let started = Instant::now();
        let answer = self.shared.client.send(request);
        let mut timer = std::pin::pin!(sleep(timeout.min(self.shared.settings.slow_after)));
        let mut answer = std::pin::pin!(answer);
        let mut place = place;
        let mut is_slow = false;
        loop {
            tokio::select! {
                biased;
                answered = &mut answer => {
                    drop(place);
                    return answered;
                }
                () = &mut timer => {
                    if started.elapsed() >= timeout {
                        return Err(format!("the endpoint did not answer within {timeout:?}"));
                    }
                    if !std::mem::replace(&mut is_slow, true)
                        && let Ok(slow_place) = self.shared.slow_requests.clone().try_acquire_owned()
                    {
                        place = slow_place;
                    }
                    timer.as_mut().reset(started + timeout);
                }
            }
        }
    }
}

/// What the outlet must be told so that it is up to date, if anything.
///
/// A delete is told even where no version is known, or that of an earlier delete: the client may have the document from an attempt that looked like
/// a failure, or whose record a crash took.
pub(crate) fn action(change: &Change, version: Option<Version>) -> Option<Action> {
    match version {
        Some(version) if version.sequence >= change.sequence => None,
        _ if change.is_delete() => Some(Action::Delete),
        Some(version) if !version.deleted => Some(Action::Update),
        _ => Some(Action::Create),
    }
}

/// Whether an outlet must be told of a delete that its filter does not ask for: it has the document, or it may have it
/// from an attempt that is not on record.
pub(crate) fn misses_delete(version: Option<Version>, doubtful: bool) -> bool {
    version.map_or(doubtful, |version| !version.deleted)
}

/// How long the client asks to be left alone. Only seconds are read; a date is an absolute time of a foreign clock.
fn retry_after(status: StatusCode, headers: &HeaderMap, max: Duration) -> Option<Duration> {
    if !matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return None;
    }
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(max))
}
