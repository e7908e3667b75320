//! Values that are never shown: keys and bearer tokens.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::{constant_time, digest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The shortest bearer token that is accepted in plain text.
const TOKEN_CHARS_MIN: usize = 16;

/// What is shown instead of a secret.
const HIDDEN: &str = "[hidden]";

/// A text that neither `Debug` nor serialization shows.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(from = "String")]
#[schemars(extend("format" = "secret"))]
pub struct Secret(String);

impl Secret {
    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether no secret was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn shown(&self) -> &'static str {
        if self.is_empty() { "" } else { HIDDEN }
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.shown())
    }
}

impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.shown())
    }
}

/// A bearer token that the API accepts. Only its SHA-256 digest is kept, whichever way it was written.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(extend("format" = "token"))]
pub struct Token([u8; 32]);

impl Token {
    /// The SHA-256 digest of the token.
    pub fn digest(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether a client presented this token; takes the same time for every wrong one.
    pub fn matches(&self, presented: &str) -> bool {
        constant_time::verify_slices_are_equal(&self.0, &sha256(presented)).is_ok()
    }
}

impl TryFrom<String> for Token {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Token {
    type Err = String;

    /// Errors never repeat the token.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(hex) = text.strip_prefix("sha256:") {
            return unhex(hex).map(Self).ok_or_else(|| {
                "is not a token digest; \"sha256:\" is followed by 64 hexadecimal digits, as `printf %s TOKEN | \
                 sha256sum` prints them"
                    .to_owned()
            });
        }
        if text.chars().any(|c| !c.is_ascii_graphic()) {
            return Err("is not a token: only visible ASCII characters can be sent in a header".to_owned());
        }
        if text.len() < TOKEN_CHARS_MIN {
            return Err(format!(
                "is too short a token: {} characters, at least {TOKEN_CHARS_MIN} are needed; `openssl rand -hex 32` \
                 makes a good one",
                text.len()
            ));
        }
        Ok(Self(sha256(text)))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HIDDEN:?}")
    }
}

impl Serialize for Token {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

fn sha256(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    bytes
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "0123456789abcdef";
    const DIGEST: &str = "sha256:9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f";

    #[test]
    fn a_token_matches_however_it_was_written() {
        let plain: Token = PLAIN.parse().unwrap();
        let hashed: Token = DIGEST.parse().unwrap();
        assert_eq!(plain, hashed);
        assert!(hashed.matches(PLAIN));
        assert!(!hashed.matches(DIGEST));
        assert!(!hashed.matches(""));
    }

    #[test]
    fn a_wrong_token_is_refused_without_repeating_it() {
        let check = |text: &str, reason: &str| {
            let error = text.parse::<Token>().unwrap_err();
            assert!(error.contains(reason), "{error}");
            assert!(text.is_empty() || !error.contains(text), "{error}");
        };
        check("", "too short");
        check("hunter2-hunter", "too short a token: 14 characters");
        check("a token with spaces", "only visible ASCII");
        check("sha256:12", "64 hexadecimal digits");
        check(&DIGEST.replace('9', "x"), "64 hexadecimal digits");
        check(&format!("sha256:{}", "é".repeat(32)), "64 hexadecimal digits");
    }

    #[test]
    fn secrets_are_not_shown() {
        let secret = Secret::from("hunter2".to_owned());
        assert_eq!(format!("{secret:?}"), "\"[hidden]\"");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"[hidden]\"");
        assert_eq!(secret.expose(), "hunter2");
        assert_eq!(serde_json::to_string(&Secret::default()).unwrap(), "\"\"");
        let token: Token = PLAIN.parse().unwrap();
        assert_eq!(format!("{token:?}"), "\"[hidden]\"");
    }
}
