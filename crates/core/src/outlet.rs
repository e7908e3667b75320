//! An outlet: how changes go out. So far there is one kind, the subscription, and one destination, HTTP.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use jiff::Timestamp;

use crate::{OutletId, Sequence, StreamId, document::Action, filter::Filter, retry::RetryPolicy, template::Template};

/// A client of a stream: where, when and how it is told. Parsed and checked: nothing in it can be wrong any more.
#[derive(Clone, Debug)]
pub struct Outlet {
    pub id: OutletId,
    pub stream: StreamId,
    pub name: String,
    pub status: Status,
    pub mode: Mode,
    pub endpoint: Endpoint,
    pub delivery: Arc<DeliveryPolicy>,
    pub content: Content,
    /// Extra members of the envelope, with the wildcards of the resource's endpoint filled in.
    pub data: Vec<(String, DataValue)>,
    /// Which changes it is told of; all, if there is none.
    pub filter: Option<Filter>,
    pub revisions: Revisions,
    /// The outlet is also told of what was there before it.
    pub snapshot: bool,
    pub signing: Signing,
    /// Where the feed was when the outlet was made: what is older is its concern only with a snapshot.
    pub since: Sequence,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl Outlet {
    /// Where in the feed the outlet begins.
    pub fn start(&self) -> Sequence {
        if self.snapshot { Sequence::START } else { self.since }
    }
}

/// Whether the outlet is told of changes. One that is not keeps its place in the feed, and loses nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    Active,
    /// By its owner.
    Paused {
        since: Timestamp,
    },
    /// By Flare, for this reason.
    Disabled {
        since: Timestamp,
        reason: String,
    },
}

impl Status {
    pub fn is_active(&self) -> bool {
        *self == Self::Active
    }
}

/// Who sets the pace.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mode {
    /// Flare: changes are pushed as soon as possible.
    #[default]
    Active,
    /// The client: by demand, or by pulling.
    Passive,
}

impl Mode {
    pub const ALL: [Self; 2] = [Self::Active, Self::Passive];

    /// The name in the API and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Passive => "passive",
        }
    }
}

/// How deliveries are signed.
#[derive(Clone, Debug)]
pub struct Signing {
    pub secret: Secret,
    /// The secret before the last rotation, which signs too until this time.
    pub previous: Option<(Secret, Timestamp)>,
}

/// A signature scheme of Standard Webhooks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Scheme {
    /// HMAC-SHA256 with a secret that both sides know.
    #[default]
    V1,
    /// Ed25519: Flare signs with a private key, clients check with the public one.
    V1a,
}

impl Scheme {
    pub const ALL: [Self; 2] = [Self::V1, Self::V1a];

    /// The name in the API and in signatures.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1a => "v1a",
        }
    }
}

/// Where a push goes.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub url: Template,
    pub method: Method,
    pub headers: Vec<(String, Vec<String>)>,
    /// What is different for an action.
    pub actions: Vec<(Action, ActionOverride)>,
    /// Ask the endpoint whether it wants deliveries before the first one (the webhook handshake of CloudEvents).
    pub handshake: bool,
}

impl Endpoint {
    fn action(&self, action: Action) -> Option<&ActionOverride> {
        self.actions.iter().find(|(on, _)| *on == action).map(|(_, different)| different)
    }

    pub fn url(&self, action: Action) -> &Template {
        self.action(action).and_then(|different| different.url.as_ref()).unwrap_or(&self.url)
    }

    pub fn method(&self, action: Action) -> Method {
        self.action(action).and_then(|different| different.method).unwrap_or(self.method)
    }

    /// The headers of an action replace the common ones of the same name.
    pub fn headers(&self, action: Action) -> impl Iterator<Item = (&str, &[String])> {
        let own = self.action(action).map_or(&[][..], |different| &different.headers[..]);
        let common =
            self.headers.iter().filter(move |(name, _)| !own.iter().any(|(taken, _)| taken.eq_ignore_ascii_case(name)));
        own.iter().chain(common).map(|(name, values)| (name.as_str(), values.as_slice()))
    }
}

#[derive(Clone, Debug, Default)]
pub struct ActionOverride {
    pub url: Option<Template>,
    pub method: Option<Method>,
    pub headers: Vec<(String, Vec<String>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    pub const ALL: [Self; 5] = [Self::Get, Self::Post, Self::Put, Self::Patch, Self::Delete];

    /// The name in the API and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Put => "put",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str().eq_ignore_ascii_case(text))
    }
}

/// How hard Flare tries.
#[derive(Clone, PartialEq, Debug)]
pub struct DeliveryPolicy {
    /// Answers that mean delivered; empty means any 2xx.
    pub success: Vec<u16>,
    /// Answers that mean: give up on this revision, quietly.
    pub discard: Vec<u16>,
    pub timeout: Duration,
    /// Requests in flight at once for this outlet.
    pub concurrency: u16,
    /// Requests started per second at most.
    pub rate: Option<NonZeroU32>,
    /// A revision that could not be delivered for so long is given up.
    pub ttl: Option<Duration>,
    pub retry: RetryPolicy,
}

impl DeliveryPolicy {
    pub fn judge(&self, status: u16) -> Verdict {
        if self.success.contains(&status) || (self.success.is_empty() && (200..300).contains(&status)) {
            Verdict::Delivered
        } else if self.discard.contains(&status) {
            Verdict::Discarded
        } else {
            Verdict::Failed
        }
    }
}

/// What an answer means for the delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Delivered,
    Discarded,
    Failed,
}

/// What the body of a push holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content {
    /// Send the document itself, not only the news of it.
    pub document: bool,
    /// Wrap it with id, action, revision and time.
    pub envelope: bool,
    pub format: Format,
}

/// How the body of a push is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Format {
    /// The bare document, or Flare's own envelope.
    #[default]
    Flare,
    /// CloudEvents, structured: an envelope of the standard.
    CloudEvents,
    /// CloudEvents, binary: the document as body, the rest in headers.
    CloudEventsBinary,
}

impl Format {
    pub const ALL: [Self; 3] = [Self::Flare, Self::CloudEvents, Self::CloudEventsBinary];

    /// The name in the API and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Flare => "flare",
            Self::CloudEvents => "cloudevents",
            Self::CloudEventsBinary => "cloudevents-binary",
        }
    }
}

impl Default for Content {
    fn default() -> Self {
        Self { document: true, envelope: true, format: Format::default() }
    }
}

/// Which revisions of a document an outlet is sent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Revisions {
    /// The newest; what it has replaced in the meantime is left out.
    #[default]
    Last,
    /// Every one that is kept, in order.
    All,
}

impl Revisions {
    pub const ALL: [Self; 2] = [Self::Last, Self::All];

    /// The name in the API and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::All => "all",
        }
    }
}

/// A member of `data`: a text with wildcards, or any other JSON as it is.
#[derive(Clone, Debug)]
pub enum DataValue {
    Text(Template),
    /// Canonical JSON.
    Json(String),
}

/// The key of an outlet's signatures. It does not print itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    scheme: Scheme,
    bytes: Arc<[u8]>,
}

impl Secret {
    pub const BYTES_MIN: usize = 24;
    pub const BYTES_MAX: usize = 64;
    /// What a secret starts with in its text form (Standard Webhooks).
    pub const PREFIX: &'static str = "whsec_";
    /// The same for a private key and for a public one.
    pub const PRIVATE_PREFIX: &'static str = "whsk_";
    pub const PUBLIC_PREFIX: &'static str = "whpk_";
    const SEED_BYTES: usize = 32;
    const PUBLIC_BYTES: usize = 32;

    /// A shared secret. None unless the length is within the bounds of Standard Webhooks.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        (Self::BYTES_MIN..=Self::BYTES_MAX)
            .contains(&bytes.len())
            .then(|| Self { scheme: Scheme::V1, bytes: bytes.into() })
    }

    /// An Ed25519 key pair: the seed of the private key, then the public key. None unless the length is right.
    pub fn from_key_pair(bytes: &[u8]) -> Option<Self> {
        (bytes.len() == Self::SEED_BYTES + Self::PUBLIC_BYTES)
            .then(|| Self { scheme: Scheme::V1a, bytes: bytes.into() })
    }

    /// Reads `whsec_` or `whsk_`, and base64.
    pub fn parse(text: &str) -> Option<Self> {
        let decode = |encoded: &str| BASE64.decode(encoded).ok();
        match text.strip_prefix(Self::PRIVATE_PREFIX) {
            Some(encoded) => Self::from_key_pair(&decode(encoded)?),
            None => Self::from_bytes(&decode(text.strip_prefix(Self::PREFIX)?)?),
        }
    }

    /// The text form, for the one time that a shared secret is shown and for the store.
    pub fn reveal(&self) -> String {
        let prefix = match self.scheme {
            Scheme::V1 => Self::PREFIX,
            Scheme::V1a => Self::PRIVATE_PREFIX,
        };
        format!("{prefix}{}", BASE64.encode(&self.bytes))
    }

    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The shared secret, or the key pair.
    pub fn key(&self) -> &[u8] {
        &self.bytes
    }

    /// The seed and the public key of a key pair.
    pub fn key_pair(&self) -> Option<(&[u8], &[u8])> {
        (self.scheme == Scheme::V1a).then(|| self.bytes.split_at(Self::SEED_BYTES))
    }

    /// What clients check signatures with, in its text form; a shared secret has none.
    pub fn public_key(&self) -> Option<String> {
        let (_, public) = self.key_pair()?;
        Some(format!("{}{}", Self::PUBLIC_PREFIX, BASE64.encode(public)))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_as_it_is_written_and_shows_only_its_public_part() {
        let shared = Secret::from_bytes(&[7; 24]).unwrap();
        assert_eq!((shared.scheme(), shared.public_key()), (Scheme::V1, None));
        assert_eq!(Secret::parse(&shared.reveal()), Some(shared.clone()));
        let pair = Secret::from_key_pair(&[[1; 32], [2; 32]].concat()).unwrap();
        assert_eq!(Secret::parse(&pair.reveal()), Some(pair.clone()));
        assert!(pair.reveal().starts_with("whsk_"));
        assert_eq!(pair.public_key().unwrap(), format!("whpk_{}", BASE64.encode([2; 32])));
        assert_eq!(format!("{shared:?} {pair:?}"), "Secret(hidden) Secret(hidden)");
        for wrong in ["", "whsec_", "whsec_c2hvcnQ=", "whsk_c2hvcnQ=", "whpk_", "whsec_%"] {
            assert_eq!(Secret::parse(wrong), None, "{wrong}");
        }
    }
}
