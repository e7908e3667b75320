//! One attempt to bring an outlet up to date on one document.

use std::{
    sync::Arc,
    sync::atomic::Ordering,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use flare_core::{
    Error, Sequence,
    delivery::{AttemptRecord, AttemptResult, Bodies},
    document::{Action, Change, Version},
    outlet::{Outlet, Revisions, Verdict},
    revision::Revision,
    stream::Stream,
    url::DocumentUrl,
};
use http::{HeaderMap, Request, StatusCode, header::RETRY_AFTER};
use http_body_util::Full;
use jiff::Timestamp;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep},
};

use super::{Shared, client::Answer, request::Push, wire::Wire};

/// What is to be delivered.
pub(crate) enum Source {
    /// This change, taken from the feed. `fresh` says that the outlet cannot have any version of the document,
    /// `doubtful` that it may have one that is not on record.
    Change { change: Arc<Change>, fresh: bool, doubtful: bool },
    /// The newest change of the document, which was this one when the hint was made.
    Hint { url: DocumentUrl, sequence: Sequence, fresh: bool, doubtful: bool },
    /// The newest change of the document, whatever it is by now; with every revision, the next that the outlet lacks.
    Newest(DocumentUrl),
}

/// What became of an attempt.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Nothing had to be sent: the outlet has it, or its filter leaves it out.
    UpToDate,
    Delivered(Version),
    /// Not wanted by the client: this is as good as what it would have.
    Discarded(Version),
    Failed(Failed),
    /// The revision was older than the outlet's `ttl`.
    Expired(Option<Sent>),
    /// A client that pulled has given the message back, or let its lease run out.
    Returned {
        delay: Duration,
        /// What the client has seen of it.
        shown: Sequence,
    },
    /// The store could not be read; no attempt was made.
    Unread(Error),
}

/// The revision that an attempt was about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub sequence: Sequence,
    pub revision: Revision,
    /// The outlet does not have the document, before and after.
    lacks: bool,
}

impl Sent {
    pub fn of(change: &Change, has: Option<Version>) -> Self {
        let lacks = change.is_delete() || has.is_none_or(|has| has.deleted);
        Self { sequence: change.sequence, revision: change.revision, lacks }
    }

    /// The version to go on from when the revision is passed over: as good as what the outlet would have.
    pub fn passed(self) -> Version {
        Version { sequence: self.sequence, revision: self.revision, deleted: self.lacks }
    }
}

#[derive(Debug)]
pub(crate) struct Failed {
    pub reason: String,
    pub sent: Option<Sent>,
    /// The endpoint says that it is gone for good.
    pub gone: bool,
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
    pub wire: Option<Arc<Wire>>,
}

/// What an attempt has found to do.
pub(crate) enum Task {
    /// The outlet is to be told of this change; it has this version.
    Tell(Arc<Change>, Action, Option<Version>),
    /// Nothing is to be sent.
    Nothing(Outcome),
}

impl Attempt {
    /// Holds `place` for as long as the request is in flight. Without one it waits for one when there is something to
    /// send.
    pub async fn run(self, place: Option<OwnedSemaphorePermit>) -> Outcome {
        let (change, action, version) = match self.find().await {
            Task::Tell(change, action, version) => (change, action, version),
            Task::Nothing(outcome) => return outcome,
        };
        let place = match place {
            Some(place) => place,
            None => match self.shared.requests.clone().acquire_owned().await {
                Ok(place) => place,
                Err(error) => {
                    return Outcome::Unread(Error::internal("there are no places for requests").because(error));
                }
            },
        };
        self.push(&change, action, version, place).await
    }

    /// Finds out what the outlet must be told.
    pub async fn find(&self) -> Task {
        match self.look().await {
            Ok(task) => task,
            Err(error) => Task::Nothing(Outcome::Unread(error)),
        }
    }

    async fn look(&self) -> Result<Task, Error> {
        let held = match &self.source {
            Source::Change { change, fresh, doubtful } => Ok((change.clone(), *fresh, *doubtful)),
            Source::Hint { url, sequence, fresh, doubtful } => {
                let change = self.shared.tail.at(self.stream.id, *sequence);
                change.map(|change| (change, *fresh, *doubtful)).ok_or(url)
            }
            Source::Newest(url) => Err(url),
        };
        let (newest, fresh, doubtful) = match held {
            Ok(held) => held,
            Err(url) => match self.shared.documents.get(self.stream.id, url).await? {
                Some(change) => (Arc::new(change), false, true),
                None => return Ok(Task::Nothing(Outcome::UpToDate)),
            },
        };
        let recorded = || self.shared.recorder.version(self.outlet.id, newest.number);
        match self.outlet.revisions {
            Revisions::Last => {
                let wanted = self.shared.filtering.wants(&self.outlet, &newest).await?;
                if !wanted && !newest.is_delete() {
                    return Ok(Task::Nothing(Outcome::UpToDate));
                }
                let version = if fresh { None } else { recorded().await? };
                Ok(self.weigh(newest, version, wanted, doubtful).unwrap_or(Task::Nothing(Outcome::UpToDate)))
            }
            Revisions::All => {
                let version = if fresh { None } else { recorded().await? };
                // A crash must not have an older revision sent again after a newer one.
                self.shared.recorder.settle(self.outlet.id, newest.number).await?;
                self.look_through(&newest, version, doubtful).await
            }
        }
    }

    /// Of all revisions that the outlet has not been told of, the first that it must be told of.
    async fn look_through(&self, newest: &Arc<Change>, has: Option<Version>, doubtful: bool) -> Result<Task, Error> {
        let mut after = has.map_or(Sequence::START, |has| has.sequence).max(self.outlet.start());
        while after < newest.sequence {
            let next = if newest.replaces.is_none_or(|older| older <= after) {
                newest.clone()
            } else {
                match self.shared.documents.next_change(self.stream.id, &newest.url, after).await? {
                    Some(next) => Arc::new(next),
                    None => break,
                }
            };
            after = next.sequence;
            let wanted = self.shared.filtering.wants(&self.outlet, &next).await?;
            if let Some(task) = self.weigh(next, has, wanted, doubtful) {
                return Ok(task);
            }
        }
        Ok(Task::Nothing(Outcome::UpToDate))
    }

    /// What the change means for an outlet that has this version; none if nothing.
    fn weigh(&self, change: Arc<Change>, has: Option<Version>, wanted: bool, doubtful: bool) -> Option<Task> {
        let must_know = change.is_delete() && misses_delete(has, doubtful);
        if !wanted && !must_know {
            return None;
        }
        let action = action(&change, has)?;
        Some(if self.is_expired(&change) {
            Task::Nothing(Outcome::Expired(Some(Sent::of(&change, has))))
        } else {
            Task::Tell(change, action, has)
        })
    }

    fn is_expired(&self, change: &Change) -> bool {
        let age = || Duration::try_from(Timestamp::now().duration_since(change.updated_at)).unwrap_or_default();
        self.outlet.delivery.ttl.is_some_and(|ttl| age() > ttl)
    }

    async fn push(
        &self,
        change: &Change,
        action: Action,
        has: Option<Version>,
        place: OwnedSemaphorePermit,
    ) -> Outcome {
        let sent = Sent::of(change, has);
        let failed = |reason| Outcome::Failed(Failed { reason, sent: Some(sent), gone: false, retry_after: None });
        let now = Timestamp::now();
        let push = Push {
            outlet: &self.outlet,
            stream: &self.stream,
            change,
            action,
            attempt: self.failed + 1,
            now,
            wire: self.wire.as_deref(),
            origin: &self.shared.settings.origin,
        };
        let prepared = push.request().and_then(|request| {
            let must_ask = self.wire.as_ref().filter(|wire| wire.must_ask(request.uri()));
            let question = must_ask.map(|_| push.question(request.uri())).transpose()?;
            Ok((request, question))
        });
        let (request, question) = match prepared {
            Ok(prepared) => prepared,
            Err(reason) => return failed(reason),
        };
        let body = request.body().clone();
        let in_flight = &self.shared.counters.in_flight;
        in_flight.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        let answer = self.send(request, question, place).await;
        in_flight.fetch_sub(1, Ordering::Relaxed);
        self.log(change, action, now, started.elapsed(), body, &answer);
        let Answer { status, headers, .. } = match answer {
            Ok(answer) => answer,
            Err(reason) => return failed(reason),
        };
        match self.outlet.delivery.judge(status.as_u16()) {
            Verdict::Delivered => Outcome::Delivered(Version {
                sequence: change.sequence,
                revision: change.revision,
                deleted: change.is_delete(),
            }),
            Verdict::Discarded => Outcome::Discarded(sent.passed()),
            Verdict::Failed => Outcome::Failed(Failed {
                reason: format!("the endpoint answered {status}"),
                sent: Some(sent),
                gone: status == StatusCode::GONE,
                retry_after: retry_after(status, &headers, SystemTime::now(), self.shared.settings.retry_after_max),
            }),
        }
    }

    /// Notes what was sent and what came of it.
    fn log(
        &self,
        change: &Change,
        action: Action,
        at: Timestamp,
        duration: Duration,
        body: Full<Bytes>,
        answer: &Result<Answer, String>,
    ) {
        let settings = &self.shared.settings;
        if settings.attempts_retention.is_zero() {
            return;
        }
        let request = body.into_inner().unwrap_or_default();
        let response = answer.as_ref().map(|answer| &answer.body[..]).unwrap_or_default();
        self.shared.attempt_log.add(
            self.outlet.id,
            AttemptRecord {
                at,
                url: change.url.clone(),
                revision: change.revision,
                action,
                attempt: self.failed + 1,
                duration,
                result: match answer {
                    Ok(answer) => AttemptResult::Answered(answer.status.as_u16()),
                    Err(reason) => AttemptResult::Failed(reason.clone()),
                },
                request_bytes: request.len() as u32,
                response_bytes: answer.as_ref().map_or(0, |answer| answer.body_bytes) as u32,
                bodies: settings.keep_bodies.then(|| Bodies { request, response: Bytes::copy_from_slice(response) }),
            },
        );
    }

    /// A request that is not answered soon gives its place to others and waits among the slow ones, so that endpoints
    /// that hang do not hold up those that do not.
    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        question: Option<Request<Full<Bytes>>>,
        place: OwnedSemaphorePermit,
    ) -> Result<Answer, String> {
        let timeout = self.outlet.delivery.timeout;
        let started = Instant::now();
        let answer = async {
            if let (Some(wire), Some(question)) = (&self.wire, question) {
                wire.ask(&self.shared.client, question, &self.shared.settings.origin).await?;
            }
            self.shared.client.send(request).await
        };
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

/// How long the client asks to be left alone: seconds, or until a date. One that is over asks for nothing.
fn retry_after(status: StatusCode, headers: &HeaderMap, now: SystemTime, max: Duration) -> Option<Duration> {
    if !matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return None;
    }
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).ok()?,
    };
    Some(wait.min(max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_after_is_seconds_or_a_date_within_the_maximum() {
        let now = httpdate::parse_http_date("Mon, 16 Nov 2026 08:00:00 GMT").unwrap();
        let check = |status: StatusCode, value: &'static str, expected: Option<u64>| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, http::HeaderValue::from_static(value))]);
            let wait = retry_after(status, &headers, now, Duration::from_secs(100));
            assert_eq!(wait, expected.map(Duration::from_secs), "{value}");
        };
        let busy = StatusCode::TOO_MANY_REQUESTS;
        check(busy, "7", Some(7));
        check(busy, "101", Some(100));
        check(busy, "Mon, 16 Nov 2026 08:00:09 GMT", Some(9));
        check(busy, "Tue, 17 Nov 2026 08:00:00 GMT", Some(100));
        check(busy, "Monday, 16-Nov-26 08:00:09 GMT", Some(9));
        check(busy, "Mon, 16 Nov 2026 07:59:59 GMT", None);
        check(busy, "soon", None);
        check(busy, "-1", None);
        check(StatusCode::SERVICE_UNAVAILABLE, "7", Some(7));
        check(StatusCode::INTERNAL_SERVER_ERROR, "7", None);
    }
}
