//! Tokens: `/tokens`. Only for callers with the scope `admin`.

use std::sync::Arc;

use axum::{
    extract::{FromRequestParts, RawQuery, State},
    response::Response,
};
use bytes::Bytes;
use flare_core::{TokenId, token::TokenText};
use http::{HeaderMap, StatusCode, request::Parts};

use super::{created, json, no_content, path_parameter, require_json};
use crate::{
    api::Shared,
    error::{self, ApiError, Subject},
    openapi::{Asked, Described, Identified},
    parameters::Parameters,
    wire::{
        json as wire_json,
        page::Pagination,
        token::{NewToken, Token, TokenList},
    },
};

/// The `{tid}` of a path. What cannot be an id names nothing.
pub(crate) struct TokenPath(TokenId);

impl<S: Send + Sync> FromRequestParts<S> for TokenPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = path_parameter(parts, state, "tid").await;
        id.parse().map(Self).map_err(|_| {
            let detail = match TokenText::id_in(id.as_bytes()) {
                Some(id) => format!("this is the token itself; its id is {id}"),
                None => format!("token {id} does not exist"),
            };
            ApiError::new(error::TOKEN_NOT_FOUND, detail)
        })
    }
}

fn no_token(id: TokenId) -> ApiError {
    ApiError::new(error::TOKEN_NOT_FOUND, format!("token {id} does not exist"))
}

/// Makes a token.
///
/// The answer shows the `token` itself, this once: the server keeps only a digest of it. So every request makes a new
/// one, with or without an `Idempotency-Key`.
#[utoipa::path(post, path = "/tokens", operation_id = "createToken", tag = "tokens",
    request_body = NewToken,
    responses(
        (status = 201, description = "It is there", body = Token, headers(
            ("Location" = String, description = "Its path"))),
        (status = 409, description = "There are too many tokens", body = error::ErrorAnswer),
        (status = 422, description = "A value cannot be", body = error::ErrorAnswer),
        Described))]
pub(crate) async fn create(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    require_json(&headers)?;
    let new: NewToken = wire_json::read(&body, shared.settings.json_depth_max)?;
    // A resource that another node has just made counts too.
    shared.node.look_again().await.map_err(|error| ApiError::of(&error, Subject::Token))?;
    let new = new
        .into_domain(|id| shared.node.stream(id).is_some())
        .map_err(|refusal| ApiError::new(error::TOKEN_INVALID, refusal.0))?;
    let made = shared.node.create_token(new).await;
    let (token, text) = made.map_err(|error| ApiError::of(&error, Subject::Token))?;
    created(&Token::with_text(&token, &text), &format!("/tokens/{}", token.id), false)
}

/// Lists tokens, those of the configuration not included.
#[utoipa::path(get, path = "/tokens", operation_id = "listTokens", tag = "tokens",
    params(
        ("limit" = Option<u64>, Query, minimum = 1, description = "How many at most."),
        ("offset" = Option<u64>, Query, minimum = 0, maximum = 9007199254740991_u64, description = "How many to skip.")),
    responses((status = 200, description = "A page", body = TokenList),
        (status = 400, description = "A parameter is wrong", body = error::ErrorAnswer), Asked))]
pub(crate) async fn list(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Result<Response, ApiError> {
    let page = Parameters::read(query.as_deref(), &["limit", "offset"])?.page(&shared.settings)?;
    let found = shared.node.tokens().page(page.offset, page.limit);
    let tokens = found.items.iter().map(|token| Token::of(token)).collect();
    json(StatusCode::OK, &TokenList { tokens, pagination: Pagination::new(page, found.total) })
}

/// Shows a token, without its text.
#[utoipa::path(get, path = "/tokens/{tid}", operation_id = "getToken", tag = "tokens",
    params(("tid" = String, Path, format = "uuid")),
    responses((status = 200, description = "The token", body = Token), Identified))]
pub(crate) async fn show(State(shared): State<Arc<Shared>>, TokenPath(id): TokenPath) -> Result<Response, ApiError> {
    let token = shared.node.tokens().get(id).ok_or_else(|| no_token(id))?;
    json(StatusCode::OK, &Token::of(&token))
}

/// Revokes a token.
///
/// From the answer on it opens nothing. Requests that it has begun are finished.
#[utoipa::path(delete, path = "/tokens/{tid}", operation_id = "revokeToken", tag = "tokens",
    params(("tid" = String, Path, format = "uuid")),
    responses((status = 204, description = "It is gone"), Identified))]
pub(crate) async fn revoke(State(shared): State<Arc<Shared>>, TokenPath(id): TokenPath) -> Result<Response, ApiError> {
    shared.node.revoke_token(id).await.map_err(|error| ApiError::of(&error, Subject::Token))?;
    Ok(no_content())
}
