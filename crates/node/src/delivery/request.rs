//! The request of a push: URL, headers, body, signature.

use bytes::Bytes;
use flare_core::{
    document::{Action, Change},
    outlet::{DataValue, Format, Method, Outlet},
    pattern::Captures,
    stream::Stream,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Request,
    header::{CONTENT_TYPE, USER_AGENT},
};
use http_body_util::Full;
use jiff::Timestamp;

use super::{
    cloud_event::{self, CloudEvent},
    handshake,
    signature::{self, Message},
    wire::Wire,
};

pub(crate) const AGENT: HeaderValue = HeaderValue::from_static(concat!("flare/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const FLARE_SUBSCRIPTION: HeaderName = HeaderName::from_static("flare-subscription");
const FLARE_DOCUMENT: HeaderName = HeaderName::from_static("flare-document");
const FLARE_REVISION: HeaderName = HeaderName::from_static("flare-revision");
const FLARE_ATTEMPT: HeaderName = HeaderName::from_static("flare-attempt");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// What is to be told to whom.
pub(crate) struct Push<'a> {
    pub outlet: &'a Outlet,
    pub stream: &'a Stream,
    pub change: &'a Change,
    pub action: Action,
    /// One for the first attempt.
    pub attempt: u32,
    pub now: Timestamp,
    /// What is kept for the outlet, where something is.
    pub wire: Option<&'a Wire>,
    /// The name under which Flare asks for consent.
    pub origin: &'a str,
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
        // The same for all attempts at one revision.
        let id = format!("msg_{}_{}", self.outlet.id, self.change.sequence);
        let format = self.outlet.content.format;
        let event = match format {
            Format::Flare => None,
            Format::CloudEvents | Format::CloudEventsBinary => Some(self.event(&captures, &id, &revision)?),
        };
        let body = match (method, &event) {
            (Method::Get, _) => Bytes::new(),
            (_, None) => self.body(&captures, &revision)?,
            (_, Some(event)) if format == Format::CloudEvents => event.structured()?,
            (_, Some(event)) => event.document.cloned().unwrap_or_default(),
        };
        let mut request = Request::builder()
            .method(verb(method))
            .uri(url.as_ref())
            .body(Full::new(body.clone()))
            .map_err(|error| format!("{url} is not a URL that can be called: {error}"))?;
        let headers = request.headers_mut();
        self.put_headers(headers, &body, id.clone(), &revision)?;
        // What is a CloudEvent is not for the endpoint's own headers to say.
        if let Some(event) = event.filter(|_| format == Format::CloudEventsBinary) {
            event.put_headers(headers)?;
        }
        let own_type = match format {
            Format::Flare => None,
            Format::CloudEvents => Some(cloud_event::STRUCTURED_TYPE),
            Format::CloudEventsBinary => Some(JSON),
        };
        if let Some(own_type) = own_type.filter(|_| !body.is_empty()) {
            headers.insert(CONTENT_TYPE, own_type);
        }
        Ok(request)
    }

    fn put_headers(&self, headers: &mut HeaderMap, body: &[u8], id: String, revision: &str) -> Result<(), String> {
        headers.reserve(16);
        headers.insert(USER_AGENT, AGENT);
        if !body.is_empty() {
            headers.insert(CONTENT_TYPE, JSON);
        }
        self.put_own_headers(headers)?;
        let timestamp = self.now.as_second().to_string();
        let signature = self.sign(&Message { id: &id, timestamp: &timestamp, body })?;
        headers.insert(WEBHOOK_ID, header(id)?);
        headers.insert(WEBHOOK_TIMESTAMP, header(timestamp)?);
        headers.insert(WEBHOOK_SIGNATURE, header(signature)?);
        headers.insert(FLARE_SUBSCRIPTION, header(self.outlet.id.to_string())?);
        headers.insert(FLARE_DOCUMENT, header(self.change.url.as_str().to_owned())?);
        headers.insert(FLARE_REVISION, header(revision.trim_matches('"').to_owned())?);
        headers.insert(FLARE_ATTEMPT, HeaderValue::from(self.attempt));
        if self.outlet.endpoint.handshake {
            headers.insert(handshake::REQUEST_ORIGIN, header(self.origin.to_owned())?);
        }
        if let Some(trace) = &self.change.trace {
            headers.insert(TRACEPARENT, header(trace.parent().to_owned())?);
            if let Some(state) = trace.state() {
                headers.insert(TRACESTATE, header(state.to_owned())?);
            }
        }
        Ok(())
    }

    /// The headers that the endpoint asks for.
    pub fn put_own_headers(&self, headers: &mut HeaderMap) -> Result<(), String> {
        for (name, values) in self.outlet.endpoint.headers(self.action) {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
            headers.remove(&name);
            for value in values {
                headers.append(&name, header(value.clone())?);
            }
        }
        Ok(())
    }

    fn sign(&self, message: &Message<'_>) -> Result<String, String> {
        match self.wire {
            Some(wire) => wire.sign(self.outlet, message, self.now),
            None => signature::sign_once(&self.outlet.signing, message, self.now),
        }
    }

    fn document(&self) -> Option<&Bytes> {
        self.change.content.as_ref().filter(|_| self.outlet.content.document)
    }

    fn event<'e>(&'e self, captures: &Captures<'_>, id: &'e str, revision: &'e str) -> Result<CloudEvent<'e>, String> {
        let data = if self.outlet.data.is_empty() {
            None
        } else {
            let mut data = Vec::new();
            self.write_data(&mut data, captures).map_err(|error| format!("could not write the data: {error}"))?;
            Some(String::from_utf8(data).map_err(|error| format!("the data is not text: {error}"))?)
        };
        Ok(CloudEvent {
            id,
            source: cloud_event::source(&self.stream.endpoint),
            action: self.action,
            subject: self.change.url.as_str(),
            time: self.change.updated_at.to_string(),
            revision: revision.trim_matches('"'),
            data,
            document: self.document(),
        })
    }

    fn body(&self, captures: &Captures<'_>, revision: &str) -> Result<Bytes, String> {
        let document = self.document();
        if !self.outlet.content.envelope {
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
pub(crate) fn header(value: String) -> Result<HeaderValue, String> {
    let value = Bytes::from(value);
    HeaderValue::from_maybe_shared(value.clone()).map_err(|_| format!("{value:?} cannot stand in a header"))
}

#[cfg(test)]
mod tests;
