//! Signatures of Standard Webhooks, version 1: HMAC-SHA256 over `{id}.{timestamp}.{body}`.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::hmac;
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

/// The secret that a sender signs with, written `whsec_` and base64.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl FromStr for Secret {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = text.strip_prefix("whsec_").and_then(|encoded| BASE64.decode(encoded).ok());
        match bytes.filter(|bytes| !bytes.is_empty()) {
            Some(bytes) => Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes))),
            None => {
                Err("a secret is `whsec_` and base64, as it was shown when the subscription was created".to_owned())
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
    let tags: Vec<Vec<u8>> = signatures
        .split_ascii_whitespace()
        .filter_map(|signature| signature.strip_prefix("v1,"))
        .filter_map(|encoded| BASE64.decode(encoded).ok())
        .collect();
    if tags.is_empty() {
        return Err("webhook-signature has no signature of version 1 (`v1,` and base64)".to_owned());
    }
    let right = secrets.iter().any(|Secret(key)| tags.iter().any(|tag| hmac::verify(key, &content, tag).is_ok()));
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
        for wrong in ["", "whsec_", "whsec_%", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
            assert!(wrong.parse::<Secret>().is_err(), "{wrong}");
        }
        assert_eq!(format!("{:?}", SECRET.parse::<Secret>().unwrap()), "[hidden]");
    }
}
