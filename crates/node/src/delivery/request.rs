//! The request of a push: URL, headers, body, signature.

use aws_lc_rs::hmac;
use base64::Engine;
use bytes::Bytes;
use flare_core::{
    document::{Action, Change},
    outlet::{DataValue, Method, Outlet},
    pattern::Captures,
    stream::Stream,
};
use http::{
    HeaderName, HeaderValue, Request,
    header::{CONTENT_TYPE, USER_AGENT},
};
use http_body_util::Full;
use jiff::Timestamp;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("flare/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const FLARE_SUBSCRIPTION: HeaderName = HeaderName::from_static("flare-subscription");
const FLARE_DOCUMENT: HeaderName = HeaderName::from_static("flare-document");
const FLARE_REVISION: HeaderName = HeaderName::from_static("flare-revision");
const FLARE_ATTEMPT: HeaderName = HeaderName::from_static("flare-attempt");

/// What is to be told to whom.
pub(crate) struct Push<'a> {
    pub outlet: &'a Outlet,
    pub stream: &'a Stream,
    pub change: &'a Change,
    pub action: Action,
    /// One for the first attempt.
    pub attempt: u32,
    pub now: Timestamp,
}

impl Push<'_> {
    /// An error is a template that does not give a valid request for this document; the text says why.
    pub fn request(&self) -> Result<Request<Full<Bytes>>, String> {
        let captures = self
            .stream
            .endpoint
            .capture(&self.change.url)
            .ok_or_else(|| format!("{} no longer matches its resource", self.change.url))?;
        let url = self.outlet.endpoint.url(self.action).expand(&captures);
        let method = self.outlet.endpoint.method(self.action);
        let revision = self.stream.change.format.render(self.change.revision);
        let body = match method {
            Method::Get => Bytes::new(),
            _ => self.body(&captures, &revision)?,
        };
        let mut request = Request::builder()
            .method(verb(method))
            .uri(url.as_ref())
            .body(Full::new(body.clone()))
            .map_err(|error| format!("{url} is not a URL that can be called: {error}"))?;
        self.put_headers(&mut request, &body, &revision)?;
        Ok(request)
    }

    fn put_headers(&self, request: &mut Request<Full<Bytes>>, body: &[u8], revision: &str) -> Result<(), String> {
        let headers = request.headers_mut();
        headers.reserve(12);
        headers.insert(USER_AGENT, AGENT);
        if !body.is_empty() {
            headers.insert(CONTENT_TYPE, JSON);
        }
        for (name, values) in self.outlet.endpoint.headers(self.action) {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
            headers.remove(&name);
            for value in values {
                headers.append(&name, header(value.clone())?);
            }
        }
        let outlet = self.outlet.id.to_string();
        // The same for all attempts at one revision.
        let id = format!("msg_{outlet}_{}", self.change.sequence);
        let timestamp = self.now.as_second().to_string();
        let signature = sign(self.outlet.signing.secret.key(), &id, &timestamp, body);
        headers.insert(WEBHOOK_ID, header(id)?);
        headers.insert(WEBHOOK_TIMESTAMP, header(timestamp)?);
        headers.insert(WEBHOOK_SIGNATURE, header(signature)?);
        headers.insert(FLARE_SUBSCRIPTION, header(outlet)?);
        headers.insert(FLARE_DOCUMENT, header(self.change.url.as_str().to_owned())?);
        headers.insert(FLARE_REVISION, header(revision.trim_matches('"').to_owned())?);
        headers.insert(FLARE_ATTEMPT, HeaderValue::from(self.attempt));
        Ok(())
    }

    fn body(&self, captures: &Captures<'_>, revision: &str) -> Result<Bytes, String> {
        let content = self.outlet.content;
        let document = self.change.content.as_ref().filter(|_| content.document);
        if !content.envelope {
            return Ok(document.cloned().unwrap_or_default());
        }
        let failed = |error: serde_json::Error| format!("could not write the envelope: {error}");
        let mut body = Vec::with_capacity(256 + document.map_or(0, Bytes::len));
        body.extend_from_slice(b"{\"id\":");
        serde_json::to_writer(&mut body, self.change.url.as_str()).map_err(failed)?;
        body.extend_from_slice(b",\"action\":\"");
        body.extend_from_slice(self.action.as_str().as_bytes());
        body.extend_from_slice(b"\",\"updatedAt\":\"");
        body.extend_from_slice(self.change.updated_at.to_string().as_bytes());
        body.extend_from_slice(b"\",\"revision\":");
        body.extend_from_slice(revision.as_bytes());
        if !self.outlet.data.is_empty() {
            body.extend_from_slice(b",\"data\":");
            self.write_data(&mut body, captures).map_err(failed)?;
        }
        if let Some(document) = document {
            body.extend_from_slice(b",\"document\":");
            body.extend_from_slice(document);
        }
        body.push(b'}');
        Ok(body.into())
    }

    fn write_data(&self, body: &mut Vec<u8>, captures: &Captures<'_>) -> Result<(), serde_json::Error> {
        for (index, (name, value)) in self.outlet.data.iter().enumerate() {
            body.push(if index == 0 { b'{' } else { b',' });
            serde_json::to_writer(&mut *body, name)?;
            body.push(b':');
            match value {
                DataValue::Text(template) => serde_json::to_writer(&mut *body, &template.expand_decoded(captures))?,
                DataValue::Json(json) => body.extend_from_slice(json.as_bytes()),
            }
        }
        body.push(b'}');
        Ok(())
    }
}

fn verb(method: Method) -> http::Method {
    match method {
        Method::Get => http::Method::GET,
        Method::Post => http::Method::POST,
        Method::Put => http::Method::PUT,
        Method::Patch => http::Method::PATCH,
        Method::Delete => http::Method::DELETE,
    }
}

/// Takes the text over without a copy.
fn header(value: String) -> Result<HeaderValue, String> {
    let value = Bytes::from(value);
    HeaderValue::from_maybe_shared(value.clone()).map_err(|_| format!("{value:?} cannot stand in a header"))
}

/// The signature of Standard Webhooks, version 1: HMAC-SHA256 over id, timestamp and body.
fn sign(key: &[u8], id: &str, timestamp: &str, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        context.update(part);
    }
    let mut signature = String::with_capacity(48);
    signature.push_str("v1,");
    base64::engine::general_purpose::STANDARD.encode_string(context.sign(), &mut signature);
    signature
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_published_example() {
        // From the specification of Standard Webhooks.
        let key = base64::engine::general_purpose::STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = sign(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
