//! Subscriptions on the wire.

use std::sync::Arc;

use flare_core::{
    outlet::{Content, DataValue, Endpoint, Format, Method, Mode, Outlet, Revisions, Scheme, Secret, Status},
    pattern::Pattern,
    template::Template,
};
use flare_node::{NewOutlet, Node};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use utoipa::ToSchema;

use super::{
    Refusal,
    delivery::{DeliveryShown, NewDelivery},
    endpoint::{EndpointShown, NewEndpoint},
    filter::{self, FilterProblemShown},
    json,
    members::Members,
    page::Pagination,
    secret,
};
use crate::settings::DeliveryBounds;

const NAME_CHARS_MAX: usize = 256;
const DATA_MEMBERS_MAX: usize = 64;
const DATA_BYTES_MAX: usize = 16 << 10;

/// A subscription to be made, or what one is to become.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({
    "name": "wishlist",
    "endpoint": { "url": "https://api.company.com/wishlist/{id}", "method": "post" },
    "delivery": { "success": [200], "timeout": "15s" },
    "data": { "service": "user", "id": "{id}" },
    "filter": "current.quantity > 0"
})))]
pub(crate) struct NewSubscription {
    #[schema(min_length = 1, max_length = 256)]
    pub name: String,
    #[serde(default)]
    #[schema(schema_with = mode_schema)]
    pub mode: Option<String>,
    #[serde(deserialize_with = "json::object")]
    pub endpoint: NewEndpoint,
    #[serde(default, deserialize_with = "json::optional_object")]
    pub delivery: Option<NewDelivery>,
    #[serde(default, deserialize_with = "json::optional_object")]
    pub content: Option<NewContent>,
    /// Members of the envelope of one's own. Strings may use the wildcards of the resource's endpoint.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub data: Option<Members<Value>>,
    /// Which changes are sent: an expression in CEL over `current`, `previous` (or `state`), `action` and `id`. All, if
    /// it is absent.
    #[schema(min_length = 1, max_length = 4096)]
    pub filter: Option<String>,
    #[serde(default)]
    #[schema(schema_with = revision_schema)]
    pub revision: Option<String>,
    /// Whether documents that are there already are sent too. It counts for a new subscription only.
    pub snapshot: Option<bool>,
    #[serde(default)]
    #[schema(schema_with = secret::signature_schema)]
    pub signature: Option<String>,
    /// The key of the signatures (Standard Webhooks): `whsec_` and 24 to 64 bytes in base64. One is made if it is
    /// absent; in a PUT, the present one stays. Not for `v1a`.
    #[schema(
        write_only,
        pattern = "^whsec_([A-Za-z0-9+/]{4}){8,20}([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=|[A-Za-z0-9+/][AQgw]==)?$"
    )]
    pub secret: Option<String>,
}

/// What the body of a push holds.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Content)]
pub(crate) struct NewContent {
    /// Send the document itself, not only the news of it. True if it is absent.
    pub document: Option<bool>,
    /// Wrap it with id, action, revision and time. True if it is absent.
    pub envelope: Option<bool>,
    #[serde(default)]
    #[schema(schema_with = format_schema)]
    pub format: Option<String>,
}

impl NewSubscription {
    /// `pattern` is the endpoint of the resource, whose wildcards may be used.
    pub fn into_domain(self, pattern: &Pattern, bounds: &DeliveryBounds) -> Result<NewOutlet, Refusal> {
        check_name(&self.name)?;
        let (secret, signature) = secret::read(self.secret.as_deref(), self.signature)?;
        let (endpoint, content) = (self.endpoint.into_domain(pattern)?, read_content(self.content)?);
        check_format(&endpoint, content.format)?;
        Ok(NewOutlet {
            mode: named("mode", &Mode::ALL, Mode::as_str, self.mode)?,
            revisions: named("revision", &Revisions::ALL, Revisions::as_str, self.revision)?,
            snapshot: self.snapshot.unwrap_or(false),
            name: self.name,
            endpoint,
            delivery: Arc::new(self.delivery.unwrap_or_default().into_domain(bounds)?),
            content,
            data: read_data(self.data.unwrap_or_default(), pattern)?,
            secret,
            signature,
            filter: filter::read(self.filter.as_deref())?,
        })
    }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let chars = name.chars().count();
    if name.trim().is_empty() || chars > NAME_CHARS_MAX {
        return Err(Refusal::of("name", name, format_args!("a text of 1 to {NAME_CHARS_MAX} characters")));
    }
    Ok(())
}

/// One of several, by its name; the default if it is absent.
pub(super) fn named<T: Copy + Default>(
    field: &str,
    all: &[T],
    name: fn(T) -> &'static str,
    value: Option<String>,
) -> Result<T, Refusal> {
    let Some(value) = value else { return Ok(T::default()) };
    all.iter().copied().find(|one| name(*one) == value).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|one| format!("{:?}", name(*one))).collect();
        Refusal::of(field, &*value, format_args!("one of {}", names.join(", ")))
    })
}

fn read_content(content: Option<NewContent>) -> Result<Content, Refusal> {
    let default = Content::default();
    let Some(content) = content else { return Ok(default) };
    Ok(Content {
        document: content.document.unwrap_or(default.document),
        envelope: content.envelope.unwrap_or(default.envelope),
        format: named("content.format", &Format::ALL, Format::as_str, content.format)?,
    })
}

/// A structured event is the body, which a GET does not have.
fn check_format(endpoint: &Endpoint, format: Format) -> Result<(), Refusal> {
    let methods = endpoint.actions.iter().filter_map(|(_, different)| different.method).chain([endpoint.method]);
    if format == Format::CloudEvents && methods.into_iter().any(|method| method == Method::Get) {
        let (format, binary) = (Format::CloudEvents.as_str(), Format::CloudEventsBinary.as_str());
        return Err(Refusal(format!(
            "content.format is {format:?}, whose events are bodies, but a method of the endpoint is \"get\", which has \
             none: use another method, or {binary:?}"
        )));
    }
    Ok(())
}

fn read_data(Members(members): Members<Value>, pattern: &Pattern) -> Result<Vec<(String, DataValue)>, Refusal> {
    if members.len() > DATA_MEMBERS_MAX {
        return Err(Refusal(format!("data has {} members, it may have at most {DATA_MEMBERS_MAX}", members.len())));
    }
    let mut bytes = 0;
    let mut data = Vec::with_capacity(members.len());
    for (name, value) in members {
        let value = match value {
            Value::String(text) => {
                bytes += text.len();
                let template = Template::parse(&text, pattern);
                DataValue::Text(template.map_err(|error| Refusal::because(&format!("data.{name}"), error))?)
            }
            other => {
                let json = other.to_string();
                bytes += json.len();
                DataValue::Json(json)
            }
        };
        bytes += name.len();
        data.push((name, value));
    }
    if bytes > DATA_BYTES_MAX {
        return Err(Refusal(format!("data has {bytes} bytes, it may have at most {DATA_BYTES_MAX}")));
    }
    Ok(data)
}

/// The refused value may be close to a secret, so the message leaves it out.
pub(super) fn read_secret(text: &str) -> Result<Secret, Refusal> {
    Secret::parse(text).filter(|secret| secret.scheme() == Scheme::V1).ok_or_else(|| {
        let (min, max) = (Secret::BYTES_MIN, Secret::BYTES_MAX);
        Refusal(format!("secret must be \"{}\" followed by {min} to {max} bytes in base64", Secret::PREFIX))
    })
}

/// A client of a resource: where, when and how it is told.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Subscription {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    /// `preparing` while a snapshot is under way, `active`, `paused` or `disabled`.
    pub status: &'static str,
    /// Since when it is paused or disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = "date-time")]
    pub status_since: Option<String>,
    /// How far the snapshot is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub progress: Option<Progress>,
    /// Why it is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status_reason: Option<String>,
    pub mode: &'static str,
    pub endpoint: EndpointShown,
    pub delivery: DeliveryShown,
    pub content: ContentShown,
    #[schema(value_type = Object)]
    pub data: Members<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub filter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub filter_problem: Option<FilterProblemShown>,
    pub revision: &'static str,
    pub snapshot: bool,
    /// The scheme of the signatures (Standard Webhooks).
    #[schema(schema_with = secret::signature_shown_schema)]
    pub signature: &'static str,
    /// What signatures of `v1a` are checked with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^whpk_[A-Za-z0-9+/]{43}=$")]
    pub public_key: Option<String>,
    /// Until then deliveries are signed with the secret before the last rotation too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = "date-time")]
    pub previous_secret_until: Option<String>,
    /// Shown once, in the answer to the creation or the rotation. The private key of `v1a` is never shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub secret: Option<String>,
    #[schema(format = "date-time")]
    pub created_at: String,
    #[schema(format = "date-time")]
    pub updated_at: String,
}

/// How far a snapshot is in the changes of the server, and where it ends.
#[derive(Serialize, ToSchema)]
#[schema(as = SnapshotProgress)]
pub(crate) struct Progress {
    pub position: u64,
    pub until: u64,
}

/// What the body of a push holds.
#[derive(Serialize, ToSchema)]
#[schema(as = ContentShown)]
pub(crate) struct ContentShown {
    pub document: bool,
    pub envelope: bool,
    pub format: &'static str,
}

impl Subscription {
    pub fn of(outlet: &Outlet) -> Self {
        let (status, since, reason) = match &outlet.status {
            Status::Active => ("active", None, None),
            Status::Paused { since } => ("paused", Some(since), None),
            Status::Disabled { since, reason } => ("disabled", Some(since), Some(reason)),
        };
        Self {
            id: outlet.id.to_string(),
            name: outlet.name.clone(),
            status,
            status_since: since.map(|since| since.to_string()),
            progress: None,
            status_reason: reason.cloned(),
            mode: outlet.mode.as_str(),
            endpoint: (&outlet.endpoint).into(),
            delivery: (&*outlet.delivery).into(),
            content: ContentShown {
                document: outlet.content.document,
                envelope: outlet.content.envelope,
                format: outlet.content.format.as_str(),
            },
            data: Members(outlet.data.iter().map(|(name, value)| (name.clone(), show_data(value))).collect()),
            filter: outlet.filter.as_ref().map(|filter| filter.as_str().to_owned()),
            filter_problem: None,
            revision: outlet.revisions.as_str(),
            snapshot: outlet.snapshot,
            signature: outlet.signing.secret.scheme().as_str(),
            public_key: outlet.signing.secret.public_key(),
            previous_secret_until: secret::previous_until(&outlet.signing),
            secret: None,
            created_at: outlet.created_at.to_string(),
            updated_at: outlet.updated_at.to_string(),
        }
    }

    /// With what the node knows besides.
    pub async fn of_node(outlet: &Outlet, node: &Node) -> Self {
        let shown = Self { filter_problem: node.filter_problem(outlet.id).map(Into::into), ..Self::of(outlet) };
        shown.with_progress(outlet, node).await
    }

    /// With how far the snapshot is, if one is under way. One whose queue is to be set up is being prepared too.
    pub async fn with_progress(self, outlet: &Outlet, node: &Node) -> Self {
        match node.snapshot_position(outlet).await {
            Some(position) if outlet.status.is_active() => Self {
                status: "preparing",
                progress: Some(Progress { position: position.0, until: outlet.since.0 }),
                ..self
            },
            _ if outlet.status.is_active() && node.is_preparing(outlet.id) => Self { status: "preparing", ..self },
            _ => self,
        }
    }

    /// For the answers to the creation and the rotation only.
    pub fn with_secret(outlet: &Outlet) -> Self {
        Self { secret: secret::shown_once(&outlet.signing), ..Self::of(outlet) }
    }
}

fn show_data(value: &DataValue) -> Box<RawValue> {
    let json = match value {
        DataValue::Text(template) => Value::from(template.as_str()).to_string(),
        DataValue::Json(json) => json.clone(),
    };
    RawValue::from_string(json).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A page of subscriptions, in the order of their ids.
#[derive(Serialize, ToSchema)]
pub(crate) struct SubscriptionList {
    pub subscriptions: Vec<Subscription>,
    pub pagination: Pagination,
}

fn mode_schema() -> utoipa::openapi::schema::Object {
    let description = "Who sets the pace: Flare, which pushes as soon as possible, or the client.";
    names_schema(description, Mode::ALL.map(Mode::as_str))
}

fn revision_schema() -> utoipa::openapi::schema::Object {
    let description = "Which revisions are sent: the newest, or every one that is kept, in order.";
    names_schema(description, Revisions::ALL.map(Revisions::as_str))
}

fn format_schema() -> utoipa::openapi::schema::Object {
    let description = "The bare document or Flare's envelope, or CloudEvents, structured or binary.";
    names_schema(description, Format::ALL.map(Format::as_str))
}

pub(super) fn names_schema<const N: usize>(
    description: &str,
    names: [&'static str; N],
) -> utoipa::openapi::schema::Object {
    use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
        .description(Some(description))
        .enum_values(Some(names.map(Some).into_iter().chain([None])))
        .build()
}
