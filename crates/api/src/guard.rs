//! Who may call: the checks that every request passes before anything else is done with it.
//!
//! A request from this machine needs no token, because whoever can open a local socket can also read the data folder.
//! Two things would break that: a proxy on this machine, whose requests count as remote, and a web page that a local
//! browser shows, whose `Origin` or (with a rebound DNS name) `Host` is foreign. Sizes of URL and headers are checked
//! in the same pass, since it is the pass over the headers.

use std::{net::IpAddr, sync::Arc};

use aws_lc_rs::{constant_time, digest};
use flare_core::token::{Token, TokenText};
use flare_node::lease::Password;
use http::{HeaderMap, HeaderValue, Method, request::Parts};
use jiff::Timestamp;

use crate::{
    access::Caller,
    error::{self, ApiError},
    settings::ApiSettings,
};

/// What HTTP/2 counts for a header besides its name and value; about what it costs to hold one.
const HEADER_OVERHEAD_BYTES: usize = 32;

/// Finds a token that this server made by its text.
type Issued = dyn Fn(&[u8]) -> Option<Arc<Token>> + Send + Sync;

pub(crate) struct Guard {
    /// Those of the configuration.
    tokens: Vec<[u8; 32]>,
    issued: Box<Issued>,
    /// What other nodes show.
    secret: Password,
    hosts: Vec<String>,
    origins: Vec<String>,
    header_bytes_max: usize,
    url_bytes_max: usize,
}

/// A request that may go on.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    pub caller: Caller,
    /// The listed web origin that the request came from.
    pub origin: Option<HeaderValue>,
    /// A browser only asks whether it may call.
    pub is_preflight: bool,
}

/// What the headers say about the caller.
#[derive(Default)]
struct Claims<'r> {
    bytes: usize,
    is_proxied: bool,
    authorization: Option<&'r HeaderValue>,
    forwarded: Option<&'r HeaderValue>,
    host: Option<&'r str>,
    origin: Option<&'r HeaderValue>,
}

impl Guard {
    pub fn new(settings: &ApiSettings, secret: Password, issued: Box<Issued>) -> Self {
        Self {
            tokens: settings.tokens.clone(),
            issued,
            secret,
            hosts: settings.hosts.clone(),
            origins: settings.origins.clone(),
            header_bytes_max: settings.header_bytes_max,
            url_bytes_max: settings.url_bytes_max,
        }
    }

    pub fn admit(&self, head: &Parts, peer: IpAddr) -> Result<Admission, ApiError> {
        let claims = Claims::of(head);
        self.check_sizes(head, &claims)?;
        if matches!(head.uri.path(), "/health" | "/ready") {
            return Ok(Admission::default());
        }
        if let Some(secret) = claims.forwarded {
            return self.another_node(secret);
        }
        let listed = claims.origin.filter(|origin| self.is_listed(origin));
        if listed.is_some() && is_preflight(&head.method, &head.headers) {
            return Ok(Admission { origin: listed.cloned(), is_preflight: true, ..Admission::default() });
        }
        let caller = self.identify(&claims, peer)?;
        if matches!(caller, Caller::Local) {
            self.check_host(claims.host)?;
        }
        if let Some(origin) = claims.origin
            && listed.is_none()
            && !is_same_origin(origin, claims.host)
        {
            return Err(origin_refused(origin));
        }
        Ok(Admission { caller, origin: listed.cloned(), is_preflight: false })
    }

    fn another_node(&self, secret: &HeaderValue) -> Result<Admission, ApiError> {
        if self.secret.is(secret.as_bytes()) {
            return Ok(Admission { caller: Caller::Node, ..Admission::default() });
        }
        let detail = "`flare-forwarded` is for requests between nodes, and this is not the secret of this one";
        Err(ApiError::unauthorized(detail))
    }

    /// Whether the request has a token that could have been made by another node a moment ago.
    pub fn has_unknown_token(&self, head: &Parts) -> bool {
        let token = Claims::of(head).authorization.and_then(bearer);
        token.is_some_and(|text| TokenText::id_in(text).is_some() && (self.issued)(text).is_none())
    }

    fn check_sizes(&self, head: &Parts, claims: &Claims<'_>) -> Result<(), ApiError> {
        let url_bytes = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
        if url_bytes > self.url_bytes_max {
            let detail = format!("path and query have {url_bytes} bytes, at most {} are allowed", self.url_bytes_max);
            return Err(ApiError::new(error::URL_TOO_LONG, detail));
        }
        if claims.bytes > self.header_bytes_max {
            let detail =
                format!("the headers have {} bytes, at most {} are allowed", claims.bytes, self.header_bytes_max);
            return Err(ApiError::new(error::HEADERS_TOO_LARGE, detail));
        }
        Ok(())
    }

    /// A token that is sent counts, also from this machine: whoever sends one wants its rights, and no more.
    fn identify(&self, claims: &Claims<'_>, peer: IpAddr) -> Result<Caller, ApiError> {
        let is_loopback = peer.to_canonical().is_loopback();
        match claims.authorization.and_then(bearer) {
            Some(token) => self.holder(token),
            None if is_loopback && !claims.is_proxied => Ok(Caller::Local),
            None => Err(token_needed(claims, is_loopback, peer)),
        }
    }

    fn holder(&self, text: &[u8]) -> Result<Caller, ApiError> {
        if self.is_configured(text) {
            return Ok(Caller::Configured);
        }
        let Some(token) = (self.issued)(text) else {
            let detail = "the token in `Authorization` is unknown: it was revoked, or it is neither one that `flare \
                          token create` showed nor one of `security.tokens`";
            return Err(ApiError::unauthorized(detail));
        };
        match token.expires_at {
            Some(end) if token.is_expired(Timestamp::now()) => {
                let detail = format!("the token {:?} ({}) expired at {end}; make a new one", token.name, token.id);
                Err(ApiError::unauthorized(detail))
            }
            _ => Ok(Caller::Holder(token)),
        }
    }

    fn is_configured(&self, text: &[u8]) -> bool {
        let digest = digest::digest(&digest::SHA256, text);
        // Every token is compared, so that the time does not tell which one came close.
        self.tokens
            .iter()
            .fold(false, |known, token| constant_time::verify_slices_are_equal(digest.as_ref(), token).is_ok() | known)
    }

    /// Addresses cannot be rebound to another server by DNS; names can, so they must be known.
    fn check_host(&self, host: Option<&str>) -> Result<(), ApiError> {
        let Some(host) = host else {
            return Err(ApiError::new(error::HOST_REFUSED, "the request has no Host header, or more than one"));
        };
        let name = without_port(host);
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_known = is_address(name)
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name));
        if is_known {
            return Ok(());
        }
        let detail = format!(
            "the Host {host:?} is neither an address nor localhost nor listed; add {name:?} to `security.hosts`, or \
             send a token"
        );
        Err(ApiError::new(error::HOST_REFUSED, detail))
    }

    fn is_listed(&self, origin: &HeaderValue) -> bool {
        self.origins.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
    }
}

impl<'r> Claims<'r> {
    fn of(head: &'r Parts) -> Self {
        let mut claims = Self::default();
        let mut hosts = 0;
        for (name, value) in &head.headers {
            claims.bytes += name.as_str().len() + value.len() + HEADER_OVERHEAD_BYTES;
            match name.as_str() {
                "host" => {
                    hosts += 1;
                    claims.host = value.to_str().ok();
                }
                "authorization" => claims.authorization = Some(value),
                "flare-forwarded" => claims.forwarded = Some(value),
                "origin" => claims.origin = Some(value),
                "forwarded" | "via" | "x-real-ip" => claims.is_proxied = true,
                name if name.starts_with("x-forwarded-") => claims.is_proxied = true,
                _ => {}
            }
        }
        if hosts > 1 {
            claims.host = None;
        }
        // HTTP/2 names the host in the URL, as does a request in absolute form, where the URL has the last word.
        if let Some(authority) = head.uri.authority() {
            claims.host = Some(authority.as_str());
        }
        claims
    }
}

fn token_needed(claims: &Claims<'_>, is_loopback: bool, peer: IpAddr) -> ApiError {
    let from = if is_loopback {
        "it came through a proxy and counts as remote".to_owned()
    } else {
        format!("it came from {peer}")
    };
    let seen = if claims.authorization.is_some() { "`Authorization` holds no bearer token; " } else { "" };
    ApiError::unauthorized(format!(
        "the request needs a token, because {from}: {seen}send `Authorization: Bearer <token>`, with a token that \
         `flare token create` made on the server's machine or one of `security.tokens`"
    ))
}

fn bearer(authorization: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = authorization.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS && headers.contains_key(http::header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// A page of this server: its origin is a scheme and the `Host` that it calls.
fn is_same_origin(origin: &HeaderValue, host: Option<&str>) -> bool {
    let Some((Ok(origin), host)) = host.map(|host| (origin.to_str(), host)) else { return false };
    let same = |scheme: &str, port: &str| {
        origin.strip_prefix(scheme).is_some_and(|authority| {
            let authority = authority.strip_suffix(port).unwrap_or(authority);
            authority.eq_ignore_ascii_case(host.strip_suffix(port).unwrap_or(host))
        })
    };
    same("http://", ":80") || same("https://", ":443")
}

fn origin_refused(origin: &HeaderValue) -> ApiError {
    let detail = format!(
        "the Origin {origin:?} is not the server's own; add it to `security.origins` if its pages may call the API"
    );
    ApiError::new(error::ORIGIN_REFUSED, detail)
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

fn is_address(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests;
