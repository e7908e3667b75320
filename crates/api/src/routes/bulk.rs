//! Many documents at once: `POST /documents`.
//!
//! A body is NDJSON, one item per line, or one JSON array of items. What can be taken is taken in one durable step;
//! what cannot is listed, and does not hold up the rest. The documents stay the bytes that they were in the body.

use std::{fmt, sync::Arc};

use axum::{Extension, extract::State, response::Response};
use bytes::Bytes;
use flare_core::{
    document::Written,
    revision::{JsonScalar, Revision, RevisionFormat},
    url::DocumentUrl,
};
use flare_node::{DocumentNews, IntakeError};
use http::{HeaderMap, StatusCode};
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::{Value, value::RawValue};

use super::{documents::read_revision_text, json, media_type, unsupported};
use crate::{
    access::Caller,
    api::Shared,
    error::{self, ApiError, Subject},
    openapi::Described,
    trace,
    wire::{
        document::{BulkError, BulkErrorDetail, BulkItem, BulkRefusal, BulkReport},
        excerpt, json as wire_json,
    },
};

pub(crate) const PATH: &str = "/documents";

/// Failures that a report lists; all are counted.
const ERRORS_MAX: usize = 100;

/// Puts and deletes many documents.
///
/// The items of the body come one per line (NDJSON) or in a JSON array; of the same document, the order counts. What
/// can be taken is taken in one durable step. The answer is 202 if at least one item was taken or the array is empty,
/// and 422 if all were refused. An `Idempotency-Key` is not needed: repeating a write announces nothing twice.
#[utoipa::path(post, path = "/documents", operation_id = "writeDocuments", tag = "documents",
    params(("traceparent" = Option<String>, Header, description =
        "The trace that all of it belongs to (W3C Trace Context). It is passed on with the deliveries, and \
         `tracestate` too.")),
    request_body(content((Vec<BulkItem> = "application/json"), (String = "application/x-ndjson"))),
    responses(
        (status = 202, description = "What was taken is durable", body = BulkReport),
        (status = 422, description = "Nothing was taken", body = BulkRefusal),
        Described))]
pub(crate) async fn write(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let body = std::str::from_utf8(&body).map_err(|error| {
        let detail = format!("the body is not UTF-8 after byte {}", error.valid_up_to());
        ApiError::new(error::INVALID_JSON, detail)
    })?;
    if body.trim_ascii().is_empty() {
        return Err(ApiError::new(error::INVALID_JSON, "the body is empty, it must be NDJSON or a JSON array"));
    }
    let lines = match is_array(&headers, body)? {
        true => array_items(body, shared.settings.batch_max)?,
        false => ndjson_lines(body, shared.settings.batch_max)?,
    };
    let mut report = BulkReport::default();
    let (mut news, mut places) = read_items(&shared, &caller, &lines, &mut report);
    let node = &shared.node;
    if node.is_shared() && (report.failed > 0 || news.iter().any(|one| node.stream_of(one.url()).is_none())) {
        // Another node may have made the resource a moment ago.
        node.look_again().await.map_err(|error| ApiError::of(&error, Subject::Document))?;
        report = BulkReport::default();
        (news, places) = read_items(&shared, &caller, &lines, &mut report);
    }
    let taken = shared.node.take_all(news, trace::read(&headers)).await;
    let taken = taken.map_err(|error| ApiError::of(&error, Subject::Document))?;
    for ((line, url), outcome) in places.into_iter().zip(taken) {
        match outcome {
            Ok(Written::Changed(_)) => report.accepted += 1,
            Ok(Written::Unchanged) => report.unchanged += 1,
            Err(error) => report.fail(line, Some(url.as_str()), &error.into()),
        }
    }
    report.errors.sort_by_key(|error| error.line);
    if report.failed > 0 && report.accepted + report.unchanged == 0 {
        return Err(none_accepted(&report));
    }
    json(StatusCode::ACCEPTED, &report)
}

/// An item and its place, counted from one.
type Line<'b> = (u64, &'b str);

/// Without a type that decides it, the first character does.
fn is_array(headers: &HeaderMap, body: &str) -> Result<bool, ApiError> {
    match media_type(headers).as_deref() {
        Some("application/x-ndjson" | "application/ndjson" | "application/jsonl") => Ok(false),
        Some("application/json") | None => Ok(body.trim_ascii_start().starts_with('[')),
        Some(other) => Err(unsupported(other, "application/x-ndjson or application/json")),
    }
}

fn ndjson_lines(body: &str, items_max: usize) -> Result<Vec<Line<'_>>, ApiError> {
    let mut lines = Vec::new();
    for (line, item) in (1..).zip(body.lines()).filter(|(_, item)| !item.trim_ascii().is_empty()) {
        if lines.len() == items_max {
            return Err(too_many(items_max));
        }
        lines.push((line, item));
    }
    Ok(lines)
}

fn array_items(body: &str, items_max: usize) -> Result<Vec<Line<'_>>, ApiError> {
    let mut deserializer = serde_json::Deserializer::from_str(body);
    let malformed = |error: serde_json::Error| {
        ApiError::new(error::INVALID_JSON, format!("the body is not well-formed JSON: {error}"))
    };
    let items = deserializer.deserialize_seq(Items { items_max }).map_err(malformed)?;
    let Some(items) = items else { return Err(too_many(items_max)) };
    deserializer.end().map_err(malformed)?;
    Ok(items)
}

/// Collects the items of an array as they stand in the body; none if there are too many.
struct Items {
    items_max: usize,
}

impl<'b> Visitor<'b> for Items {
    type Value = Option<Vec<Line<'b>>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'b>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        let mut is_full = false;
        while let Some(item) = seq.next_element::<&'b RawValue>()? {
            if items.len() == self.items_max {
                is_full = true;
            } else {
                items.push((items.len() as u64 + 1, item.get()));
            }
        }
        Ok((!is_full).then_some(items))
    }
}

fn too_many(items_max: usize) -> ApiError {
    let detail = format!("the body has more than {items_max} documents, the most that one request may have");
    ApiError::new(error::BATCH_TOO_LARGE, detail)
}

/// What the items say, and where each of it stands. What cannot be read is reported.
fn read_items(
    shared: &Shared,
    caller: &Caller,
    lines: &[Line<'_>],
    report: &mut BulkReport,
) -> (Vec<DocumentNews>, Vec<(u64, DocumentUrl)>) {
    let mut news = Vec::with_capacity(lines.len());
    let mut places = Vec::with_capacity(lines.len());
    for (line, text) in lines {
        let item: BulkItem<'_> = match wire_json::read_item(text) {
            Ok(item) => item,
            Err(error) => {
                report.fail(*line, None, &error);
                continue;
            }
        };
        match read_item(shared, caller, &item) {
            Ok((url, one)) => {
                places.push((*line, url));
                news.push(one);
            }
            Err(error) => report.fail(*line, Some(&item.id), &error),
        }
    }
    (news, places)
}

fn read_item(shared: &Shared, caller: &Caller, item: &BulkItem<'_>) -> Result<(DocumentUrl, DocumentNews), ApiError> {
    let url = DocumentUrl::parse(&item.id)?;
    caller.check_document(&url, &shared.node)?;
    match (item.document, item.delete == Some(true)) {
        (Some(document), false) => {
            let (text, bytes_max) = (document.get(), shared.settings.body_bytes_max);
            if text.len() > bytes_max {
                let detail = format!("the document has {} bytes, at most {bytes_max} are allowed", text.len());
                return Err(ApiError::new(error::TOO_LARGE, detail));
            }
            if item.revision.is_some() {
                let detail = "revision belongs to a delete; a document shows its revision itself";
                return Err(ApiError::new(error::DOCUMENT_INVALID, detail));
            }
            let content = Bytes::copy_from_slice(text.as_bytes());
            Ok((url.clone(), DocumentNews::Put { url, content }))
        }
        (None, true) => {
            let stream = shared.node.stream_of(&url).ok_or_else(|| IntakeError::NoResource(url.clone()))?;
            let revision = item.revision.map(|raw| read_revision(&stream.change.format, raw)).transpose()?;
            Ok((url.clone(), DocumentNews::Delete { url, revision }))
        }
        _ => {
            let detail = "an item must have either \"document\" or \"delete\": true";
            Err(ApiError::new(error::DOCUMENT_INVALID, detail))
        }
    }
}

fn read_revision(format: &RevisionFormat, raw: &RawValue) -> Result<Revision, ApiError> {
    let invalid = |reason: &dyn fmt::Display| ApiError::new(error::DOCUMENT_INVALID, format!("revision: {reason}"));
    let value: Value = serde_json::from_str(raw.get()).map_err(|error| invalid(&error))?;
    let read = match &value {
        Value::String(text) if *format != RevisionFormat::Integer => read_revision_text(format, text),
        Value::String(text) => format.read(&JsonScalar::Text(text)),
        Value::Number(number) => format.read(&scalar(number)),
        Value::Bool(value) => format.read(&JsonScalar::Bool(*value)),
        Value::Null => format.read(&JsonScalar::Null),
        Value::Array(_) | Value::Object(_) => {
            return Err(invalid(&format_args!("{} is neither a number nor a string", excerpt(raw.get()))));
        }
    };
    read.map_err(|error| invalid(&error))
}

fn scalar(number: &serde_json::Number) -> JsonScalar<'static> {
    match number.as_i128() {
        Some(integer) => JsonScalar::Integer(integer),
        None => JsonScalar::Float(number.as_f64().unwrap_or(f64::NAN)),
    }
}

impl BulkReport {
    fn fail(&mut self, line: u64, id: Option<&str>, error: &ApiError) {
        self.failed += 1;
        if self.errors.len() < ERRORS_MAX {
            let code = error.code();
            let error = BulkErrorDetail { code: code.code, title: code.title, detail: error.detail().to_owned() };
            self.errors.push(BulkError { line, id: id.map(excerpt), error });
        }
    }
}

fn none_accepted(report: &BulkReport) -> ApiError {
    let first = report.errors.first().map_or("", |error| &*error.error.detail);
    let detail = format!("all {} documents were refused; the first: {first}", report.failed);
    let error = ApiError::new(error::NONE_ACCEPTED, detail);
    match serde_json::to_value(report) {
        Ok(Value::Object(members)) => error.with_report(members),
        _ => error,
    }
}
