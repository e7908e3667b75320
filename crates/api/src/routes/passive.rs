//! Passive subscriptions: the client sets the pace.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{RawQuery, State},
    response::Response,
};
use bytes::Bytes;
use flare_core::{OutletId, StreamId};
use flare_node::{DEMAND_MAX, Settle};
use http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

use super::{
    SubscriptionPath, json,
    life::{failed, found},
    require_json,
};
use crate::{
    api::Shared,
    error::{self, ApiError},
    openapi::{Described, Identified, Listed},
    parameters::Parameters,
    wire::{
        duration, json as wire_json,
        passive::{Acknowledgement, Demand, Extension, MessageList, MessageShown, NewDemand, Refusal, Settled},
    },
};

pub(crate) const MESSAGES_PATH: &str = "/resources/{id}/subscriptions/{sid}/messages";
/// How the path of a pull ends.
pub(crate) const MESSAGES_END: &str = "/messages";
/// The longest time that a pull may wait.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(30);
const LEASE_MAX: Duration = Duration::from_secs(12 * 3600);
const MESSAGES: u64 = 10;
const MESSAGES_MAX: u64 = 1000;

/// Says how many messages are asked for and not yet sent.
#[utoipa::path(get, path = "/resources/{id}/subscriptions/{sid}/demand", operation_id = "getDemand",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    responses((status = 200, description = "What is left", body = Demand),
        (status = 409, description = "The subscription is not passive", body = error::ErrorAnswer), Identified))]
pub(crate) async fn demand(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
) -> Result<Response, ApiError> {
    found(&shared, id, sid)?;
    let left = shared.node.demand(id, sid).await.map_err(|error| failed(&error))?;
    json(StatusCode::OK, &Demand { left })
}

/// Asks for more messages.
///
/// They are sent to the endpoint in the usual way. What is asked for adds up, and survives a restart.
#[utoipa::path(post, path = "/resources/{id}/subscriptions/{sid}/demand", operation_id = "addDemand",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    request_body = NewDemand,
    responses((status = 200, description = "What is left", body = Demand),
        (status = 404, description = "It does not exist", body = error::ErrorAnswer),
        (status = 409, description = "The subscription is not passive, or too much is asked for", body = error::ErrorAnswer),
        (status = 422, description = "The quantity cannot be", body = error::ErrorAnswer),
        Described))]
pub(crate) async fn add_demand(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let new: NewDemand = read(&shared, &headers, &body)?;
    if !(1..=DEMAND_MAX).contains(&new.quantity) {
        let detail = format!("quantity is {}, it must be from 1 to {DEMAND_MAX}", new.quantity);
        return Err(ApiError::new(error::SUBSCRIPTION_INVALID, detail));
    }
    found(&shared, id, sid)?;
    let left = shared.node.add_demand(id, sid, new.quantity).await.map_err(|error| failed(&error))?;
    json(StatusCode::OK, &Demand { left })
}

/// Pulls messages.
///
/// Each is leased: until it is acknowledged, given back, or its lease runs out, nobody else gets it, and neither does a
/// newer revision of the same document go out.
#[utoipa::path(get, path = "/resources/{id}/subscriptions/{sid}/messages", operation_id = "pullMessages",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "How many at most; 10 if it is absent."),
        ("wait" = Option<String>, Query, pattern = "^[0-9]+(ms|s|m|h)$",
            description = "How long to wait for the first, at most a minute; not at all if it is absent."),
        ("lease" = Option<String>, Query, pattern = "^[0-9]+(ms|s|m|h)$",
            description = "How long they are the client's, at most 12 hours; 30 seconds if it is absent.")),
    responses((status = 200, description = "What there is", body = MessageList),
        (status = 409, description = "The subscription is not passive", body = error::ErrorAnswer), Listed))]
pub(crate) async fn pull(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let parameters = Parameters::read(query.as_deref(), &["limit", "wait", "lease"])?;
    let limit = parameters.whole("limit", 1, MESSAGES_MAX)?.unwrap_or(MESSAGES) as usize;
    let wait = read_time("wait", parameters.get("wait"), Duration::ZERO, Duration::ZERO..=WAIT_MAX)?;
    let lease = read_time("lease", parameters.get("lease"), LEASE, SHORTEST..=LEASE_MAX)?;
    let (stream, outlet) = found(&shared, id, sid)?;
    let messages = shared.node.pull(id, sid, limit, wait, lease).await.map_err(|error| failed(&error))?;
    let shown = messages.iter().map(|message| MessageShown::of(message, &stream, outlet.content.document));
    json(StatusCode::OK, &MessageList { messages: shown.collect() })
}

const SHORTEST: Duration = Duration::from_millis(1);

/// Says that messages are done.
#[utoipa::path(post, path = "/resources/{id}/subscriptions/{sid}/messages/ack", operation_id = "ackMessages",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    request_body = Acknowledgement,
    responses((status = 200, description = "What became of the receipts", body = Settled),
        (status = 404, description = "It does not exist", body = error::ErrorAnswer),
        (status = 422, description = "There are no receipts, or too many", body = error::ErrorAnswer), Described))]
pub(crate) async fn ack(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let Acknowledgement { receipts } = read(&shared, &headers, &body)?;
    settle(&shared, id, sid, receipts, Settle::Acknowledge).await
}

/// Gives messages back.
#[utoipa::path(post, path = "/resources/{id}/subscriptions/{sid}/messages/nack", operation_id = "nackMessages",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    request_body = Refusal,
    responses((status = 200, description = "What became of the receipts", body = Settled),
        (status = 404, description = "It does not exist", body = error::ErrorAnswer),
        (status = 422, description = "A value cannot be", body = error::ErrorAnswer), Described))]
pub(crate) async fn nack(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let Refusal { receipts, delay } = read(&shared, &headers, &body)?;
    let delay = read_member("delay", delay.as_deref(), Duration::ZERO, Duration::ZERO..=LEASE_MAX)?;
    settle(&shared, id, sid, receipts, Settle::GiveBack { delay }).await
}

/// Keeps messages for longer.
#[utoipa::path(post, path = "/resources/{id}/subscriptions/{sid}/messages/extend", operation_id = "extendMessages",
    tag = "subscriptions",
    params(("id" = String, Path, format = "uuid"), ("sid" = String, Path, format = "uuid")),
    request_body = Extension,
    responses((status = 200, description = "What became of the receipts", body = Settled),
        (status = 404, description = "It does not exist", body = error::ErrorAnswer),
        (status = 422, description = "A value cannot be", body = error::ErrorAnswer), Described))]
pub(crate) async fn extend(
    State(shared): State<Arc<Shared>>,
    SubscriptionPath(id, sid): SubscriptionPath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let Extension { receipts, lease } = read(&shared, &headers, &body)?;
    let lease = read_member("lease", lease.as_deref(), LEASE, SHORTEST..=LEASE_MAX)?;
    settle(&shared, id, sid, receipts, Settle::Extend { lease }).await
}

async fn settle(
    shared: &Shared,
    id: StreamId,
    sid: OutletId,
    receipts: Vec<String>,
    how: Settle,
) -> Result<Response, ApiError> {
    if !(1..=MESSAGES_MAX as usize).contains(&receipts.len()) {
        let detail = format!("receipts has {} items, it must have from 1 to {MESSAGES_MAX}", receipts.len());
        return Err(ApiError::new(error::SUBSCRIPTION_INVALID, detail));
    }
    found(shared, id, sid)?;
    let results = shared.node.settle(id, sid, receipts.clone(), how).await.map_err(|error| failed(&error))?;
    json(StatusCode::OK, &Settled::of(receipts, &results))
}

fn read<T: DeserializeOwned>(shared: &Shared, headers: &HeaderMap, body: &[u8]) -> Result<T, ApiError> {
    require_json(headers)?;
    wire_json::read(body, shared.settings.json_depth_max)
}

type Allowed = std::ops::RangeInclusive<Duration>;

fn read_time(name: &str, text: Option<&str>, default: Duration, allowed: Allowed) -> Result<Duration, ApiError> {
    read_duration(text, default, allowed)
        .map_err(|wrong| ApiError::new(error::INVALID_PARAMETER, format!("{name} is {wrong}")))
}

fn read_member(name: &str, text: Option<&str>, default: Duration, allowed: Allowed) -> Result<Duration, ApiError> {
    read_duration(text, default, allowed)
        .map_err(|wrong| ApiError::new(error::SUBSCRIPTION_INVALID, format!("{name} is {wrong}")))
}

fn read_duration(text: Option<&str>, default: Duration, allowed: Allowed) -> Result<Duration, String> {
    let Some(text) = text else { return Ok(default) };
    duration::parse(text).filter(|read| allowed.contains(read)).ok_or_else(|| {
        let (least, most) = (duration::format(*allowed.start()), duration::format(*allowed.end()));
        format!("{text:?}, it must be a duration from \"{least}\" to \"{most}\", such as \"20s\"")
    })
}
