//! The row of an outlet.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use bytes::Bytes;
use flare_core::{
    OutletId, Result, Sequence, StreamId,
    document::Action,
    filter::Filter,
    outlet::{
        ActionOverride, Content, DataValue, DeliveryPolicy, Endpoint, Format, Method, Mode, Outlet, Revisions, Secret,
        Signing, Status,
    },
    retry::{RetryPolicy, RetrySettings},
    stream::Stream,
    template::Template,
};
use serde::{Deserialize, Serialize};

use super::{damaged, decode_json, encode_json, micros, timestamp};

#[derive(Serialize, Deserialize)]
struct OutletRow {
    stream: String,
    name: String,
    status: StatusRow,
    mode: String,
    url: String,
    method: String,
    headers: Vec<(String, Vec<String>)>,
    actions: Vec<ActionRow>,
    #[serde(default)]
    handshake: bool,
    delivery: DeliveryRow,
    document: bool,
    envelope: bool,
    format: String,
    data: Vec<(String, DataRow)>,
    filter: Option<String>,
    revisions: String,
    snapshot: bool,
    secret: String,
    previous_secret: Option<(String, i64)>,
    since: u64,
    created_at: i64,
    updated_at: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StatusRow {
    Active,
    Paused { since: i64 },
    Disabled { since: i64, reason: String },
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
    rate: Option<NonZeroU32>,
    ttl_ms: Option<u64>,
    retry: RetrySettings,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DataRow {
    Text(String),
    Json(String),
}

pub fn encode_outlet(outlet: &Outlet) -> Result<Bytes> {
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
        status: encode_status(&outlet.status),
        mode: outlet.mode.as_str().into(),
        url: outlet.endpoint.url.as_str().into(),
        method: outlet.endpoint.method.as_str().into(),
        headers: outlet.endpoint.headers.clone(),
        actions: actions.collect(),
        handshake: outlet.endpoint.handshake,
        delivery: encode_delivery(&outlet.delivery),
        document: outlet.content.document,
        envelope: outlet.content.envelope,
        format: outlet.content.format.as_str().into(),
        data: data.collect(),
        filter: outlet.filter.as_ref().map(|filter| filter.as_str().into()),
        revisions: outlet.revisions.as_str().into(),
        snapshot: outlet.snapshot,
        secret: outlet.signing.secret.reveal(),
        previous_secret: outlet.signing.previous.as_ref().map(|(secret, until)| (secret.reveal(), micros(*until))),
        since: outlet.since.0,
        created_at: micros(outlet.created_at),
        updated_at: micros(outlet.updated_at),
    })
}

fn encode_status(status: &Status) -> StatusRow {
    match status {
        Status::Active => StatusRow::Active,
        Status::Paused { since } => StatusRow::Paused { since: micros(*since) },
        Status::Disabled { since, reason } => StatusRow::Disabled { since: micros(*since), reason: reason.clone() },
    }
}

fn decode_status(row: StatusRow) -> Result<Status> {
    Ok(match row {
        StatusRow::Active => Status::Active,
        StatusRow::Paused { since } => Status::Paused { since: timestamp(since)? },
        StatusRow::Disabled { since, reason } => Status::Disabled { since: timestamp(since)?, reason },
    })
}

fn secret(text: &str) -> Result<Secret> {
    Secret::parse(text).ok_or_else(|| damaged("outlet"))
}

/// Finds one of several by its name.
fn named<T: Copy>(all: &[T], name: fn(T) -> &'static str, text: &str) -> Result<T> {
    all.iter().copied().find(|one| name(*one) == text).ok_or_else(|| damaged("outlet"))
}

fn encode_delivery(policy: &DeliveryPolicy) -> DeliveryRow {
    DeliveryRow {
        success: policy.success.clone(),
        discard: policy.discard.clone(),
        timeout_ms: policy.timeout.as_millis() as u64,
        concurrency: policy.concurrency,
        rate: policy.rate,
        ttl_ms: policy.ttl.map(|ttl| ttl.as_millis() as u64),
        retry: *policy.retry.settings(),
    }
}

/// The stream that an outlet row belongs to; its pattern is needed to read the rest.
pub fn outlet_stream(row: &[u8]) -> Result<StreamId> {
    #[derive(Deserialize)]
    struct Owner {
        stream: String,
    }
    let owner: Owner = decode_json(row, "outlet")?;
    owner.stream.parse().map_err(|error| damaged("outlet").because(error))
}

pub fn decode_outlet(id: OutletId, stream: &Stream, row: &[u8]) -> Result<Outlet> {
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
        status: decode_status(row.status)?,
        mode: named(&Mode::ALL, Mode::as_str, &row.mode)?,
        endpoint: Endpoint {
            url: template(&row.url)?,
            method: method(&row.method)?,
            headers: row.headers,
            actions,
            handshake: row.handshake,
        },
        delivery: Arc::new(decode_delivery(row.delivery)?),
        content: Content {
            document: row.document,
            envelope: row.envelope,
            format: named(&Format::ALL, Format::as_str, &row.format)?,
        },
        data,
        filter: match row.filter {
            Some(text) => Some(Filter::parse(&text).map_err(|error| damaged("outlet").because(error))?),
            None => None,
        },
        revisions: named(&Revisions::ALL, Revisions::as_str, &row.revisions)?,
        snapshot: row.snapshot,
        signing: Signing {
            secret: secret(&row.secret)?,
            previous: match row.previous_secret {
                Some((text, until)) => Some((secret(&text)?, timestamp(until)?)),
                None => None,
            },
        },
        since: Sequence(row.since),
        created_at: timestamp(row.created_at)?,
        updated_at: timestamp(row.updated_at)?,
    })
}

fn decode_delivery(row: DeliveryRow) -> Result<DeliveryPolicy> {
    let retry = RetryPolicy::new(row.retry).map_err(|error| damaged("outlet").because(error))?;
    Ok(DeliveryPolicy {
        success: row.success,
        discard: row.discard,
        timeout: Duration::from_millis(row.timeout_ms),
        concurrency: row.concurrency,
        rate: row.rate,
        ttl: row.ttl_ms.map(Duration::from_millis),
        retry,
    })
}
