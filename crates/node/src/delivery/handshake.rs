//! The webhook handshake of CloudEvents: an endpoint says that it wants deliveries before it gets any.
//!
//! It protects others from being flooded, and proves nothing about who anybody is. The rate that an endpoint grants is
//! not kept to beforehand: past it the endpoint answers 429, which is honoured.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header::USER_AGENT};
use http_body_util::Full;

use super::request::{AGENT, Push, header};

/// Stands in the question and, once it is agreed, in every delivery.
pub(crate) const REQUEST_ORIGIN: HeaderName = HeaderName::from_static("webhook-request-origin");
const REQUEST_RATE: HeaderName = HeaderName::from_static("webhook-request-rate");
const ALLOWED_ORIGIN: HeaderName = HeaderName::from_static("webhook-allowed-origin");
const SECONDS_PER_MINUTE: u64 = 60;

impl Push<'_> {
    /// The question whether deliveries to this URL are wanted. It has the endpoint's own headers too: what lets a
    /// delivery in must let the question in.
    pub fn question(&self, url: &Uri) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.method_mut() = Method::OPTIONS;
        *request.uri_mut() = url.clone();
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, AGENT);
        self.put_own_headers(headers)?;
        headers.insert(REQUEST_ORIGIN, header(self.origin.to_owned())?);
        if let Some(rate) = self.outlet.delivery.rate {
            headers.insert(REQUEST_RATE, HeaderValue::from(u64::from(rate.get()) * SECONDS_PER_MINUTE));
        }
        Ok(request)
    }
}

/// Consent is in the headers; the status says nothing, as many servers answer OPTIONS without knowing of this.
pub(crate) fn read_answer(status: StatusCode, headers: &HeaderMap, origin: &str) -> Result<(), String> {
    let Some(allowed) = headers.get(ALLOWED_ORIGIN) else {
        return Err(format!(
            "the endpoint did not agree to deliveries: its answer to OPTIONS ({status}) has no WebHook-Allowed-Origin"
        ));
    };
    let allowed = String::from_utf8_lossy(allowed.as_bytes());
    let allowed = allowed.trim();
    if allowed == "*" || allowed.eq_ignore_ascii_case(origin) {
        return Ok(());
    }
    Err(format!("the endpoint did not agree to deliveries: it allows the origin {allowed:?}, this is {origin:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_headers_are_consent() {
        let check = |allowed: Option<&'static str>, status: u16| {
            let mut headers = HeaderMap::new();
            headers.extend(allowed.map(|value| (ALLOWED_ORIGIN, HeaderValue::from_static(value))));
            read_answer(StatusCode::from_u16(status).unwrap(), &headers, "flare.company.com")
        };
        assert_eq!(check(Some("*"), 200), Ok(()));
        assert_eq!(check(Some("Flare.company.com"), 405), Ok(()));
        let reason = check(None, 200).unwrap_err();
        assert!(reason.ends_with("its answer to OPTIONS (200 OK) has no WebHook-Allowed-Origin"), "{reason}");
        let reason = check(Some("other.company.com"), 200).unwrap_err();
        assert!(reason.ends_with("it allows the origin \"other.company.com\", this is \"flare.company.com\""));
    }
}
