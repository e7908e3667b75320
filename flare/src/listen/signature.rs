//! Signatures of Standard Webhooks, version 1, over `{id}.{timestamp}.{body}`: HMAC-SHA256 (v1) or Ed25519 (v1a).

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{ED25519, ED25519_PUBLIC_KEY_LEN, UnparsedPublicKey};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::HeaderMap;

/// How far the clock of the sender may be from ours, either way.
const TOLERANCE_SECONDS: i64 = 300;

/// The usual base64, with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What signatures are checked with: the secret that a sender signs with, written `whsec_` and base64, or its public
/// key, written `whpk_` and base64.
#[derive(Clone)]
pub struct Secret(Key);

#[derive(Clone)]
enum Key {
    Shared(Box<hmac::Key>),
    Public(UnparsedPublicKey<Vec<u8>>),
}

impl Key {
    /// What stands before its signatures.
    fn version(&self) -> &'static str {
        match self {
            Self::Shared(_) => "v1",
            Self::Public(_) => "v1a",
        }
    }

    fn verifies(&self, content: &[u8], tag: &[u8]) -> bool {
        match self {
            Self::Shared(key) => hmac::verify(key, content, tag).is_ok(),
            Self::Public(key) => key.verify(content, tag).is_ok(),
        }
    }
}

impl FromStr for Secret {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let decode = |prefix| text.strip_prefix(prefix).and_then(|encoded| BASE64.decode(encoded).ok());
        let shared = decode("whsec_").filter(|bytes| !bytes.is_empty());
        let public = decode("whpk_").filter(|bytes| bytes.len() == ED25519_PUBLIC_KEY_LEN);
        match (shared, public) {
            (Some(bytes), _) => Ok(Self(Key::Shared(Box::new(hmac::Key::new(hmac::HMAC_SHA256, &bytes))))),
            (None, Some(bytes)) => Ok(Self(Key::Public(UnparsedPublicKey::new(&ED25519, bytes)))),
            (None, None) => {
                Err("a secret is `whsec_` and base64, as it was shown when the subscription was created, or \
                                 `whpk_` and base64, its public key"
                    .to_owned())
            }
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// Whether the delivery was signed with one of the secrets, not long before or after `now`, in Unix seconds; otherwise why
/// not.
pub fn verify(secrets: &[Secret], headers: &HeaderMap, body: &[u8], now: i64) -> Result<(), String> {
    let id = header(headers, "webhook-id")?;
    let timestamp = header(headers, "webhook-timestamp")?;
    let signatures = header(headers, "webhook-signature")?;

    let Ok(signed_at) = timestamp.parse::<i64>() else {
        return Err(format!("webhook-timestamp {timestamp:?} is not a Unix time in seconds"));
    };
    let age = now.saturating_sub(signed_at);
    if age > TOLERANCE_SECONDS {
        return Err(format!("it was signed {age} s ago, more than {TOLERANCE_SECONDS} s"));
    }
    if age < -TOLERANCE_SECONDS {
        return Err(format!("it was signed {} s in the future, more than {TOLERANCE_SECONDS} s", age.saturating_neg()));
    }

    let content = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat();
    let tags: Vec<(&str, Vec<u8>)> = signatures
        .split_ascii_whitespace()
        .filter_map(|signature| signature.split_once(','))
        .filter(|(version, _)| matches!(*version, "v1" | "v1a"))
        .filter_map(|(version, encoded)| Some((version, BASE64.decode(encoded).ok()?)))
        .collect();
    if tags.is_empty() {
        return Err("webhook-signature has no signature of version 1 (`v1,` or `v1a,` and base64)".to_owned());
    }
    let right = secrets
        .iter()
        .any(|Secret(key)| tags.iter().any(|(version, tag)| *version == key.version() && key.verifies(&content, tag)));
    if right { Ok(()) } else { Err("no signature matches the secret and the body".to_owned()) }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, String> {
    let value = headers.get(name).ok_or_else(|| format!("the header {name} is missing"))?;
    value.to_str().map_err(|_| format!("the header {name} is not text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks reference libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const TIME: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn check(signature: &str, body: &[u8], now: i64, expected: Result<(), &str>) {
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", ID.parse().unwrap());
        headers.insert("webhook-timestamp", TIME.into());
        headers.insert("webhook-signature", signature.parse().unwrap());
        let result = verify(&[SECRET.parse().unwrap()], &headers, body, now);
        match (result, expected) {
            (Err(reason), Err(expected)) => assert!(reason.contains(expected), "{reason}"),
            (result, expected) => assert_eq!(result.is_ok(), expected.is_ok(), "{result:?}"),
        }
    }

    #[test]
    fn the_published_example_is_right() {
        check(SIGNATURE, BODY, TIME, Ok(()));
        check(&format!("v1,AAAA v1a,x {SIGNATURE}"), BODY, TIME, Ok(()));
        check(SIGNATURE.trim_end_matches('='), BODY, TIME, Ok(()));
    }

    #[test]
    fn a_wrong_signature_says_why() {
        check(SIGNATURE, b"{}", TIME, Err("no signature matches"));
        check("v1,AAAA", BODY, TIME, Err("no signature matches"));
        check("v2,AAAA", BODY, TIME, Err("no signature of version 1"));
        check("v1,%%", BODY, TIME, Err("no signature of version 1"));
        check(SIGNATURE, BODY, TIME + 300, Ok(()));
        check(SIGNATURE, BODY, TIME + 301, Err("301 s ago"));
        check(SIGNATURE, BODY, TIME - 301, Err("301 s in the future"));
        let missing = verify(&[SECRET.parse().unwrap()], &HeaderMap::new(), BODY, TIME);
        assert_eq!(missing.unwrap_err(), "the header webhook-id is missing");
    }

    #[test]
    fn a_public_key_checks_what_its_private_key_signed() {
        use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let signed = [ID.as_bytes(), b".", TIME.to_string().as_bytes(), b".", BODY].concat();
        let signature = BASE64.encode(pair.sign(&signed));
        let check = |value: String| {
            let public: Secret = format!("whpk_{}", BASE64.encode(pair.public_key())).parse().unwrap();
            let mut headers = HeaderMap::new();
            headers.insert("webhook-id", ID.parse().unwrap());
            headers.insert("webhook-timestamp", TIME.into());
            headers.insert("webhook-signature", value.parse().unwrap());
            verify(&[public], &headers, BODY, TIME).is_ok()
        };
        assert!(check(format!("{SIGNATURE} v1a,{signature}")));
        assert!(!check(format!("v1,{signature}")), "a signature is of its own version");
        assert!(!check(SIGNATURE.to_owned()));
    }

    #[test]
    fn any_of_several_secrets_will_do() {
        let secrets: Vec<Secret> = ["whsec_AAAA", SECRET].iter().map(|text| text.parse().unwrap()).collect();
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", ID.parse().unwrap());
        headers.insert("webhook-timestamp", TIME.into());
        headers.insert("webhook-signature", SIGNATURE.parse().unwrap());
        assert_eq!(verify(&secrets, &headers, BODY, TIME), Ok(()));
    }

    #[test]
    fn a_secret_has_its_prefix_and_is_not_shown() {
        for wrong in ["", "whsec_", "whsec_%", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whpk_", "whpk_AAAA"] {
            assert!(wrong.parse::<Secret>().is_err(), "{wrong}");
        }
        assert_eq!(format!("{:?}", SECRET.parse::<Secret>().unwrap()), "[hidden]");
    }
}
