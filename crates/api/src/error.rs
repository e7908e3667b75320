//! What goes wrong, as clients see it: one table of codes, and the mapping of the node's errors to it.
//!
//! A handler returns an [`ApiError`]. It becomes a response that carries the error along, and the outermost layer
//! ([`crate::Api`]) renders it: only there is the request's id known, and only there is it logged, once.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use flare_core::{Error, ErrorKind, change::ChangeError, url::UrlError};
use flare_node::IntakeError;
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::request_id::RequestId;

/// Seconds after which a request that met a store in trouble may be repeated.
const RETRY_AFTER_SECONDS: u16 = 1;

/// One row of the table: what a code means, and its status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    pub status: StatusCode,
    pub code: &'static str,
    pub title: &'static str,
}

macro_rules! codes {
    ($($name:ident = $status:ident, $code:literal, $title:literal;)*) => {
        $(pub const $name: Code = Code { status: StatusCode::$status, code: $code, title: $title };)*

        /// Every code that an answer can have.
        pub const CODES: &[Code] = &[$($name),*];
    };
}

codes! {
    INVALID_JSON = BAD_REQUEST, "request.invalid-json", "The body is not JSON";
    TOO_DEEP = BAD_REQUEST, "request.too-deep", "The JSON is nested too deeply";
    UNKNOWN_FIELD = BAD_REQUEST, "request.unknown-field", "The body has an unknown field";
    MISSING_FIELD = BAD_REQUEST, "request.missing-field", "A field is missing";
    INVALID_FIELD = BAD_REQUEST, "request.invalid-field", "A field has the wrong type";
    INVALID_PARAMETER = BAD_REQUEST, "request.invalid-parameter", "A query parameter is wrong";
    INVALID_HEADER = BAD_REQUEST, "request.invalid-header", "A header is wrong";
    BODY_INTERRUPTED = BAD_REQUEST, "request.body-interrupted", "The body ended early";
    INVALID_URL = BAD_REQUEST, "document.invalid-url", "The document's URL is wrong";
    UNAUTHORIZED = UNAUTHORIZED, "request.unauthorized", "A token is needed";
    HOST_REFUSED = FORBIDDEN, "request.host-refused", "This Host is not served";
    ORIGIN_REFUSED = FORBIDDEN, "request.origin-refused", "This Origin may not call";
    FORBIDDEN = FORBIDDEN, "security.forbidden", "The token may not do this";
    NOT_FOUND = NOT_FOUND, "request.not-found", "No such path";
    RESOURCE_NOT_FOUND = NOT_FOUND, "resource.not-found", "No such resource";
    SUBSCRIPTION_NOT_FOUND = NOT_FOUND, "subscription.not-found", "No such subscription";
    DOCUMENT_NOT_FOUND = NOT_FOUND, "document.not-found", "No such document";
    TOKEN_NOT_FOUND = NOT_FOUND, "token.not-found", "No such token";
    NO_API = MISDIRECTED_REQUEST, "node.no-api", "This node does not serve the API";
    METHOD_NOT_ALLOWED = METHOD_NOT_ALLOWED, "request.method-not-allowed", "The path does not take this method";
    TOO_SLOW = REQUEST_TIMEOUT, "request.too-slow", "The body came too slowly";
    RESOURCE_CONFLICT = CONFLICT, "resource.conflict", "It clashes with what is there";
    SUBSCRIPTION_CONFLICT = CONFLICT, "subscription.conflict", "It clashes with what is there";
    TOKEN_CONFLICT = CONFLICT, "token.conflict", "It clashes with what is there";
    TOO_LARGE = PAYLOAD_TOO_LARGE, "request.too-large", "The body is too large";
    BATCH_TOO_LARGE = PAYLOAD_TOO_LARGE, "request.batch-too-large", "The batch has too many documents";
    URL_TOO_LONG = URI_TOO_LONG, "request.url-too-long", "The URL is too long";
    UNSUPPORTED_TYPE = UNSUPPORTED_MEDIA_TYPE, "request.unsupported-media-type", "The body has the wrong type";
    RESOURCE_INVALID = UNPROCESSABLE_ENTITY, "resource.invalid", "The resource cannot be as described";
    SUBSCRIPTION_INVALID = UNPROCESSABLE_ENTITY, "subscription.invalid", "The subscription cannot be as described";
    TOKEN_INVALID = UNPROCESSABLE_ENTITY, "token.invalid", "The token cannot be as described";
    DOCUMENT_INVALID = UNPROCESSABLE_ENTITY, "document.invalid", "The document cannot be taken";
    DOCUMENT_CHANGE = UNPROCESSABLE_ENTITY, "document.invalid-change", "The field that shows a change is unreadable";
    NONE_ACCEPTED = UNPROCESSABLE_ENTITY, "documents.none-accepted", "No document was accepted";
    KEY_REUSED = UNPROCESSABLE_ENTITY, "request.idempotency-key-reused", "The idempotency key is taken";
    HEADERS_TOO_LARGE = REQUEST_HEADER_FIELDS_TOO_LARGE, "request.headers-too-large", "The headers are too large";
    INTERNAL = INTERNAL_SERVER_ERROR, "internal", "A fault of Flare";
    UNAVAILABLE = SERVICE_UNAVAILABLE, "repository.unavailable", "The repository is in trouble";
    TIMEOUT = SERVICE_UNAVAILABLE, "request.timeout", "It took too long";
    NOT_READY = SERVICE_UNAVAILABLE, "node.not-ready", "The node is not ready";
    WORKER_ABSENT = SERVICE_UNAVAILABLE, "worker.absent", "No node works that could answer";
    BUSY = SERVICE_UNAVAILABLE, "server.busy", "Too many connections";
}

/// An answer that says no. Small, because every handler may return one.
#[derive(Clone, Debug)]
pub struct ApiError(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    code: Code,
    detail: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// For the log only.
    cause: Option<String>,
    /// Members of the answer besides the error.
    report: Option<serde_json::Map<String, serde_json::Value>>,
}

impl ApiError {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Box::new(Parts { code, detail: detail.into(), headers: Vec::new(), cause: None, report: None }))
    }

    /// A fault of Flare: the client learns where to look, the log learns what happened.
    pub fn internal(cause: impl Into<String>) -> Self {
        let mut error = Self::new(INTERNAL, "the log of the node has the cause, under this request id");
        error.0.cause = Some(cause.into());
        error
    }

    pub fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(UNAUTHORIZED, detail)
            .with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"flare\""))
    }

    pub fn method_not_allowed(method: &http::Method, allowed: &'static str) -> Self {
        Self::new(METHOD_NOT_ALLOWED, format!("{method} is not one of {allowed}"))
            .with_header(ALLOW, HeaderValue::from_static(allowed))
    }

    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// Adds members beside `error` to the answer.
    pub fn with_report(mut self, report: serde_json::Map<String, serde_json::Value>) -> Self {
        self.0.report = Some(report);
        self
    }

    pub fn code(&self) -> Code {
        self.0.code
    }

    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// An error of the node, about a thing of the API.
    pub fn of(error: &Error, subject: Subject) -> Self {
        let code = code_of(error.kind(), subject);
        match code {
            INTERNAL => Self::internal(error.chain()),
            UNAVAILABLE => Self::new(code, error.chain()).with_header(RETRY_AFTER, RETRY_AFTER_SECONDS.into()),
            _ => Self::new(code, error.to_string()),
        }
    }

    /// The response as the client sees it; a fault of the server is logged here.
    pub(crate) fn render(self, id: &RequestId, request: &impl std::fmt::Display) -> Response {
        let Parts { code, detail, headers, cause, report } = *self.0;
        let status = code.status.as_u16();
        let why = cause.as_ref().unwrap_or(&detail);
        if code == INTERNAL {
            tracing::error!(request_id = %id, %request, status, code = code.code, "a request failed: {why}");
        } else if code.status.is_server_error() && code != NOT_READY {
            tracing::warn!(request_id = %id, %request, status, code = code.code, "a request failed: {why}");
        }
        let request_id = id.to_string();
        let error = ErrorDetail { code: code.code, title: code.title, detail: &detail, request_id: &request_id };
        let body = serde_json::to_vec(&Answer { error, report }).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = code.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.headers_mut().extend(headers);
        response
    }
}

/// What an error of the node is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    Resource,
    Subscription,
    Document,
    Token,
}

/// The table: kinds of the node's errors to codes of the API.
fn code_of(kind: ErrorKind, subject: Subject) -> Code {
    match (kind, subject) {
        (ErrorKind::NotFound, Subject::Resource | Subject::Document) => RESOURCE_NOT_FOUND,
        (ErrorKind::NotFound, Subject::Subscription) => SUBSCRIPTION_NOT_FOUND,
        (ErrorKind::NotFound, Subject::Token) => TOKEN_NOT_FOUND,
        (ErrorKind::Conflict, Subject::Resource | Subject::Document) => RESOURCE_CONFLICT,
        (ErrorKind::Conflict, Subject::Subscription) => SUBSCRIPTION_CONFLICT,
        (ErrorKind::Conflict, Subject::Token) => TOKEN_CONFLICT,
        (ErrorKind::Invalid, Subject::Resource | Subject::Subscription) => KEY_REUSED,
        (ErrorKind::Invalid, Subject::Document) => DOCUMENT_INVALID,
        (ErrorKind::Invalid, Subject::Token) => TOKEN_INVALID,
        (ErrorKind::Unavailable, _) => UNAVAILABLE,
        (ErrorKind::Internal, _) => INTERNAL,
    }
}

impl From<UrlError> for ApiError {
    fn from(error: UrlError) -> Self {
        Self::new(INVALID_URL, error.to_string())
    }
}

impl From<IntakeError> for ApiError {
    fn from(error: IntakeError) -> Self {
        match error {
            IntakeError::NoResource(_) => Self::new(RESOURCE_NOT_FOUND, error.to_string()),
            IntakeError::Change(error) => error.into(),
            IntakeError::Store(error) => Self::of(&error, Subject::Document),
        }
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        let code = match error {
            ChangeError::Malformed { .. } => INVALID_JSON,
            ChangeError::TooDeep { .. } => TOO_DEEP,
            ChangeError::NotObject { .. } => DOCUMENT_INVALID,
            ChangeError::Missing { .. } | ChangeError::Unreadable { .. } => DOCUMENT_CHANGE,
        };
        Self::new(code, error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.0.code.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    error: ErrorDetail<'a>,
    #[serde(flatten)]
    report: Option<serde_json::Map<String, serde_json::Value>>,
}

/// The body of every answer that is not a success.
#[derive(Serialize, ToSchema)]
#[schema(as = Error)]
pub struct ErrorAnswer<'a> {
    pub error: ErrorDetail<'a>,
}

/// What went wrong.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorDetail<'a> {
    /// Names the error for programs; it does not change.
    #[schema(examples("resource.not-found"))]
    pub code: &'a str,
    /// Names the error for people.
    pub title: &'a str,
    /// Says what is wrong in this request: the field, the value and what is allowed.
    pub detail: &'a str,
    /// The request's `x-request-id`, or an id made for this answer; the log has it for faults of the server.
    pub request_id: &'a str,
}
