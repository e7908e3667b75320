//! How a subscription signs, on the wire.

use std::time::Duration;

use flare_core::outlet::{Scheme, Secret, Signing};
use flare_node::Rotation;
use jiff::Timestamp;
use serde::Deserialize;
use utoipa::{
    ToSchema,
    openapi::schema::{Object, ObjectBuilder, Type},
};

use super::{
    Refusal, duration,
    subscription::{named, names_schema, read_secret},
};

const OVERLAP: Duration = Duration::from_secs(24 * 3600);
const OVERLAP_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// What a rotation asks for; everything may be absent.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Rotation, examples(json!({ "overlap": "24h" })))]
pub(crate) struct NewRotation {
    /// The new secret: `whsec_` and 24 to 64 bytes in base64. One is made if it is absent. Not for `v1a`.
    #[schema(
        write_only,
        pattern = "^whsec_([A-Za-z0-9+/]{4}){8,20}([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=|[A-Za-z0-9+/][AQgw]==)?$"
    )]
    pub secret: Option<String>,
    #[serde(default)]
    #[schema(schema_with = signature_schema)]
    pub signature: Option<String>,
    /// How long deliveries are signed with the present secret too: up to 720h, 24h if it is absent.
    #[schema(pattern = "^[0-9]+(ms|s|m|h)$", examples("24h"))]
    pub overlap: Option<String>,
}

impl NewRotation {
    pub fn into_domain(self) -> Result<Rotation, Refusal> {
        let (secret, signature) = read(self.secret.as_deref(), self.signature)?;
        let overlap = match self.overlap {
            Some(text) => duration::parse(&text).filter(|overlap| *overlap <= OVERLAP_MAX).ok_or_else(|| {
                let max = duration::format(OVERLAP_MAX);
                Refusal::of("overlap", text, format_args!("a duration from \"0s\" to \"{max}\", such as \"24h\""))
            })?,
            None => OVERLAP,
        };
        Ok(Rotation { secret, signature, overlap })
    }
}

/// The secret and the scheme, which must fit each other.
pub(crate) fn read(
    secret: Option<&str>,
    signature: Option<String>,
) -> Result<(Option<Secret>, Option<Scheme>), Refusal> {
    let secret = secret.map(read_secret).transpose()?;
    let signature = match signature {
        Some(name) => Some(named("signature", &Scheme::ALL, Scheme::as_str, Some(name))?),
        None => None,
    };
    if secret.is_some() && signature == Some(Scheme::V1a) {
        return Err(Refusal("secret cannot be given for the signature \"v1a\": Flare makes its key pair".to_owned()));
    }
    Ok((secret, signature))
}

/// The secret that clients need, where they need one.
pub(crate) fn shown_once(signing: &Signing) -> Option<String> {
    (signing.secret.scheme() == Scheme::V1).then(|| signing.secret.reveal())
}

/// When the secret before the last rotation ends, while it lasts.
pub(crate) fn previous_until(signing: &Signing) -> Option<String> {
    let (_, until) = signing.previous.as_ref()?;
    (*until > Timestamp::now()).then(|| until.to_string())
}

pub(crate) fn signature_schema() -> Object {
    let description = "The scheme of the signatures (Standard Webhooks): HMAC-SHA256 with a shared secret (v1, for a \
                       new subscription that does not say), or Ed25519 with a key pair (v1a). Only a rotation \
                       changes it.";
    names_schema(description, Scheme::ALL.map(Scheme::as_str))
}

pub(crate) fn signature_shown_schema() -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(Scheme::ALL.map(Scheme::as_str))).build()
}
