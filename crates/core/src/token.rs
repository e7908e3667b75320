//! A token of the API: who holds it, what its holder may do, and how it is written.
//!
//! The text of a token is shown once. What is kept is a digest of it, made by those who know how to.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use uuid::Uuid;

use crate::{StreamId, TokenId};

#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub id: TokenId,
    pub name: String,
    pub scope: Scope,
    /// The only streams that its holder may touch; all of them if there are none here.
    pub streams: Vec<StreamId>,
    /// SHA-256 of the text.
    pub digest: [u8; 32],
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}

impl Token {
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    /// Whether the token is for some streams only.
    pub fn is_bound(&self) -> bool {
        !self.streams.is_empty()
    }

    pub fn reaches(&self, stream: StreamId) -> bool {
        !self.is_bound() || self.streams.contains(&stream)
    }
}

/// The digest is left out: it is of no use to a reader, and of some to a thief.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("scope", &self.scope)
            .field("streams", &self.streams)
            .field("created_at", &self.created_at)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// What the holder of a token may do. Each scope has all rights of those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    Read,
    Write,
    Admin,
}

impl Scope {
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Admin];

    /// The name in the API and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}

/// A token as its holder sends it: `flare_`, the id without hyphens, `_`, and 32 random bytes in base64url. It does not
/// print itself.
///
/// The id stands in it so that a token is found by what is no secret; the rest can then be compared in constant time.
#[derive(Clone)]
pub struct TokenText(String);

impl TokenText {
    pub const PREFIX: &'static str = "flare_";

    pub fn new(id: TokenId, random: &[u8; 32]) -> Self {
        let id = Uuid::from_bytes(*id.as_bytes()).simple();
        Self(format!("{}{id}_{}", Self::PREFIX, URL_SAFE_NO_PAD.encode(random)))
    }

    /// The id in a text that looks like a token.
    pub fn id_in(text: &[u8]) -> Option<TokenId> {
        let (id, _) = std::str::from_utf8(text).ok()?.strip_prefix(Self::PREFIX)?.split_once('_')?;
        id.parse().ok()
    }

    /// The text itself, for the one time that it is shown.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenText(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(streams: Vec<StreamId>, expires_at: Option<Timestamp>) -> Token {
        Token {
            id: TokenId::generate(),
            name: "ci".into(),
            scope: Scope::Write,
            streams,
            digest: [173; 32],
            created_at: Timestamp::UNIX_EPOCH,
            expires_at,
        }
    }

    #[test]
    fn the_id_of_a_token_is_read_from_its_text() {
        let id = TokenId::generate();
        let text = TokenText::new(id, &[255; 32]);
        assert_eq!(text.reveal().len(), "flare_".len() + 32 + 1 + 43);
        assert_eq!(TokenText::id_in(text.reveal().as_bytes()), Some(id));
        for other in ["", "flare_", "flare_x_y", "a-token-of-the-configuration", &id.to_string()] {
            assert_eq!(TokenText::id_in(other.as_bytes()), None, "{other}");
        }
        assert_eq!(TokenText::id_in(b"flare_\xff_x"), None);
    }

    #[test]
    fn neither_text_nor_digest_print_themselves() {
        let text = TokenText::new(TokenId::generate(), &[7; 32]);
        assert_eq!(format!("{text:?}"), "TokenText(hidden)");
        assert!(!format!("{:?}", token(vec![], None)).contains("173"));
    }

    #[test]
    fn a_token_ends_at_its_time() {
        let end = Timestamp::from_second(10).unwrap();
        assert!(!token(vec![], Some(end)).is_expired(Timestamp::from_second(9).unwrap()));
        assert!(token(vec![], Some(end)).is_expired(end));
        assert!(!token(vec![], None).is_expired(Timestamp::MAX));
    }

    #[test]
    fn a_bound_token_reaches_its_streams_only() {
        let (own, other) = (StreamId::generate(), StreamId::generate());
        assert!(token(vec![own], None).reaches(own));
        assert!(!token(vec![own], None).reaches(other));
        assert!(token(vec![], None).reaches(other));
    }

    #[test]
    fn scopes_contain_those_before_them() {
        assert!(Scope::Read < Scope::Write && Scope::Write < Scope::Admin);
        assert_eq!(Scope::parse("write"), Some(Scope::Write));
        assert_eq!(Scope::parse("Write"), None);
    }
}
