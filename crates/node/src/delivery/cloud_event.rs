//! A change as a CloudEvent, version 1.0: as one JSON object (structured), or as headers around the document (binary).

use std::borrow::Cow;

use bytes::Bytes;
use flare_core::{document::Action, pattern::Pattern};
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::request::header;

pub(crate) const STRUCTURED_TYPE: HeaderValue = HeaderValue::from_static("application/cloudevents+json; charset=utf-8");

/// What must be escaped in a header, as the HTTP binding says: besides these, everything that is not ASCII.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// What stands before an attribute's name in a header.
const HEADER_PREFIX: &str = "ce-";

pub(crate) struct CloudEvent<'a> {
    /// The same for all attempts at one revision.
    pub id: &'a str,
    pub source: &'a str,
    pub action: Action,
    /// The URL of the document.
    pub subject: &'a str,
    pub time: String,
    pub revision: &'a str,
    /// The subscription's own members, as one JSON text: attributes have no structure.
    pub data: Option<String>,
    pub document: Option<&'a Bytes>,
}

impl CloudEvent<'_> {
    fn attributes(&self) -> impl Iterator<Item = (&'static str, Cow<'_, str>)> {
        let kind = match self.action {
            Action::Create => "flare.document.created",
            Action::Update => "flare.document.updated",
            Action::Delete => "flare.document.deleted",
            Action::Test => "flare.test",
        };
        let always = [
            ("ce-specversion", "1.0"),
            ("ce-id", self.id),
            ("ce-source", self.source),
            ("ce-type", kind),
            ("ce-subject", self.subject),
            ("ce-time", &self.time),
            // Not an integer: those of CloudEvents have 32 bits.
            ("ce-flarerevision", self.revision),
        ];
        let data = self.data.as_deref().map(|data| ("ce-flaredata", ascii(data)));
        always.into_iter().map(|(name, value)| (name, Cow::Borrowed(value))).chain(data)
    }

    /// The body in structured mode.
    pub fn structured(&self) -> Result<Bytes, String> {
        let failed = |error: serde_json::Error| format!("could not write the event: {error}");
        let mut body = Vec::with_capacity(512 + self.document.map_or(0, Bytes::len));
        for (name, value) in self.attributes() {
            body.push(if body.is_empty() { b'{' } else { b',' });
            serde_json::to_writer(&mut body, &name[HEADER_PREFIX.len()..]).map_err(failed)?;
            body.push(b':');
            serde_json::to_writer(&mut body, &value).map_err(failed)?;
        }
        if let Some(document) = self.document {
            body.extend_from_slice(b",\"datacontenttype\":\"application/json\",\"data\":");
            body.extend_from_slice(document);
        }
        body.push(b'}');
        Ok(body.into())
    }

    /// The headers in binary mode, where the document is the body.
    pub fn put_headers(&self, headers: &mut HeaderMap) -> Result<(), String> {
        for (name, value) in self.attributes() {
            let value = utf8_percent_encode(&value, ESCAPED).to_string();
            headers.insert(HeaderName::from_static(name), header(value)?);
        }
        Ok(())
    }
}

/// What all documents of the resource begin with: a URI, which a pattern with wildcards is not.
pub(crate) fn source(pattern: &Pattern) -> &str {
    pattern.as_str().split('{').next().unwrap_or_default()
}

/// JSON with everything escaped that is not ASCII: some characters may not stand in an attribute.
fn ascii(json: &str) -> Cow<'_, str> {
    if json.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() * 2);
    for character in json.chars() {
        if matches!(character, ' '..='~') {
            escaped.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event<'a>(document: Option<&'a Bytes>, data: Option<&str>) -> CloudEvent<'a> {
        CloudEvent {
            id: "msg_1",
            source: "http://api.test/users/",
            action: Action::Update,
            subject: "http://api.test/users/a%20b?x=1",
            time: "2026-11-16T08:00:00.123Z".into(),
            revision: "7",
            data: data.map(Into::into),
            document,
        }
    }

    #[test]
    fn a_structured_event_has_its_attributes_and_the_document_as_it_is() {
        let document = Bytes::from_static(br#"{"b": 1.0,"a":"\u00e9"}"#);
        let body = event(Some(&document), Some("{\"name\":\"Zo\u{eb} \u{1f680}\u{7f}\"}")).structured().unwrap();
        let text = std::str::from_utf8(&body).unwrap();
        assert!(text.ends_with(r#","data":{"b": 1.0,"a":"\u00e9"}}"#), "{text}");
        let read: Value = serde_json::from_str(text).unwrap();
        let data: Value = serde_json::from_str(read["flaredata"].as_str().unwrap()).unwrap();
        assert_eq!(data, json!({"name": "Zo\u{eb} \u{1f680}\u{7f}"}));
        assert!(read["flaredata"].as_str().unwrap().is_ascii());
        assert_eq!(
            read,
            json!({
                "specversion": "1.0", "id": "msg_1", "source": "http://api.test/users/",
                "type": "flare.document.updated", "subject": "http://api.test/users/a%20b?x=1",
                "time": "2026-11-16T08:00:00.123Z", "flarerevision": "7", "flaredata": read["flaredata"],
                "datacontenttype": "application/json", "data": {"b": 1.0, "a": "\u{e9}"}
            })
        );
    }

    #[test]
    fn an_event_without_a_document_has_no_data() {
        let read: Value = serde_json::from_slice(&event(None, None).structured().unwrap()).unwrap();
        for absent in ["data", "datacontenttype", "flaredata"] {
            assert_eq!(read.get(absent), None, "{absent}");
        }
    }

    #[test]
    fn headers_are_escaped_as_the_binding_says() {
        let mut headers = HeaderMap::new();
        event(None, Some(r#"{"a":"b c"}"#)).put_headers(&mut headers).unwrap();
        let get = |name| headers.get(name).unwrap().to_str().unwrap();
        assert_eq!(get("ce-subject"), "http://api.test/users/a%2520b?x=1");
        assert_eq!(get("ce-flaredata"), "{%22a%22:%22b%20c%22}");
        assert_eq!(get("ce-specversion"), "1.0");
        assert_eq!(headers.len(), 8);
        // The example of the binding.
        let escaped = utf8_percent_encode("Euro \u{20ac} \u{1f600}", ESCAPED).to_string();
        assert_eq!(escaped, "Euro%20%E2%82%AC%20%F0%9F%98%80");
    }

    #[test]
    fn the_source_is_the_fixed_part_of_the_pattern() {
        let check = |pattern: &str, expected: &str| assert_eq!(source(&Pattern::parse(pattern).unwrap()), expected);
        check("http://api.test/users/{id}", "http://api.test/users/");
        check("http://api.test/{*}/users/{id}", "http://api.test/");
    }
}
