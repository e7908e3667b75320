//! The name of a document: an absolute http or https URL in one normal form.
//!
//! Two spellings of the same URL must name the same document, so what RFC 3986 calls equivalent without decoding is
//! made equal here: case of scheme and host, the default port, an empty path. The path and the query are kept as they
//! were written. What could hide a second name (user information, dot segments) is refused, not repaired.
//!
//! The parser is written by hand: it runs for every request, and a URL that is already normal costs one allocation.

use std::{borrow::Cow, fmt, net::Ipv6Addr, sync::Arc};

/// The longest URL that can name a document, in its normal form.
pub const URL_BYTES_MAX: usize = 4096;

/// How much of a refused value an error message repeats.
const EXCERPT_CHARS_MAX: usize = 80;

const PORT_HTTP: u16 = 80;
const PORT_HTTPS: u16 = 443;

/// The characters of RFC 3986, and the brackets and the bar that are common in queries.
const IS_PATH_OR_QUERY: [bool; 256] = {
    let mut table = [false; 256];
    let punctuation = b"-._~!$&'()*+,;=:@/?%[]|";
    let mut at = 0;
    while at < punctuation.len() {
        table[punctuation[at] as usize] = true;
        at += 1;
    }
    let mut byte = 0;
    while byte < 128 {
        if (byte as u8).is_ascii_alphanumeric() {
            table[byte] = true;
        }
        byte += 1;
    }
    table
};

/// A valid document URL in normal form. Clones share the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentUrl(Arc<str>);

impl DocumentUrl {
    /// Reads an absolute http or https URL. The query is part of the name; path and query stay as written.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        check_length(text, text.len())?;
        let origin = Origin::parse(text)?;
        check_path_and_query(text, origin.rest)?;
        if origin.is_normal {
            return Ok(Self(Arc::from(text)));
        }
        let mut normal = String::with_capacity(text.len() + 1);
        origin.write(&mut normal);
        if !origin.rest.starts_with('/') {
            normal.push('/');
        }
        normal.push_str(origin.rest);
        check_length(text, normal.len())?;
        Ok(Self(Arc::from(normal)))
    }

    /// Reads the URL from a request for `/documents/{url}`.
    ///
    /// `path` is what follows `/documents/`, as the client sent it: the URL itself, also with the slashes after the
    /// scheme merged into one (`http:/api/x`, as some proxies do), or the whole URL percent-encoded once. `query` is
    /// the query of the request; it becomes the query of the URL, after the one that an encoded URL brings.
    pub fn from_request(path: &str, query: Option<&str>) -> Result<Self, UrlError> {
        let url = if is_encoded(path) { Cow::Owned(decode(path)?) } else { Cow::Borrowed(path) };
        let merged = after_scheme(&url).is_some_and(|rest| rest.starts_with('/') && !rest.starts_with("//"));
        if !merged && query.is_none() {
            return Self::parse(&url);
        }
        let bytes = url.len() + usize::from(merged) + query.map_or(0, |query| query.len() + 1);
        check_length(&url, bytes)?;
        let mut whole = String::with_capacity(bytes);
        match url.split_once(':') {
            Some((scheme, rest)) if merged => whole.extend([scheme, ":/", rest]),
            _ => whole.push_str(&url),
        }
        if let Some(query) = query {
            whole.push(if url.contains('?') { '&' } else { '?' });
            whole.push_str(query);
        }
        Self::parse(&whole)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &str {
        &self.0[..self.scheme_bytes()]
    }

    /// The host in lower case, and the port unless it is the scheme's own.
    pub fn authority(&self) -> &str {
        &self.0[self.scheme_bytes() + "://".len()..self.origin_bytes()]
    }

    /// Scheme and authority: everything before the path.
    pub fn origin(&self) -> &str {
        &self.0[..self.origin_bytes()]
    }

    /// The path as it was written; it starts with a slash.
    pub fn path(&self) -> &str {
        let rest = &self.0[self.origin_bytes()..];
        rest.split_once('?').map_or(rest, |(path, _)| path)
    }

    /// What follows the question mark, if there is one.
    pub fn query(&self) -> Option<&str> {
        self.0[self.origin_bytes()..].split_once('?').map(|(_, query)| query)
    }

    fn scheme_bytes(&self) -> usize {
        if self.0.starts_with("https") { "https".len() } else { "http".len() }
    }

    fn origin_bytes(&self) -> usize {
        let authority = self.scheme_bytes() + "://".len();
        self.0[authority..].find('/').map_or(self.0.len(), |at| authority + at)
    }
}

impl fmt::Display for DocumentUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text cannot name a document. Each message repeats the start of the text and says what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("URL {url:?} has {bytes} bytes, at most {URL_BYTES_MAX} are allowed")]
    TooLong { url: String, bytes: usize },
    #[error("URL {url:?} must start with http:// or https://")]
    Scheme { url: String },
    // The user information may be a password, so the message leaves it out.
    #[error("URL with host {host:?} has user information before the host, which cannot be part of a name")]
    UserInfo { host: String },
    #[error("URL {url:?} must have a host of letters, digits, '-', '_' and '.', or an IPv6 address in brackets")]
    Host { url: String },
    #[error("URL {url:?} must have a port between 1 and 65535, or none")]
    Port { url: String },
    #[error("URL {url:?} has the character {character:?}, which must be percent-encoded")]
    Character { url: String, character: char },
    #[error("URL {url:?} has a percent sign that is not followed by two hexadecimal digits")]
    Escape { url: String },
    #[error("URL {url:?} is percent-encoded, but not from UTF-8 text")]
    Encoding { url: String },
    #[error("URL {url:?} has a fragment, which cannot be part of a name; a literal '#' is written %23")]
    Fragment { url: String },
    #[error("URL {url:?} has a path segment '.' or '..', which would give a document a second name")]
    DotSegment { url: String },
}

/// Scheme, host and port in normal form, and the text behind them.
pub(crate) struct Origin<'t> {
    scheme: &'static str,
    host: Cow<'t, str>,
    /// `None` when it is the default of the scheme.
    port: Option<u16>,
    /// Path and query, unchecked.
    pub(crate) rest: &'t str,
    /// The text is its own normal form, as far as the start of the path.
    pub(crate) is_normal: bool,
}

impl<'t> Origin<'t> {
    pub(crate) fn parse(text: &'t str) -> Result<Self, UrlError> {
        let (scheme, rest) = strip_scheme(text)
            .and_then(|(scheme, rest)| Some((scheme, rest.strip_prefix("//")?)))
            .ok_or_else(|| UrlError::Scheme { url: excerpt(text) })?;
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if let Some((_, host)) = authority.rsplit_once('@') {
            return Err(UrlError::UserInfo { host: excerpt(host) });
        }
        let (host, port) = split_port(authority);
        let host = normal_host(host).ok_or_else(|| UrlError::Host { url: excerpt(text) })?;
        let (port, is_port_normal) = normal_port(port, scheme).ok_or_else(|| UrlError::Port { url: excerpt(text) })?;
        let is_normal =
            text.starts_with(scheme) && matches!(host, Cow::Borrowed(_)) && is_port_normal && rest.starts_with('/');
        Ok(Self { scheme, host, port, rest, is_normal })
    }

    pub(crate) fn write(&self, out: &mut String) {
        out.extend([self.scheme, "://", &self.host]);
        if let Some(port) = self.port {
            out.push(':');
            out.push_str(&port.to_string());
        }
    }
}

/// Checks every byte of a path and its query; the path may be empty.
pub(crate) fn check_path_and_query(url: &str, rest: &str) -> Result<(), UrlError> {
    let bytes = rest.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' if hex_pair(bytes, at + 1).is_none() => return Err(UrlError::Escape { url: excerpt(url) }),
            b'#' => return Err(UrlError::Fragment { url: excerpt(url) }),
            byte if !IS_PATH_OR_QUERY[usize::from(byte)] => {
                let character = rest[at..].chars().next().unwrap_or(char::REPLACEMENT_CHARACTER);
                return Err(UrlError::Character { url: excerpt(url), character });
            }
            _ => at += 1,
        }
    }
    let path = rest.split_once('?').map_or(rest, |(path, _)| path);
    if path.split('/').any(is_dot_segment) {
        return Err(UrlError::DotSegment { url: excerpt(url) });
    }
    Ok(())
}

/// The text with its percent escapes decoded, or `None` if an escape is broken.
pub(crate) fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            decoded.push(hex_pair(bytes, at + 1)?);
            at += 3;
        } else {
            decoded.push(bytes[at]);
            at += 1;
        }
    }
    Some(decoded)
}

/// The start of a text of any length, for a message.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn check_length(url: &str, bytes: usize) -> Result<(), UrlError> {
    if bytes > URL_BYTES_MAX {
        return Err(UrlError::TooLong { url: excerpt(url), bytes });
    }
    Ok(())
}

fn strip_scheme(text: &str) -> Option<(&'static str, &str)> {
    let rest = after_scheme(text)?;
    let scheme = if text.len() - rest.len() == "http:".len() { "http" } else { "https" };
    Some((scheme, rest))
}

/// What follows `http:` or `https:`, in any case.
fn after_scheme(text: &str) -> Option<&str> {
    after_scheme_name(text)?.strip_prefix(':')
}

fn after_scheme_name(text: &str) -> Option<&str> {
    let name = text.get(.."http".len())?;
    if !name.eq_ignore_ascii_case("http") {
        return None;
    }
    let rest = &text["http".len()..];
    Some(rest.strip_prefix(['s', 'S']).unwrap_or(rest))
}

/// Whether the URL of a request is percent-encoded as a whole: its scheme is not followed by a slash as such.
fn is_encoded(path: &str) -> bool {
    after_scheme_name(path).is_some_and(|rest| rest.starts_with('%') || rest.starts_with(":%"))
}

fn decode(path: &str) -> Result<String, UrlError> {
    // An escape takes three bytes, so a longer text cannot be short enough when it is decoded.
    if path.len() > 3 * URL_BYTES_MAX {
        return Err(UrlError::TooLong { url: excerpt(path), bytes: path.len() });
    }
    let decoded = percent_decoded(path).ok_or_else(|| UrlError::Escape { url: excerpt(path) })?;
    String::from_utf8(decoded).map_err(|_| UrlError::Encoding { url: excerpt(path) })
}

/// Host and port of an authority; the colons inside the brackets of an IPv6 address are not a port's.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    let host_bytes = authority.rfind(']').map_or(0, |at| at + 1);
    match authority[host_bytes..].find(':') {
        Some(at) => (&authority[..host_bytes + at], Some(&authority[host_bytes + at + 1..])),
        None => (authority, None),
    }
}

fn normal_host(host: &str) -> Option<Cow<'_, str>> {
    if let Some(address) = host.strip_prefix('[') {
        let address: Ipv6Addr = address.strip_suffix(']')?.parse().ok()?;
        let normal = format!("[{address}]");
        return Some(if normal == host { Cow::Borrowed(host) } else { Cow::Owned(normal) });
    }
    let labels = host.strip_suffix('.').unwrap_or(host);
    if labels.split('.').any(str::is_empty) {
        return None;
    }
    if !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
        return None;
    }
    let is_lower = !host.bytes().any(|byte| byte.is_ascii_uppercase());
    Some(if is_lower { Cow::Borrowed(host) } else { Cow::Owned(host.to_ascii_lowercase()) })
}

/// The port unless it is the default, and whether the text is already its normal form.
fn normal_port(port: Option<&str>, scheme: &str) -> Option<(Option<u16>, bool)> {
    let default = if scheme == "http" { PORT_HTTP } else { PORT_HTTPS };
    let Some(text) = port else { return Some((None, true)) };
    if text.is_empty() {
        return Some((None, false));
    }
    // `parse` would also take a plus sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u16 = text.parse().ok().filter(|number| *number > 0)?;
    if number == default { Some((None, false)) } else { Some((Some(number), !text.starts_with('0'))) }
}

fn is_dot_segment(segment: &str) -> bool {
    let Some(rest) = strip_dot(segment) else { return false };
    rest.is_empty() || strip_dot(rest).is_some_and(str::is_empty)
}

/// What follows one dot, literal or percent-encoded.
fn strip_dot(segment: &str) -> Option<&str> {
    [".", "%2e", "%2E"].iter().find_map(|dot| segment.strip_prefix(dot))
}

fn hex_pair(bytes: &[u8], at: usize) -> Option<u8> {
    let high = hex_digit(*bytes.get(at)?)?;
    let low = hex_digit(*bytes.get(at + 1)?)?;
    Some(high << 4 | low)
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
