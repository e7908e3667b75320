//! Replays: a subscription is told again of what it has.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::{
    SubscriptionPath, json,
    life::{failed, found},
    no_content, require_json,
};
use crate::{
    api::Shared,
    error::{self, ApiError},
    openapi::{Described, Identified},
    wire::{
        json as wire_json,
        replay::{NewReplay, ReplayShown},
    },
};

/// Tells a subscription again of documents that it has.
///
/// It goes on in the background, at the subscription's pace, over restarts. Documents are sent as they are now; with
/// `"revision": "all"`, every revision since then that is kept.
#[utoipa::path(post, path = "/resources/{id}/subscriptions/{sid}/replay", operation_id = "startReplay",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    request_body = NewReplay,
    responses((status = 202, description = "It has begun", body = ReplayShown),
        (status = 404, description = "It does not exist", body = error::ErrorAnswer),
        (status = 409, description = "Another replay is under way", body = error::ErrorAnswer),
        (status = 422, description = "A value cannot be", body = error::ErrorAnswer), Described))]
pub(crate) async fn start(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    require_json(&headers)?;
    let new: NewReplay = wire_json::read(&body, shared.settings.json_depth_max)?;
    let (stream, _) = found(&shared, id, sid)?;
    let (from, prefix) =
        new.into_domain(&stream).map_err(|refusal| ApiError::new(error::SUBSCRIPTION_INVALID, refusal.0))?;
    let replay = shared.node.start_replay(id, sid, from, prefix).await.map_err(|error| failed(&error))?;
    json(StatusCode::ACCEPTED, &ReplayShown::of(&replay, &stream))
}

/// Shows the replay that is under way.
#[utoipa::path(get, path = "/resources/{id}/subscriptions/{sid}/replay", operation_id = "getReplay",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    responses((status = 200, description = "How far it is", body = ReplayShown),
        (status = 204, description = "None is under way"), Identified))]
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
) -> Result<Response, ApiError> {
    let (stream, _) = found(&shared, id, sid)?;
    match shared.node.replay(sid) {
        Some(replay) => json(StatusCode::OK, &ReplayShown::of(&replay, &stream)),
        None => Ok(no_content()),
    }
}

/// Cancels the replay that is under way.
///
/// What it has taken up so far is still sent.
#[utoipa::path(delete, path = "/resources/{id}/subscriptions/{sid}/replay", operation_id = "cancelReplay",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    responses((status = 204, description = "None is under way any more"), Identified))]
pub(crate) async fn cancel(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
) -> Result<Response, ApiError> {
    found(&shared, id, sid)?;
    shared.node.cancel_replay(sid).await.map_err(|error| failed(&error))?;
    Ok(no_content())
}
