//! The benchmark's document: how the generator writes it and how the receiver reads it back.
//!
//! A sequence number fixes everything: `document = sequence * STEP mod documents`, `revision = sequence / documents + 1`.
//! So every PUT is a real change, and a sequence that goes on over several runs never repeats a revision.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

pub const BODY_BYTES: usize = 1024;
/// Spreads consecutive PUTs over the documents; a prime that divides no round number of documents.
const STEP: u64 = 7919;
const NOISE_BYTES: usize = 64 * 1024;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What a delivery says about the PUT that caused it.
#[derive(Debug, PartialEq, Eq)]
pub struct Receipt {
    pub document: u64,
    pub revision: u64,
    pub sent_at_nanos: u64,
}

pub fn document(sequence: u64, documents: u64) -> u64 {
    (sequence % documents) * STEP % documents
}

pub fn revision(sequence: u64, documents: u64) -> u64 {
    sequence / documents + 1
}

/// The document's path in the API; documents are dealt out over the resources `r0`, `r1`, …
pub fn path(document: u64, resources: u64) -> String {
    format!("/documents/http://bench.local/r{}/items/{document}", document % resources)
}

/// Writes bodies of [`BODY_BYTES`], padded with text that does not compress, so that a store gains nothing from it.
pub struct Writer {
    noise: Vec<u8>,
}

impl Writer {
    pub fn new() -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut letter = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ALPHABET[(state >> 58) as usize]
        };
        Self { noise: (0..NOISE_BYTES).map(|_| letter()).collect() }
    }

    pub fn body(&self, document: u64, revision: u64, sent_at_nanos: u64) -> Bytes {
        let mut body = Vec::with_capacity(BODY_BYTES);
        write!(body, r#"{{"id":{document},"revision":{revision},"sentAt":{sent_at_nanos},"pad":""#)
            .expect("writing to a Vec does not fail");
        let pad = BODY_BYTES - body.len() - 2;
        let start = (document.wrapping_mul(31) + revision.wrapping_mul(17)) as usize % (NOISE_BYTES - BODY_BYTES);
        body.extend_from_slice(&self.noise[start..start + pad]);
        body.extend_from_slice(b"\"}");
        body.into()
    }
}

/// Reads a delivery, bare or in an envelope, by looking for the keys instead of parsing: about 100 ns.
pub fn read(delivery: &[u8]) -> Option<Receipt> {
    let document = after(delivery, b"\"document\":").unwrap_or(delivery);
    Some(Receipt {
        document: number(after(document, b"\"id\":")?)?,
        revision: number(after(document, b"\"revision\":")?)?,
        sent_at_nanos: number(after(document, b"\"sentAt\":")?)?,
    })
}

fn after<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let mut from = 0;
    loop {
        let quote = from + text[from..].iter().position(|byte| *byte == b'"')?;
        if text[quote..].starts_with(key) {
            return Some(&text[quote + key.len()..]);
        }
        from = quote + 1;
    }
}

fn number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

pub fn unix_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_valid_json_of_the_agreed_size() {
        let body = Writer::new().body(7, 8, 9);
        assert_eq!(body.len(), BODY_BYTES);
        let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&value["id"], &value["revision"], &value["sentAt"]), (&7.into(), &8.into(), &9.into()));
    }

    #[test]
    fn a_delivery_is_read_bare_or_in_an_envelope() {
        let expected = Receipt { document: 7, revision: 8, sent_at_nanos: 9 };
        let bare = Writer::new().body(7, 8, 9);
        assert_eq!(read(&bare), Some(expected));

        let bare = String::from_utf8(bare.to_vec()).unwrap();
        let envelope = format!(r#"{{"id":"a-b","action":"create","revision":1,"data":{{}},"document":{bare}}}"#);
        assert_eq!(read(envelope.as_bytes()), Some(Receipt { document: 7, revision: 8, sent_at_nanos: 9 }));
        assert_eq!(read(b"{}"), None);
    }

    #[test]
    fn a_cycle_touches_every_document_once() {
        let mut seen: Vec<u64> = (1000..2000).map(|sequence| document(sequence, 1000)).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..1000));
        assert_eq!((revision(999, 1000), revision(1000, 1000)), (1, 2));
    }
}
