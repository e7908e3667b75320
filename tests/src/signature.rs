//! Standard Webhooks, written from its specification and not from Flare's code.

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::delivery::Delivery;

/// The signature of a message with a secret of the form `whsec_…`.
pub fn sign(secret: &str, id: &str, timestamp: &str, body: &[u8]) -> String {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").expect("a secret starts with whsec_")).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let signed = content(id, timestamp, body);
    format!("v1,{}", STANDARD.encode(hmac::sign(&key, &signed)))
}

/// Whether one of the signatures of a delivery is by this secret.
pub fn is_signed_by(secret: &str, delivery: &Delivery) -> bool {
    let (id, timestamp) = (delivery.header("webhook-id"), delivery.header("webhook-timestamp"));
    let right = sign(secret, id, timestamp, &delivery.body);
    delivery.header("webhook-signature").split(' ').any(|signature| signature == right)
}

/// Whether one of the signatures of a delivery is by the private key of this public key, of the form `whpk_…`.
pub fn is_signed_by_pair(public_key: &str, delivery: &Delivery) -> bool {
    let key = STANDARD.decode(public_key.strip_prefix("whpk_").expect("a public key starts with whpk_")).unwrap();
    let key = UnparsedPublicKey::new(&ED25519, key);
    let signed = content(delivery.header("webhook-id"), delivery.header("webhook-timestamp"), &delivery.body);
    let signatures = delivery.header("webhook-signature").split(' ').filter_map(|one| one.strip_prefix("v1a,"));
    signatures.into_iter().any(|one| key.verify(&signed, &STANDARD.decode(one).unwrap()).is_ok())
}

fn content(id: &str, timestamp: &str, body: &[u8]) -> Vec<u8> {
    [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat()
}
