//! Documents: `/documents/{url}` and `/resources/{id}/documents`.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{RawQuery, State},
    response::Response,
};
use bytes::Bytes;
use flare_core::{
    port::DocumentQuery,
    revision::{JsonScalar, ReadError, Revision, RevisionFormat},
    trace::Trace,
    url::{DocumentUrl, UrlError},
};
use flare_node::{DocumentNews, IntakeError};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts};
use jiff::Timestamp;

use super::{ResourcePath, json, no_resource};
use crate::{
    api::{Shared, within},
    body::{BodyLimits, collect},
    error::{self, ApiError, Subject},
    openapi::{Listed, Named},
    parameters::{PageQuery, Parameters},
    trace,
    wire::{
        document::{Document, DocumentList},
        page::Pagination,
    },
};

/// What stands before the URL of a document.
pub(crate) const PREFIX: &str = "/documents/";

const METHODS: &str = "GET,HEAD,PUT,DELETE";
const FLARE_REVISION: HeaderName = HeaderName::from_static("flare-revision");
const FLARE_UPDATED_AT: HeaderName = HeaderName::from_static("flare-updated-at");

/// Answers a request whose path starts with [`PREFIX`]. The rest of it is the URL, as the client wrote it.
pub(crate) async fn answer<B>(shared: &Shared, head: &Parts, body: B) -> Result<Response, ApiError>
where
    B: http_body::Body<Data = Bytes>,
{
    let url = || DocumentUrl::from_request(&head.uri.path()[PREFIX.len()..], head.uri.query());
    let timeout = shared.settings.timeout;
    match head.method {
        Method::PUT => {
            let url = url()?;
            let content = collect(body, BodyLimits::single(&shared.settings)).await?;
            within(timeout, put(shared, url, content, trace::read(&head.headers))).await
        }
        Method::DELETE => within(timeout, delete(shared, url()?, &head.headers)).await,
        Method::GET | Method::HEAD => within(timeout, show(shared, &url()?)).await,
        _ => Err(ApiError::method_not_allowed(&head.method, METHODS)),
    }
}

/// Says what a document is now.
///
/// The body is kept byte for byte. 202 means that it is durable. The same or an older revision is accepted too, and
/// announces nothing.
#[utoipa::path(put, path = "/documents/{url}", operation_id = "putDocument", tag = "documents",
    params(("url" = String, Path, description = "The document's URL, raw or percent-encoded; its query belongs to it.",
        format = "uri", pattern = "^[hH][tT][tT][pP][sS]?(:|%3[aA]).+$",
        example = json!("http://api.company.com/users/1")),
        ("traceparent" = Option<String>, Header, description =
        "The trace that this belongs to (W3C Trace Context). It is passed on with the deliveries, and \
         `tracestate` too.")),
    request_body(content = inline(serde_json::Map<String, serde_json::Value>), content_type = "application/json",
        description = "The document: a JSON object that has the change field of its resource."),
    responses((status = 202, description = "It is kept"),
        (status = 413, description = "The document is too large", body = error::ErrorAnswer),
        (status = 408, description = "The document came too slowly", body = error::ErrorAnswer),
        (status = 422, description = "It is not an object, or its change field is missing or unreadable",
            body = error::ErrorAnswer),
        Named))]
async fn put(
    shared: &Shared,
    url: DocumentUrl,
    content: Bytes,
    trace: Option<Arc<Trace>>,
) -> Result<Response, ApiError> {
    shared.node.take(DocumentNews::Put { url, content }, trace).await?;
    Ok(accepted())
}

/// Says that a document is gone.
///
/// 202 means that it is durable. A later PUT of an older revision does not bring the document back.
#[utoipa::path(delete, path = "/documents/{url}", operation_id = "deleteDocument", tag = "documents",
    params(("url" = String, Path, description = "The document's URL, raw or percent-encoded; its query belongs to it.",
        format = "uri", pattern = "^[hH][tT][tT][pP][sS]?(:|%3[aA]).+$",
        example = json!("http://api.company.com/users/1")),
        ("Flare-Revision" = Option<String>, Header, description =
        "The revision at which it was deleted, written as the resource's change field or as in RFC 3339. Without it, the \
         delete counts as the newest news."),
        ("traceparent" = Option<String>, Header, description =
        "The trace that this belongs to (W3C Trace Context). It is passed on with the deliveries, and \
         `tracestate` too.")),
    responses((status = 202, description = "It is kept"), Named))]
async fn delete(shared: &Shared, url: DocumentUrl, headers: &HeaderMap) -> Result<Response, ApiError> {
    let revision = match headers.get(FLARE_REVISION) {
        Some(value) => {
            let stream = shared.node.stream_of(&url).ok_or_else(|| IntakeError::NoResource(url.clone()))?;
            let text = String::from_utf8_lossy(value.as_bytes());
            let read = read_revision_text(&stream.change.format, text.trim());
            Some(read.map_err(|error| ApiError::new(error::INVALID_HEADER, format!("Flare-Revision: {error}")))?)
        }
        None => None,
    };
    shared.node.take(DocumentNews::Delete { url, revision }, trace::read(headers)).await?;
    Ok(accepted())
}

/// Shows a document.
#[utoipa::path(get, path = "/documents/{url}", operation_id = "getDocument", tag = "documents",
    params(("url" = String, Path, description = "The document's URL, raw or percent-encoded; its query belongs to it.",
        format = "uri", pattern = "^[hH][tT][tT][pP][sS]?(:|%3[aA]).+$",
        example = json!("http://api.company.com/users/1"))),
    responses((status = 200, description = "The document, byte for byte",
            body = inline(serde_json::Map<String, serde_json::Value>), content_type = "application/json", headers(
            ("Flare-Revision" = String, description = "Its revision: an integer, or a time as in RFC 3339"),
            ("Flare-Updated-At" = String, description = "When Flare took it in, as in RFC 3339"))),
        Named))]
async fn show(shared: &Shared, url: &DocumentUrl) -> Result<Response, ApiError> {
    let stream = shared.node.stream_of(url).ok_or_else(|| IntakeError::NoResource(url.clone()))?;
    let found = shared.node.document(stream.id, url).await.map_err(|error| ApiError::of(&error, Subject::Document))?;
    let Some(change) = found else {
        return Err(ApiError::new(error::DOCUMENT_NOT_FOUND, format!("document {url} does not exist")));
    };
    let revision = stream.change.format.render(change.revision);
    let mut response = Response::new(Body::from(change.content.unwrap_or_default()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(FLARE_REVISION, ascii(revision.trim_matches('"')));
    headers.insert(FLARE_UPDATED_AT, ascii(&change.updated_at.to_string()));
    Ok(response)
}

/// Lists the documents of a resource.
#[utoipa::path(get, path = "/resources/{id}/documents", operation_id = "listDocuments", tag = "documents",
    params(("id" = String, Path, format = "uuid"),
        ("limit" = Option<u64>, Query, minimum = 1, description = "How many at most."),
        ("offset" = Option<u64>, Query, minimum = 0, maximum = 9007199254740991_u64, description = "How many to skip."),
        ("after" = Option<String>, Query, format = "uri", description = "Only URLs behind this one, such as the last of \
            the page before. Such a page costs the same wherever it is, and nothing that comes or goes shifts it; the \
            first that is empty is the end."),
        ("prefix" = Option<String>, Query, description = "Only URLs that start so."),
        ("changedSince" = Option<String>, Query, format = "date-time",
            description = "Only documents that Flare took in at or after this time, as in RFC 3339.")),
    responses((status = 200, description = "A page", body = DocumentList), Listed))]
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    ResourcePath(id): ResourcePath,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let parameters = Parameters::read(query.as_deref(), &["limit", "offset", "after", "prefix", "changedSince"])?;
    let PageQuery { limit, offset } = parameters.page(&shared.settings)?;
    let allowed = "a time as in RFC 3339, such as \"2006-01-02T15:04:05Z\"";
    let changed_since = parameters.parse::<Timestamp>("changedSince", allowed)?;
    let after = parameters.get("after").map(|url| DocumentUrl::parse(url).map_err(|error| invalid_after(url, &error)));
    let after = after.transpose()?;
    let stream = shared.node.stream(id).ok_or_else(|| no_resource(&id))?;
    let query = DocumentQuery {
        prefix: parameters.get("prefix").unwrap_or_default().to_owned(),
        changed_since,
        after,
        offset,
        limit,
        bytes_max: Some(shared.settings.page_bytes_max),
    };
    let page = shared.node.documents(id, &query).await.map_err(|error| ApiError::of(&error, Subject::Document))?;
    let documents: Vec<Document<'_>> =
        page.documents.iter().filter_map(|change| Document::of(change, &stream.change.format)).collect();
    // A page that was cut short says so, so that the next one starts where it ended.
    let is_cut = query.after.is_none() && documents.len() < limit && offset + documents.len() < page.total;
    let limit = if is_cut { documents.len().max(1) } else { limit };
    let pagination = Pagination::new(PageQuery { limit, offset }, page.total);
    json(StatusCode::OK, &DocumentList { documents, pagination })
}

fn invalid_after(url: &str, error: &UrlError) -> ApiError {
    ApiError::new(error::INVALID_PARAMETER, format!("after is {url:?}, it must be the URL of a document: {error}"))
}

/// Reads a revision from a header: as the format writes it in documents, or as the API shows it.
pub(crate) fn read_revision_text(format: &RevisionFormat, text: &str) -> Result<Revision, ReadError> {
    let number = text.parse().ok().filter(|_| !text.starts_with('+')).map(JsonScalar::Integer);
    match (format, number) {
        (RevisionFormat::Integer, Some(number)) => format.read(&number),
        _ => format
            .read(&JsonScalar::Text(text))
            .or_else(|error| RevisionFormat::Rfc3339.read(&JsonScalar::Text(text)).map_err(|_| error)),
    }
}

fn accepted() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// Revisions and times are ASCII.
fn ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}
