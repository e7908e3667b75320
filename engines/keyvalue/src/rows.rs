//! How rows are laid out.
//!
//! Rows of the hot path (heads, changes, versions, cursors, retries) are binary and start with a byte that names their
//! layout. Streams and outlets are JSON: they are few, change seldom, and grow new members.

use std::{sync::Arc, time::Duration};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flare_core::{
    DocumentNumber, Error, OutletId, Result, Sequence, StreamId,
    change::{ChangeRule, FieldPath},
    document::{Action, Change, Retry, Version, WrittenChange},
    outlet::{ActionOverride, Content, DataValue, DeliveryPolicy, Endpoint, Method, Outlet, Secret},
    pattern::Pattern,
    port::Idempotency,
    retry::{BackoffFunction, RetryPolicy, RetrySettings},
    revision::{Revision, RevisionFormat},
    stream::Stream,
    template::Template,
    url::DocumentUrl,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{KeyValue, Table, keys};

const LAYOUT: u8 = 1;

fn damaged(what: &str) -> Error {
    Error::internal(format!("a {what} row of the store is damaged"))
}

/// Checks the layout byte and that at least `bytes_min` follow.
fn open<'a>(row: &'a [u8], bytes_min: usize, what: &str) -> Result<&'a [u8]> {
    match row.split_first() {
        Some((&LAYOUT, rest)) if rest.len() >= bytes_min => Ok(rest),
        _ => Err(damaged(what)),
    }
}

fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

fn timestamp(micros: i64) -> Result<Timestamp> {
    Timestamp::from_microsecond(micros).map_err(|error| damaged("timestamped").because(error))
}

/// The caller has checked that the bytes are there.
fn read_revision(row: &mut impl Buf) -> Revision {
    let mut bytes = [0; 16];
    row.copy_to_slice(&mut bytes);
    Revision::from_bytes(bytes)
}

/// Where the newest change of a document is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub number: DocumentNumber,
    pub sequence: Sequence,
    pub revision: Revision,
    pub updated_at: Timestamp,
    pub deleted: bool,
}

impl Head {
    const BYTES: usize = 8 + 8 + 16 + 8 + 1;

    pub fn encode(&self) -> Bytes {
        let mut row = BytesMut::with_capacity(1 + Self::BYTES);
        row.put_u8(LAYOUT);
        row.put_u64(self.number.0);
        row.put_u64(self.sequence.0);
        row.put_slice(&self.revision.to_bytes());
        row.put_i64(micros(self.updated_at));
        row.put_u8(self.deleted.into());
        row.freeze()
    }

    pub fn decode(row: &[u8]) -> Result<Self> {
        let mut row = open(row, Self::BYTES, "head")?;
        Ok(Self {
            number: DocumentNumber(row.get_u64()),
            sequence: Sequence(row.get_u64()),
            revision: read_revision(&mut row),
            updated_at: timestamp(row.get_i64())?,
            deleted: row.get_u8() != 0,
        })
    }
}

const CHANGE_HEAD_BYTES: usize = 8 + 16 + 8 + 1 + 2;

/// Writes what [`decode_change`] reads; the sequence is in the key.
pub(crate) fn encode_change(head: &Head, url: &DocumentUrl, content: Option<&Bytes>) -> Bytes {
    let url = url.as_str().as_bytes();
    let content_bytes = content.map_or(0, Bytes::len);
    let mut row = BytesMut::with_capacity(1 + CHANGE_HEAD_BYTES + url.len() + content_bytes);
    row.put_u8(LAYOUT);
    row.put_u64(head.number.0);
    row.put_slice(&head.revision.to_bytes());
    row.put_i64(micros(head.updated_at));
    row.put_u8(head.deleted.into());
    row.put_u16(url.len() as u16);
    row.put_slice(url);
    if let Some(content) = content {
        row.put_slice(content);
    }
    row.freeze()
}

pub(crate) fn decode_change(stream: StreamId, sequence: Sequence, mut row: Bytes) -> Result<Change> {
    open(&row, CHANGE_HEAD_BYTES, "change")?;
    row.advance(1);
    let number = DocumentNumber(row.get_u64());
    let revision = read_revision(&mut row);
    let updated_at = timestamp(row.get_i64())?;
    let deleted = row.get_u8() != 0;
    let url_bytes = usize::from(row.get_u16());
    if row.len() < url_bytes {
        return Err(damaged("change"));
    }
    let url = read_url(&row.split_to(url_bytes))?;
    let written = WrittenChange { sequence, number, revision, replaces: None };
    Ok(Change::new(stream, &written, url, updated_at, (!deleted).then_some(row)))
}

fn read_url(bytes: &[u8]) -> Result<DocumentUrl> {
    std::str::from_utf8(bytes).ok().and_then(|url| DocumentUrl::parse(url).ok()).ok_or_else(|| damaged("URL"))
}

const VERSION_BYTES: usize = 8 + 16 + 1;

pub(crate) fn encode_version(version: &Version) -> Bytes {
    let mut row = BytesMut::with_capacity(1 + VERSION_BYTES);
    row.put_u8(LAYOUT);
    row.put_u64(version.sequence.0);
    row.put_slice(&version.revision.to_bytes());
    row.put_u8(version.deleted.into());
    row.freeze()
}

pub(crate) fn decode_version(row: &[u8]) -> Result<Version> {
    let mut row = open(row, VERSION_BYTES, "version")?;
    Ok(Version { sequence: Sequence(row.get_u64()), revision: read_revision(&mut row), deleted: row.get_u8() != 0 })
}

pub(crate) fn encode_cursor(cursor: Sequence) -> Bytes {
    Bytes::copy_from_slice(&cursor.0.to_be_bytes())
}

pub(crate) fn decode_cursor(row: &[u8]) -> Result<Sequence> {
    row.try_into().map(|bytes| Sequence(u64::from_be_bytes(bytes))).map_err(|_| damaged("cursor"))
}

/// How far replaced changes were removed.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Swept {
    /// Up to here a sweep has passed.
    pub from: Sequence,
    /// Up to here one is passing.
    pub to: Sequence,
}

impl Swept {
    pub fn read(map: &dyn KeyValue) -> Result<Self> {
        let Some(row) = map.get(Table::Meta, keys::SWEPT)? else { return Ok(Self::default()) };
        let (from, to) = row.split_at_checked(8).ok_or_else(|| damaged("sweep"))?;
        Ok(Self { from: decode_cursor(from)?, to: decode_cursor(to)? })
    }

    pub fn encode(self) -> Bytes {
        Bytes::from([self.from.0.to_be_bytes(), self.to.0.to_be_bytes()].concat())
    }
}

const RETRY_HEAD_BYTES: usize = 4 + 8;

pub(crate) fn encode_retry(retry: &Retry) -> Bytes {
    let url = retry.url.as_str().as_bytes();
    let mut row = BytesMut::with_capacity(1 + RETRY_HEAD_BYTES + url.len());
    row.put_u8(LAYOUT);
    row.put_u32(retry.attempts);
    row.put_i64(micros(retry.due));
    row.put_slice(url);
    row.freeze()
}

pub(crate) fn decode_retry(outlet: OutletId, number: DocumentNumber, row: &[u8]) -> Result<Retry> {
    let mut row = open(row, RETRY_HEAD_BYTES, "retry")?;
    let attempts = row.get_u32();
    let due = timestamp(row.get_i64())?;
    Ok(Retry { outlet, number, url: read_url(row)?, attempts, due })
}

const IDEMPOTENCY_BYTES: usize = 8 + 32 + 16;

pub(crate) fn encode_idempotency(once: &Idempotency, id: &[u8; 16]) -> Bytes {
    let mut row = BytesMut::with_capacity(1 + IDEMPOTENCY_BYTES);
    row.put_u8(LAYOUT);
    row.put_i64(micros(once.at));
    row.put_slice(&once.fingerprint);
    row.put_slice(id);
    row.freeze()
}

/// The fingerprint of the request and the id of what it made.
pub(crate) fn decode_idempotency(row: &[u8]) -> Result<([u8; 32], [u8; 16])> {
    let mut row = open(row, IDEMPOTENCY_BYTES, "idempotency")?;
    row.advance(8);
    let (mut fingerprint, mut id) = ([0; 32], [0; 16]);
    row.copy_to_slice(&mut fingerprint);
    row.copy_to_slice(&mut id);
    Ok((fingerprint, id))
}

pub(crate) fn idempotency_at(row: &[u8]) -> Option<Timestamp> {
    let mut row = open(row, IDEMPOTENCY_BYTES, "idempotency").ok()?;
    Timestamp::from_microsecond(row.get_i64()).ok()
}

#[derive(Serialize, Deserialize)]
struct StreamRow {
    endpoint: String,
    field: String,
    format: Option<String>,
    created_at: i64,
}

pub(crate) fn encode_stream(stream: &Stream) -> Result<Bytes> {
    encode_json(&StreamRow {
        endpoint: stream.endpoint.as_str().into(),
        field: stream.change.field.to_string(),
        format: stream.change.format.as_str().map(Into::into),
        created_at: micros(stream.created_at),
    })
}

pub(crate) fn decode_stream(id: StreamId, row: &[u8]) -> Result<Stream> {
    let row: StreamRow = decode_json(row, "stream")?;
    let format = match &row.format {
        None => RevisionFormat::Integer,
        Some(text) => RevisionFormat::parse(text).map_err(|error| damaged("stream").because(error))?,
    };
    let field = FieldPath::parse(&row.field).map_err(|error| damaged("stream").because(error))?;
    Ok(Stream {
        id,
        endpoint: Pattern::parse(&row.endpoint).map_err(|error| damaged("stream").because(error))?,
        change: ChangeRule { field, format },
        created_at: timestamp(row.created_at)?,
    })
}

#[derive(Serialize, Deserialize)]
struct OutletRow {
    stream: String,
    name: String,
    url: String,
    method: String,
    headers: Vec<(String, Vec<String>)>,
    actions: Vec<ActionRow>,
    delivery: DeliveryRow,
    document: bool,
    envelope: bool,
    data: Vec<(String, DataRow)>,
    secret: String,
    since: u64,
    created_at: i64,
    updated_at: i64,
}

#[derive(Serialize, Deserialize)]
struct ActionRow {
    action: String,
    url: Option<String>,
    method: Option<String>,
    headers: Vec<(String, Vec<String>)>,
}

#[derive(Serialize, Deserialize)]
struct DeliveryRow {
    success: Vec<u16>,
    discard: Vec<u16>,
    timeout_ms: u64,
    concurrency: u16,
    retry: RetryPolicyRow,
}

#[derive(Serialize, Deserialize)]
struct RetryPolicyRow {
    min_delay_target: u32,
    max_delay_target: u32,
    num_retries: u32,
    num_no_delay_retries: u32,
    num_min_delay_retries: u32,
    num_max_delay_retries: u32,
    backoff_function: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DataRow {
    Text(String),
    Json(String),
}

pub(crate) fn encode_outlet(outlet: &Outlet) -> Result<Bytes> {
    let actions = outlet.endpoint.actions.iter().map(|(action, different)| ActionRow {
        action: action.as_str().into(),
        url: different.url.as_ref().map(|url| url.as_str().into()),
        method: different.method.map(|method| method.as_str().into()),
        headers: different.headers.clone(),
    });
    let data = outlet.data.iter().map(|(name, value)| {
        let value = match value {
            DataValue::Text(template) => DataRow::Text(template.as_str().into()),
            DataValue::Json(json) => DataRow::Json(json.clone()),
        };
        (name.clone(), value)
    });
    encode_json(&OutletRow {
        stream: outlet.stream.to_string(),
        name: outlet.name.clone(),
        url: outlet.endpoint.url.as_str().into(),
        method: outlet.endpoint.method.as_str().into(),
        headers: outlet.endpoint.headers.clone(),
        actions: actions.collect(),
        delivery: encode_delivery(&outlet.delivery),
        document: outlet.content.document,
        envelope: outlet.content.envelope,
        data: data.collect(),
        secret: outlet.secret.reveal(),
        since: outlet.since.0,
        created_at: micros(outlet.created_at),
        updated_at: micros(outlet.updated_at),
    })
}

fn encode_delivery(policy: &DeliveryPolicy) -> DeliveryRow {
    let retry = policy.retry.settings();
    DeliveryRow {
        success: policy.success.clone(),
        discard: policy.discard.clone(),
        timeout_ms: policy.timeout.as_millis() as u64,
        concurrency: policy.concurrency,
        retry: RetryPolicyRow {
            min_delay_target: retry.min_delay_target,
            max_delay_target: retry.max_delay_target,
            num_retries: retry.num_retries,
            num_no_delay_retries: retry.num_no_delay_retries,
            num_min_delay_retries: retry.num_min_delay_retries,
            num_max_delay_retries: retry.num_max_delay_retries,
            backoff_function: retry.backoff_function.as_str().into(),
        },
    }
}

/// The stream that an outlet row belongs to; its pattern is needed to read the rest.
pub(crate) fn outlet_stream(row: &[u8]) -> Result<StreamId> {
    #[derive(Deserialize)]
    struct Owner {
        stream: String,
    }
    let owner: Owner = decode_json(row, "outlet")?;
    owner.stream.parse().map_err(|error| damaged("outlet").because(error))
}

pub(crate) fn decode_outlet(id: OutletId, stream: &Stream, row: &[u8]) -> Result<Outlet> {
    let row: OutletRow = decode_json(row, "outlet")?;
    let template =
        |text: &str| Template::parse(text, &stream.endpoint).map_err(|error| damaged("outlet").because(error));
    let method = |text: &str| Method::parse(text).ok_or_else(|| damaged("outlet"));
    let mut actions = Vec::with_capacity(row.actions.len());
    for different in row.actions {
        let action = [Action::Create, Action::Update, Action::Delete]
            .into_iter()
            .find(|action| action.as_str() == different.action)
            .ok_or_else(|| damaged("outlet"))?;
        actions.push((
            action,
            ActionOverride {
                url: different.url.as_deref().map(template).transpose()?,
                method: different.method.as_deref().map(method).transpose()?,
                headers: different.headers,
            },
        ));
    }
    let mut data = Vec::with_capacity(row.data.len());
    for (name, value) in row.data {
        data.push((
            name,
            match value {
                DataRow::Text(text) => DataValue::Text(template(&text)?),
                DataRow::Json(json) => DataValue::Json(json),
            },
        ));
    }
    Ok(Outlet {
        id,
        stream: stream.id,
        name: row.name,
        endpoint: Endpoint { url: template(&row.url)?, method: method(&row.method)?, headers: row.headers, actions },
        delivery: Arc::new(decode_delivery(row.delivery)?),
        content: Content { document: row.document, envelope: row.envelope },
        data,
        secret: Secret::parse(&row.secret).ok_or_else(|| damaged("outlet"))?,
        since: Sequence(row.since),
        created_at: timestamp(row.created_at)?,
        updated_at: timestamp(row.updated_at)?,
    })
}

fn decode_delivery(row: DeliveryRow) -> Result<DeliveryPolicy> {
    let retry = row.retry;
    let backoff_function =
        BackoffFunction::parse(&retry.backoff_function).map_err(|error| damaged("outlet").because(error))?;
    let retry = RetryPolicy::new(RetrySettings {
        min_delay_target: retry.min_delay_target,
        max_delay_target: retry.max_delay_target,
        num_retries: retry.num_retries,
        num_no_delay_retries: retry.num_no_delay_retries,
        num_min_delay_retries: retry.num_min_delay_retries,
        num_max_delay_retries: retry.num_max_delay_retries,
        backoff_function,
    })
    .map_err(|error| damaged("outlet").because(error))?;
    Ok(DeliveryPolicy {
        success: row.success,
        discard: row.discard,
        timeout: Duration::from_millis(row.timeout_ms),
        concurrency: row.concurrency,
        retry,
    })
}

fn encode_json(row: &impl Serialize) -> Result<Bytes> {
    serde_json::to_vec(row).map(Bytes::from).map_err(|error| Error::internal("could not encode a row").because(error))
}

fn decode_json<'a, T: Deserialize<'a>>(row: &'a [u8], what: &str) -> Result<T> {
    serde_json::from_slice(row).map_err(|error| damaged(what).because(error))
}
