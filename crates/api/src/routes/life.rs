//! The life of a subscription: paused, resumed, behind, given up.

use std::sync::Arc;

use axum::{
    extract::{RawQuery, State},
    response::Response,
};
use bytes::Bytes;
use flare_core::{
    OutletId, StreamId,
    delivery::{AttemptKind, AttemptQuery},
    outlet::Outlet,
    stream::Stream,
    url::DocumentUrl,
};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;

use super::{SubscriptionPath, json, no_resource, no_subscription, require_json};
use crate::{
    api::Shared,
    error::{self, ApiError, Subject},
    openapi::{Described, Identified, Listed},
    parameters::Parameters,
    wire::{
        json as wire_json,
        life::{
            Attempt, AttemptList, BehindList, BehindShown, DeadLetterChoice, DeadLetterList, DeadLetterShown,
            DeadLettersSettled, LagShown, ResyncShown, TestShown,
        },
        page::Pagination,
        subscription::Subscription,
    },
};

/// The resource and the subscription of a path.
pub(super) fn found(shared: &Shared, id: StreamId, sid: OutletId) -> Result<(Arc<Stream>, Arc<Outlet>), ApiError> {
    let stream = shared.node.stream(id).ok_or_else(|| no_resource(&id))?;
    let outlet = shared.node.outlet(id, sid).ok_or_else(|| no_subscription(&sid))?;
    Ok((stream, outlet))
}

pub(super) fn failed(error: &flare_core::Error) -> ApiError {
    ApiError::of(error, Subject::Subscription)
}

/// Pauses a subscription.
///
/// Nothing more is sent to it until it is resumed. It keeps its place, and loses nothing.
#[utoipa::path(post, path = "/resources/{id}/subscriptions/{sid}/pause", operation_id = "pauseSubscription",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    responses((status = 200, description = "It is paused", body = Subscription), Identified))]
pub(crate) async fn pause(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
) -> Result<Response, ApiError> {
    found(&shared, id, sid)?;
    let outlet = shared.node.pause_outlet(id, sid).await.map_err(|error| failed(&error))?;
    json(StatusCode::OK, &Subscription::of(&outlet))
}

/// Resumes a subscription that was paused or disabled.
///
/// It goes on where it stopped.
#[utoipa::path(post, path = "/resources/{id}/subscriptions/{sid}/resume", operation_id = "resumeSubscription",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    responses((status = 200, description = "It is active", body = Subscription), Identified))]
pub(crate) async fn resume(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
) -> Result<Response, ApiError> {
    found(&shared, id, sid)?;
    let outlet = shared.node.resume_outlet(id, sid).await.map_err(|error| failed(&error))?;
    json(StatusCode::OK, &Subscription::of(&outlet))
}

/// Tries a subscription out.
///
/// Calls its endpoint with a signed message whose action is `test`, with `test` for each wildcard, and says what came of
/// it. Nothing is recorded, and nothing is retried.
#[utoipa::path(post, path = "/resources/{id}/subscriptions/{sid}/test", operation_id = "testSubscription",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    responses((status = 200, description = "What the endpoint said", body = TestShown),
        (status = 422, description = "The templates give no valid request", body = error::ErrorAnswer), Identified))]
pub(crate) async fn test(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
) -> Result<Response, ApiError> {
    let (stream, outlet) = found(&shared, id, sid)?;
    let tested = shared.node.test_outlet(&outlet, &stream).await.map_err(|error| failed(&error))?;
    let tested = tested.map_err(|reason| ApiError::new(error::SUBSCRIPTION_INVALID, reason))?;
    json(StatusCode::OK, &TestShown::from(tested))
}

/// Says how far a subscription is behind.
#[utoipa::path(get, path = "/resources/{id}/subscriptions/{sid}/lag", operation_id = "getLag", tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    responses((status = 200, description = "How far it is behind", body = LagShown), Identified))]
pub(crate) async fn lag(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
) -> Result<Response, ApiError> {
    found(&shared, id, sid)?;
    let lag = shared.node.lag(id, sid).await.map_err(|error| failed(&error))?;
    json(StatusCode::OK, &LagShown::from(lag))
}

/// Lists the documents on which a subscription is behind.
#[utoipa::path(get, path = "/resources/{id}/subscriptions/{sid}/lag/documents", operation_id = "listLag",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid"),
        ("limit" = Option<u64>, Query, minimum = 1, description = "How many at most."),
        ("offset" = Option<u64>, Query, minimum = 0, maximum = 9007199254740991_u64, description = "How many to skip.")),
    responses((status = 200, description = "A page", body = BehindList), Listed))]
pub(crate) async fn lag_documents(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let page = Parameters::read(query.as_deref(), &["limit", "offset"])?.page(&shared.settings)?;
    let (stream, _) = found(&shared, id, sid)?;
    let behind =
        shared.node.documents_behind(id, sid, page.offset, page.limit).await.map_err(|error| failed(&error))?;
    json(StatusCode::OK, &BehindList { documents: behind.iter().map(|one| BehindShown::of(one, &stream)).collect() })
}

/// Compares what a subscription has with what there is, and repairs the difference.
#[utoipa::path(post, path = "/resources/{id}/subscriptions/{sid}/resync", operation_id = "resyncSubscription",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    responses((status = 200, description = "What was found", body = ResyncShown), Identified))]
pub(crate) async fn resync(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
) -> Result<Response, ApiError> {
    found(&shared, id, sid)?;
    let resync = shared.node.resync(id, sid).await.map_err(|error| failed(&error))?;
    json(StatusCode::OK, &ResyncShown::from(resync))
}

/// Lists what was sent to a subscription, and what came of it, the newest first.
#[utoipa::path(get, path = "/resources/{id}/subscriptions/{sid}/attempts", operation_id = "listAttempts",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid"),
        ("limit" = Option<u64>, Query, minimum = 1, description = "How many at most."),
        ("before" = Option<String>, Query, format = "date-time", description = "Only those before: the `next` of a page."),
        ("since" = Option<String>, Query, format = "date-time", description = "Only those at or after."),
        ("document" = Option<String>, Query, description = "Only of the document with this URL."),
        ("status" = Option<String>, Query, pattern = "^([1-5][0-9]{2}|failed)$",
            description = "Only those that were answered so, or `failed`: not answered with 2xx.")),
    responses((status = 200, description = "A page", body = AttemptList), Listed))]
pub(crate) async fn attempts(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let parameters = Parameters::read(query.as_deref(), &["limit", "before", "since", "document", "status"])?;
    let time = "a time such as 2026-01-31T12:00:00Z";
    let query =
        AttemptQuery {
            before: parameters.parse::<Timestamp>("before", time)?,
            since: parameters.parse::<Timestamp>("since", time)?,
            document: match parameters.get("document") {
                Some(url) => Some(DocumentUrl::parse(url).map_err(|error| {
                    ApiError::new(error::INVALID_PARAMETER, format!("document is {url:?}: {error}"))
                })?),
                None => None,
            },
            which: read_kind(parameters.get("status"))?,
            limit: parameters.page(&shared.settings)?.limit,
        };
    let (stream, _) = found(&shared, id, sid)?;
    let limit = query.limit;
    let attempts = shared.node.attempts(sid, query).await.map_err(|error| failed(&error))?;
    let next = attempts.last().filter(|_| attempts.len() >= limit).map(|last| last.at.to_string());
    json(
        StatusCode::OK,
        &AttemptList { attempts: attempts.iter().map(|one| Attempt::of(one, &stream)).collect(), next },
    )
}

fn read_kind(status: Option<&str>) -> Result<AttemptKind, ApiError> {
    let wrong = |text: &str| {
        ApiError::new(
            error::INVALID_PARAMETER,
            format!("status is {text:?}, it must be a code from 100 to 599 or \"failed\""),
        )
    };
    match status {
        None => Ok(AttemptKind::All),
        Some("failed") => Ok(AttemptKind::Failed),
        Some(text) => match text.parse::<u16>() {
            Ok(status) if text.len() == 3 && (100..600).contains(&status) => Ok(AttemptKind::Status(status)),
            _ => Err(wrong(text)),
        },
    }
}

/// Lists what was given up for a subscription, the oldest first.
#[utoipa::path(get, path = "/resources/{id}/subscriptions/{sid}/dead-letters", operation_id = "listDeadLetters",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid"),
        ("limit" = Option<u64>, Query, minimum = 1, description = "How many at most."),
        ("offset" = Option<u64>, Query, minimum = 0, maximum = 9007199254740991_u64, description = "How many to skip.")),
    responses((status = 200, description = "A page", body = DeadLetterList), Listed))]
pub(crate) async fn dead_letters(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let page = Parameters::read(query.as_deref(), &["limit", "offset"])?.page(&shared.settings)?;
    let (stream, _) = found(&shared, id, sid)?;
    let letters = shared.node.dead_letters(sid, page.offset, page.limit).await.map_err(|error| failed(&error))?;
    json(
        StatusCode::OK,
        &DeadLetterList {
            dead_letters: letters.items.iter().map(|letter| DeadLetterShown::of(letter, &stream)).collect(),
            pagination: Pagination::new(page, letters.total),
        },
    )
}

/// Sends what was given up again, with the newest revision of each document.
#[utoipa::path(post, path = "/resources/{id}/subscriptions/{sid}/dead-letters/replay",
    operation_id = "replayDeadLetters", tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    request_body = Option<DeadLetterChoice>,
    responses((status = 200, description = "They are sent again", body = DeadLettersSettled),
        (status = 404, description = "It does not exist", body = error::ErrorAnswer), Described))]
pub(crate) async fn replay_dead_letters(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let chosen = read_choice(&shared, &headers, &body)?.sequences();
    found(&shared, id, sid)?;
    let dead_letters = shared.node.replay_dead_letters(sid, chosen.as_deref()).await.map_err(|error| failed(&error))?;
    json(StatusCode::OK, &DeadLettersSettled { dead_letters })
}

/// Forgets what was given up.
#[utoipa::path(post, path = "/resources/{id}/subscriptions/{sid}/dead-letters/discard",
    operation_id = "discardDeadLetters", tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    request_body = Option<DeadLetterChoice>,
    responses((status = 200, description = "They are forgotten", body = DeadLettersSettled),
        (status = 404, description = "It does not exist", body = error::ErrorAnswer), Described))]
pub(crate) async fn discard_dead_letters(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let chosen = read_choice(&shared, &headers, &body)?.sequences();
    found(&shared, id, sid)?;
    let dead_letters =
        shared.node.discard_dead_letters(sid, chosen.as_deref()).await.map_err(|error| failed(&error))?;
    json(StatusCode::OK, &DeadLettersSettled { dead_letters })
}

/// An absent body means all.
fn read_choice(shared: &Shared, headers: &HeaderMap, body: &[u8]) -> Result<DeadLetterChoice, ApiError> {
    if body.trim_ascii().is_empty() {
        return Ok(DeadLetterChoice::default());
    }
    require_json(headers)?;
    wire_json::read(body, shared.settings.json_depth_max)
}
