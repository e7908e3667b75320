//! The secrets of subscriptions: `/resources/{id}/subscriptions/{sid}/secret/rotate`.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use bytes::Bytes;
use flare_core::{Error, ErrorKind};
use http::{HeaderMap, StatusCode};

use super::{SubscriptionPath, json, no_resource, require_json};
use crate::{
    api::Shared,
    error::{self, ApiError, Subject},
    openapi::Described,
    wire::{json as wire_json, secret::NewRotation, subscription::Subscription},
};

/// Gives a subscription a new secret.
///
/// The answer shows the `secret`, this once; for `v1a`, the new `publicKey`. Until the `overlap` ends, deliveries have
/// two signatures: by the new secret, then by the one before. The secret that it has already changes nothing.
#[utoipa::path(post, path = "/resources/{id}/subscriptions/{sid}/secret/rotate", operation_id = "rotateSecret",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    request_body = Option<NewRotation>,
    responses(
        (status = 200, description = "What it is now", body = Subscription),
        (status = 404, description = "No such resource or subscription", body = error::ErrorAnswer),
        (status = 422, description = "A value cannot be", body = error::ErrorAnswer),
        Described))]
pub(crate) async fn rotate(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    shared.node.stream(id).ok_or_else(|| no_resource(&id))?;
    let asked = match body.trim_ascii() {
        b"" | b"null" => NewRotation::default(),
        body => {
            require_json(&headers)?;
            wire_json::read(body, shared.settings.json_depth_max)?
        }
    };
    let rotation = asked.into_domain().map_err(|refusal| ApiError::new(error::SUBSCRIPTION_INVALID, refusal.0))?;
    let outlet = shared.node.rotate_secret(id, sid, rotation).await.map_err(|error| refused(&error))?;
    json(StatusCode::OK, &Subscription::with_secret(&outlet))
}

/// A change that the subscription cannot make. There is no idempotency key that could be meant.
pub(crate) fn refused(error: &Error) -> ApiError {
    match error.kind() {
        ErrorKind::Invalid => ApiError::new(error::SUBSCRIPTION_INVALID, error.to_string()),
        _ => ApiError::of(error, Subject::Subscription),
    }
}
