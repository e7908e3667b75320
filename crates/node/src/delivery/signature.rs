//! Signatures of Standard Webhooks, over `{id}.{timestamp}.{body}`.

use aws_lc_rs::{hmac, signature::Ed25519KeyPair};
use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use flare_core::outlet::{Scheme, Secret, Signing};
use jiff::Timestamp;

/// The keys of an outlet, ready to sign.
pub(crate) struct Signers {
    present: Signer,
    previous: Option<(Signer, Timestamp)>,
}

/// Boxed, because a key of aws-lc has more than a kilobyte.
enum Signer {
    V1(Box<hmac::Key>),
    V1a(Box<Ed25519KeyPair>),
}

/// What is signed.
pub(crate) struct Message<'a> {
    pub id: &'a str,
    /// Unix seconds.
    pub timestamp: &'a str,
    pub body: &'a [u8],
}

impl Message<'_> {
    fn parts(&self) -> [&[u8]; 5] {
        [self.id.as_bytes(), b".", self.timestamp.as_bytes(), b".", self.body]
    }
}

impl Signers {
    /// An error is a key that cannot be used; the text says so and shows nothing of it.
    pub fn of(signing: &Signing) -> Result<Self, String> {
        let previous = match &signing.previous {
            Some((secret, until)) => Some((Signer::of(secret)?, *until)),
            None => None,
        };
        Ok(Self { present: Signer::of(&signing.secret)?, previous })
    }

    /// The value of `webhook-signature`: the present key first, then the one before it while it lasts.
    pub fn sign(&self, message: &Message<'_>, now: Timestamp) -> String {
        let mut value = String::with_capacity(96);
        self.present.sign(message, &mut value);
        if let Some((previous, until)) = &self.previous
            && now < *until
        {
            value.push(' ');
            previous.sign(message, &mut value);
        }
        value
    }
}

impl Signer {
    fn of(secret: &Secret) -> Result<Self, String> {
        match secret.key_pair() {
            None => Ok(Self::V1(Box::new(shared_key(secret)))),
            Some((seed, public)) => Ok(Self::V1a(Box::new(key_pair(seed, public)?))),
        }
    }

    fn sign(&self, message: &Message<'_>, value: &mut String) {
        match self {
            Self::V1(key) => sign_shared(key, message, value),
            Self::V1a(pair) => sign_pair(pair, message, value),
        }
    }
}

/// What [`Signers`] give, for keys that are not kept: a shared secret is as quickly set up as looked up.
pub(crate) fn sign_once(signing: &Signing, message: &Message<'_>, now: Timestamp) -> Result<String, String> {
    let mut value = String::with_capacity(96);
    let previous = signing.previous.as_ref().filter(|(_, until)| now < *until).map(|(secret, _)| secret);
    for secret in [Some(&signing.secret), previous].into_iter().flatten() {
        if !value.is_empty() {
            value.push(' ');
        }
        match secret.key_pair() {
            None => sign_shared(&shared_key(secret), message, &mut value),
            Some((seed, public)) => sign_pair(&key_pair(seed, public)?, message, &mut value),
        }
    }
    Ok(value)
}

fn shared_key(secret: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.key())
}

fn key_pair(seed: &[u8], public: &[u8]) -> Result<Ed25519KeyPair, String> {
    Ed25519KeyPair::from_seed_and_public_key(seed, public)
        .map_err(|error| format!("the key pair of the subscription cannot be used: {error}"))
}

fn sign_shared(key: &hmac::Key, message: &Message<'_>, value: &mut String) {
    let mut context = hmac::Context::with_key(key);
    message.parts().into_iter().for_each(|part| context.update(part));
    append(value, Scheme::V1, context.sign().as_ref());
}

fn sign_pair(pair: &Ed25519KeyPair, message: &Message<'_>, value: &mut String) {
    append(value, Scheme::V1a, pair.sign(&message.parts().concat()).as_ref());
}

fn append(value: &mut String, scheme: Scheme, signature: &[u8]) {
    value.push_str(scheme.as_str());
    value.push(',');
    BASE64.encode_string(signature, value);
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ED25519, KeyPair, UnparsedPublicKey};

    use super::*;

    const MESSAGE: Message<'_> =
        Message { id: "msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp: "1614265330", body: br#"{"test": 2432232314}"# };

    /// The signatures of the message at `now()`.
    fn sign(secret: &Secret, previous: Option<(&Secret, i64)>) -> String {
        let previous = previous.map(|(secret, until)| (secret.clone(), Timestamp::from_second(until).unwrap()));
        let signing = Signing { secret: secret.clone(), previous };
        let value = sign_once(&signing, &MESSAGE, now()).unwrap();
        assert_eq!(Signers::of(&signing).unwrap().sign(&MESSAGE, now()), value, "kept or not, a key signs the same");
        value
    }

    fn pair(seed: u8) -> Secret {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
        Secret::from_key_pair(&[&[seed; 32], pair.public_key().as_ref()].concat()).unwrap()
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_614_265_330).unwrap()
    }

    #[test]
    fn a_signature_is_that_of_the_published_example() {
        // From the specification of Standard Webhooks.
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(sign(&secret, None), expected);
    }

    #[test]
    fn a_key_pair_signs_what_its_public_key_verifies() {
        let value = sign(&pair(1), None);
        let signature = BASE64.decode(value.strip_prefix("v1a,").unwrap()).unwrap();
        let signed = MESSAGE.parts().concat();
        let verify = |secret: &Secret| {
            let public = BASE64.decode(secret.public_key().unwrap().strip_prefix("whpk_").unwrap()).unwrap();
            UnparsedPublicKey::new(&ED25519, public).verify(&signed, &signature)
        };
        assert!(verify(&pair(1)).is_ok());
        assert!(verify(&pair(2)).is_err());
    }

    #[test]
    fn the_previous_secret_signs_too_until_its_time_is_over() {
        let (old, new) = (Secret::from_bytes(&[1; 32]).unwrap(), Secret::from_bytes(&[2; 32]).unwrap());
        let (by_old, by_new) = (sign(&old, None), sign(&new, None));
        let until = |seconds: i64| sign(&new, Some((&old, now().as_second() + seconds)));
        assert_eq!(until(1), format!("{by_new} {by_old}"));
        assert_eq!(until(0), by_new);
        let mixed = sign(&pair(1), Some((&old, now().as_second() + 1)));
        assert!(mixed.starts_with("v1a,") && mixed.ends_with(&format!(" {by_old}")), "{mixed}");
    }

    #[test]
    fn a_key_pair_that_does_not_fit_is_refused_without_being_shown() {
        let wrong = Signing { secret: Secret::from_key_pair(&[7; 64]).unwrap(), previous: None };
        let reason = Signers::of(&wrong).err().unwrap();
        assert!(reason.starts_with("the key pair of the subscription cannot be used"), "{reason}");
        assert!(!reason.contains("Bw"), "{reason}");
    }
}
