//! Standard Webhooks, written from its specification and not from Flare's code.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::delivery::Delivery;

/// The signature of a message with a secret of the form `whsec_…`.
pub fn sign(secret: &str, id: &str, timestamp: &str, body: &[u8]) -> String {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").expect("a secret starts with whsec_")).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat();
    format!("v1,{}", STANDARD.encode(hmac::sign(&key, &signed)))
}

/// Whether one of the signatures of a delivery is by this secret.
pub fn is_signed_by(secret: &str, delivery: &Delivery) -> bool {
    let (id, timestamp) = (delivery.header("webhook-id"), delivery.header("webhook-timestamp"));
    let right = sign(secret, id, timestamp, &delivery.body);
    delivery.header("webhook-signature").split(' ').any(|signature| signature == right)
}
