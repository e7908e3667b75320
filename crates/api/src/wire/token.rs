//! Tokens on the wire.

use std::time::Duration;

use flare_core::{
    StreamId,
    token::{Scope, Token as DomainToken, TokenText},
};
use flare_node::NewToken as DomainNewToken;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Refusal, duration, page::Pagination};

const NAME_CHARS_MAX: usize = 256;
const RESOURCES_MAX: usize = 100;
const LIFE_MIN: Duration = Duration::from_secs(1);
/// Ten years.
const LIFE_MAX: Duration = Duration::from_secs(87_840 * 3600);

/// A token to be made.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(examples(json!({ "name": "nightly import", "scope": "write", "expiresIn": "2160h" })))]
pub(crate) struct NewToken {
    /// Who holds it, or what it is for.
    #[schema(min_length = 1, max_length = 256)]
    pub name: String,
    #[schema(schema_with = scope_schema)]
    pub scope: String,
    /// The ids of the only resources that it is for; all resources if it is absent. Not for the scope `admin`.
    #[schema(min_items = 1, max_items = 100, examples(json!(["0190163d-8694-739b-aea5-966c26f8ad91"])))]
    pub resources: Option<Vec<String>>,
    /// How long it is good for, from one second to ten years; until it is revoked if it is absent.
    #[schema(pattern = "^[0-9]+(ms|s|m|h)$", examples("2160h"))]
    pub expires_in: Option<String>,
}

impl NewToken {
    /// `exists` says whether there is such a resource.
    pub fn into_domain(self, exists: impl Fn(StreamId) -> bool) -> Result<DomainNewToken, Refusal> {
        if self.name.trim().is_empty() || self.name.chars().count() > NAME_CHARS_MAX {
            let allowed = format_args!("a text of 1 to {NAME_CHARS_MAX} characters");
            return Err(Refusal::of("name", &*self.name, allowed));
        }
        let scope = Scope::parse(&self.scope)
            .ok_or_else(|| Refusal::of("scope", &*self.scope, "one of \"read\", \"write\", \"admin\""))?;
        let streams = self.resources.map(|ids| read_resources(&ids, exists)).transpose()?.unwrap_or_default();
        if scope == Scope::Admin && !streams.is_empty() {
            let reason = "a token of the scope admin may make tokens for everything, so it is bound to nothing";
            return Err(Refusal::because("resources", reason));
        }
        let expires_in = self.expires_in.map(|text| read_life(&text)).transpose()?;
        Ok(DomainNewToken { name: self.name, scope, streams, expires_in })
    }
}

/// Nothing listed is refused: whoever made an empty list did not mean everything.
fn read_resources(ids: &[String], exists: impl Fn(StreamId) -> bool) -> Result<Vec<StreamId>, Refusal> {
    if !(1..=RESOURCES_MAX).contains(&ids.len()) {
        let reason = format!("{} are listed, it must be 1 to {RESOURCES_MAX}; without the field it is all", ids.len());
        return Err(Refusal::because("resources", reason));
    }
    let mut streams = Vec::with_capacity(ids.len());
    for (index, id) in ids.iter().enumerate() {
        let known = id.parse().ok().filter(|stream| exists(*stream));
        let field = format!("resources[{index}]");
        let stream = known.ok_or_else(|| Refusal::of(&field, id, "the id of a resource that is there"))?;
        streams.push(stream);
    }
    // In the order of lists, each once.
    streams.sort();
    streams.dedup();
    Ok(streams)
}

fn read_life(text: &str) -> Result<Duration, Refusal> {
    duration::parse(text).filter(|life| (LIFE_MIN..=LIFE_MAX).contains(life)).ok_or_else(|| {
        let (min, max) = (duration::format(LIFE_MIN), duration::format(LIFE_MAX));
        let allowed = format!("a whole number with a unit (ms, s, m, h) such as \"2160h\", from {min} to {max}");
        Refusal::of("expiresIn", text, allowed)
    })
}

/// A token, without its text.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Token {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    /// What its holder may do: `read`, `write` or `admin`.
    pub scope: &'static str,
    /// The only resources that it is for; absent if it is for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub resources: Vec<String>,
    /// `active` or `expired`. What was revoked is gone.
    pub status: &'static str,
    #[schema(format = "date-time")]
    pub created_at: String,
    /// Absent if it is good until it is revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = "date-time")]
    pub expires_at: Option<String>,
    /// What its holder sends as `Authorization: Bearer <token>`; only in the answer to its creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub token: Option<String>,
}

impl Token {
    pub fn of(token: &DomainToken) -> Self {
        Self {
            id: token.id.to_string(),
            name: token.name.clone(),
            scope: token.scope.as_str(),
            resources: token.streams.iter().map(ToString::to_string).collect(),
            status: if token.is_expired(Timestamp::now()) { "expired" } else { "active" },
            created_at: token.created_at.to_string(),
            expires_at: token.expires_at.map(|end| end.to_string()),
            token: None,
        }
    }

    pub fn with_text(token: &DomainToken, text: &TokenText) -> Self {
        Self { token: Some(text.reveal().to_owned()), ..Self::of(token) }
    }
}

/// A page of tokens, in the order of their ids.
#[derive(Serialize, ToSchema)]
pub(crate) struct TokenList {
    pub tokens: Vec<Token>,
    pub pagination: Pagination,
}

fn scope_schema() -> utoipa::openapi::schema::Object {
    use utoipa::openapi::schema::{ObjectBuilder, Type};
    let description = "What its holder may do: read everything but tokens; also write documents and subscriptions; or \
                       everything.";
    let names = Scope::ALL.map(Scope::as_str);
    ObjectBuilder::new().schema_type(Type::String).description(Some(description)).enum_values(Some(names)).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<DomainNewToken, String> {
        let known: StreamId = "0190163d-8694-739b-aea5-966c26f8ad91".parse().unwrap();
        let new: NewToken = serde_json::from_str(json).unwrap();
        new.into_domain(|id| id == known).map_err(|refusal| refusal.0)
    }

    #[test]
    fn a_token_is_read() {
        let json = r#"{"name":"ci","scope":"write","expiresIn":"2160h","resources":
            ["0190163d-8694-739b-aea5-966c26f8ad91","0190163d8694739baea5966c26f8ad91"]}"#;
        let new = read(json).unwrap();
        assert_eq!((new.scope, new.streams.len()), (Scope::Write, 1), "the same resource twice is one");
        assert_eq!(new.expires_in, Some(Duration::from_secs(90 * 24 * 3600)));
        let new = read(r#"{"name":"ops","scope":"admin","resources":null}"#).unwrap();
        assert_eq!((new.scope, new.streams.len(), new.expires_in), (Scope::Admin, 0, None));
    }

    #[test]
    fn a_token_that_cannot_be_is_refused() {
        let refuse = |members: &str, reason: &str| {
            let detail = read(&format!("{{{members}}}")).unwrap_err();
            assert!(detail.contains(reason), "{members}: {detail}");
        };
        refuse(r#""name":" ","scope":"read""#, "name is \" \"");
        refuse(r#""name":"x","scope":"all""#, "scope is \"all\", it must be one of");
        refuse(r#""name":"x","scope":"read","resources":[]"#, "resources: 0 are listed");
        refuse(r#""name":"x","scope":"read","resources":["x"]"#, "resources[0] is \"x\"");
        let unknown = r#""resources":["0190163d-8694-739b-aea5-966c26f8ad92"]"#;
        refuse(&format!(r#""name":"x","scope":"read",{unknown}"#), "of a resource that is there");
        let known = r#""resources":["0190163d-8694-739b-aea5-966c26f8ad91"]"#;
        refuse(&format!(r#""name":"x","scope":"admin",{known}"#), "bound to nothing");
        for life in ["", "90", "0s", "999ms", "87841h", "90d", "soon"] {
            refuse(&format!(r#""name":"x","scope":"read","expiresIn":"{life}""#), "from 1s to 87840h");
        }
    }
}
