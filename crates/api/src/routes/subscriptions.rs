//! Subscriptions: `/resources/{id}/subscriptions`.

use std::sync::Arc;

use axum::{
    extract::{RawQuery, State},
    response::Response,
};
use bytes::Bytes;
use flare_core::{ErrorKind, StreamId};
use flare_node::{Created, NewOutlet};
use http::{HeaderMap, StatusCode, request::Parts};

use super::{
    ResourcePath, SubscriptionPath, created, idempotency, json, no_content, no_resource, no_subscription, require_json,
    secret,
};
use crate::{
    api::Shared,
    error::{self, ApiError, Subject},
    openapi::{Described, Identified, Listed},
    parameters::Parameters,
    wire::{
        egress, json as wire_json,
        page::Pagination,
        subscription::{NewSubscription, Subscription, SubscriptionList},
    },
};

/// Makes a subscription.
///
/// It is told of every change from now on. The answer shows the `secret` of its signatures, this once. With an
/// `Idempotency-Key`, a repeated request makes nothing twice: it gets the same answer again, for a day.
#[utoipa::path(post, path = "/resources/{id}/subscriptions", operation_id = "createSubscription", tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"),
        ("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, pattern = "^[!-~]+$",
        description = "A name for this request, chosen by the client.")),
    request_body = NewSubscription,
    responses(
        (status = 201, description = "It is there", body = Subscription, headers(
            ("Location" = String, description = "Its path"),
            ("Idempotency-Replayed" = String, description = "`true` if an earlier request made it"))),
        (status = 404, description = "No such resource", body = error::ErrorAnswer),
        (status = 409, description = "The idempotency key made a subscription that is gone", body = error::ErrorAnswer),
        (status = 422, description = "A value cannot be, or the idempotency key is taken", body = error::ErrorAnswer),
        Described))]
pub(crate) async fn create(
    State(shared): State<Arc<Shared>>,
    ResourcePath(id): ResourcePath,
    parts: Parts,
    body: Bytes,
) -> Result<Response, ApiError> {
    let once = idempotency(&parts, &body)?;
    let new = read(&shared, id, &parts.headers, &body)?;
    // Of all that this needs, only the resource can be missing.
    let made = shared.node.create_outlet(id, new, once).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound => no_resource(&id),
        _ => ApiError::of(&error, Subject::Subscription),
    })?;
    let (outlet, is_replay) = match &made {
        Created::New(outlet) => (outlet, false),
        Created::Before(outlet) => (outlet, true),
    };
    let location = format!("/resources/{id}/subscriptions/{}", outlet.id);
    let shown = Subscription::with_secret(outlet).with_progress(outlet, &shared.node).await;
    created(&shown, &location, is_replay)
}

/// Lists the subscriptions of a resource.
#[utoipa::path(get, path = "/resources/{id}/subscriptions", operation_id = "listSubscriptions", tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"),
        ("limit" = Option<u64>, Query, minimum = 1, description = "How many at most."),
        ("offset" = Option<u64>, Query, minimum = 0, maximum = 9007199254740991_u64, description = "How many to skip.")),
    responses((status = 200, description = "A page", body = SubscriptionList), Listed))]
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    ResourcePath(id): ResourcePath,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let page = Parameters::read(query.as_deref(), &["limit", "offset"])?.page(&shared.settings)?;
    let found = shared.node.outlets(id, page.offset, page.limit).ok_or_else(|| no_resource(&id))?;
    let mut subscriptions = Vec::with_capacity(found.items.len());
    for outlet in &found.items {
        subscriptions.push(Subscription::of_node(outlet, &shared.node).await);
    }
    json(StatusCode::OK, &SubscriptionList { subscriptions, pagination: Pagination::new(page, found.total) })
}

/// Shows a subscription.
#[utoipa::path(get, path = "/resources/{id}/subscriptions/{sid}", operation_id = "getSubscription",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    responses((status = 200, description = "The subscription", body = Subscription), Identified))]
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
) -> Result<Response, ApiError> {
    shared.node.stream(id).ok_or_else(|| no_resource(&id))?;
    let outlet = shared.node.outlet(id, sid).ok_or_else(|| no_subscription(&sid))?;
    json(StatusCode::OK, &Subscription::of_node(&outlet, &shared.node).await)
}

/// Replaces a subscription.
///
/// What is absent goes back to its default, but for the secret and its scheme, which stay. It takes effect at the next
/// delivery.
#[utoipa::path(put, path = "/resources/{id}/subscriptions/{sid}", operation_id = "updateSubscription",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    request_body = NewSubscription,
    responses(
        (status = 200, description = "What it is now", body = Subscription),
        (status = 404, description = "No such resource or subscription", body = error::ErrorAnswer),
        (status = 422, description = "A value cannot be", body = error::ErrorAnswer),
        Described))]
pub(crate) async fn update(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let new = read(&shared, id, &headers, &body)?;
    let updated = shared.node.update_outlet(id, sid, new).await;
    let outlet = updated.map_err(|error| secret::refused(&error))?;
    json(StatusCode::OK, &Subscription::of(&outlet))
}

/// Removes a subscription.
#[utoipa::path(delete, path = "/resources/{id}/subscriptions/{sid}", operation_id = "deleteSubscription",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    responses((status = 204, description = "It is gone"), Identified))]
pub(crate) async fn delete(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
) -> Result<Response, ApiError> {
    shared.node.stream(id).ok_or_else(|| no_resource(&id))?;
    shared.node.delete_outlet(id, sid).await.map_err(|error| ApiError::of(&error, Subject::Subscription))?;
    Ok(no_content())
}

/// Reads the body against the resource, whose wildcards it may use.
fn read(shared: &Shared, id: StreamId, headers: &HeaderMap, body: &[u8]) -> Result<NewOutlet, ApiError> {
    require_json(headers)?;
    let stream = shared.node.stream(id).ok_or_else(|| no_resource(&id))?;
    let new: NewSubscription = wire_json::read(body, shared.settings.json_depth_max)?;
    let new = new.into_domain(&stream.endpoint, &shared.settings.delivery);
    new.and_then(|new| egress::check(&new.endpoint, &shared.settings.egress).map(|()| new))
        .map_err(|refusal| ApiError::new(error::SUBSCRIPTION_INVALID, refusal.0))
}
