//! Resources: `/resources`.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{RawQuery, State},
    response::Response,
};
use bytes::Bytes;
use flare_node::{Created, Page};
use http::{StatusCode, request::Parts};

use super::{ResourcePath, created, idempotency, json, no_content, no_resource, require_json};
use crate::{
    access::Caller,
    api::Shared,
    error::{self, ApiError, Subject},
    openapi::{Asked, Described, Identified, Removable},
    parameters::Parameters,
    wire::{
        json as wire_json,
        page::Pagination,
        resource::{NewResource, Resource, ResourceList},
    },
};

/// Makes a resource.
///
/// With an `Idempotency-Key`, a repeated request makes nothing twice: it gets the same answer again, for a day.
#[utoipa::path(post, path = "/resources", operation_id = "createResource", tag = "resources",
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, pattern = "^[!-~]+$",
        description = "A name for this request, chosen by the client.")),
    request_body = NewResource,
    responses(
        (status = 201, description = "It is there", body = Resource, headers(
            ("Location" = String, description = "Its path"),
            ("Idempotency-Replayed" = String, description = "`true` if an earlier request made it"))),
        (status = 409, description = "Another resource could match the same URLs", body = error::ErrorAnswer),
        (status = 422, description = "A value cannot be, or the idempotency key is taken", body = error::ErrorAnswer),
        Described))]
pub(crate) async fn create(State(shared): State<Arc<Shared>>, parts: Parts, body: Bytes) -> Result<Response, ApiError> {
    require_json(&parts.headers)?;
    let once = idempotency(&parts, &body)?;
    let new: NewResource = wire_json::read(&body, shared.settings.json_depth_max)?;
    let new = new.into_domain().map_err(|refusal| ApiError::new(error::RESOURCE_INVALID, refusal.0))?;
    let made = shared.node.create_stream(new, once).await.map_err(|error| ApiError::of(&error, Subject::Resource))?;
    let (stream, is_replay) = match &made {
        Created::New(stream) => (stream, false),
        Created::Before(stream) => (stream, true),
    };
    created(&Resource::from(&**stream), &format!("/resources/{}", stream.id), is_replay)
}

/// Lists resources.
///
/// With a token that is bound to resources, those.
#[utoipa::path(get, path = "/resources", operation_id = "listResources", tag = "resources",
    params(
        ("limit" = Option<u64>, Query, minimum = 1, description = "How many at most."),
        ("offset" = Option<u64>, Query, minimum = 0, maximum = 9007199254740991_u64, description = "How many to skip.")),
    responses((status = 200, description = "A page", body = ResourceList),
        (status = 400, description = "A parameter is wrong", body = error::ErrorAnswer), Asked))]
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let page = Parameters::read(query.as_deref(), &["limit", "offset"])?.page(&shared.settings)?;
    let found = match caller.bound() {
        Some(token) => {
            let own: Vec<_> = token.streams.iter().filter_map(|id| shared.node.stream(*id)).collect();
            let total = own.len();
            Page { items: own.into_iter().skip(page.offset).take(page.limit).collect(), total }
        }
        None => shared.node.streams(page.offset, page.limit),
    };
    let resources = found.items.iter().map(|stream| Resource::from(&**stream)).collect();
    json(StatusCode::OK, &ResourceList { resources, pagination: Pagination::new(page, found.total) })
}

/// Shows a resource.
#[utoipa::path(get, path = "/resources/{id}", operation_id = "getResource", tag = "resources",
    params(("id" = String, Path, format = "uuid")),
    responses((status = 200, description = "The resource", body = Resource), Identified))]
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    ResourcePath(id): ResourcePath,
) -> Result<Response, ApiError> {
    let stream = shared.node.stream(id).ok_or_else(|| no_resource(&id))?;
    json(StatusCode::OK, &Resource::from(&*stream))
}

/// Removes a resource and its documents.
///
/// It must have no subscriptions.
#[utoipa::path(delete, path = "/resources/{id}", operation_id = "deleteResource", tag = "resources",
    params(("id" = String, Path, format = "uuid")),
    responses((status = 204, description = "It is gone"), Removable))]
pub(crate) async fn delete(
    State(shared): State<Arc<Shared>>,
    ResourcePath(id): ResourcePath,
) -> Result<Response, ApiError> {
    let outlets = shared.node.outlets(id, 0, 0).ok_or_else(|| no_resource(&id))?;
    if outlets.total > 0 {
        let detail = format!("resource {id} still has subscriptions, {} in all; delete them first", outlets.total);
        return Err(ApiError::new(error::RESOURCE_CONFLICT, detail));
    }
    shared.node.delete_stream(id).await.map_err(|error| ApiError::of(&error, Subject::Resource))?;
    Ok(no_content())
}
