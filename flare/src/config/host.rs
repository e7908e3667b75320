//! Host names and web origins that the API may be called under.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A name of a host or a system, in lower case and without a port: `flare.company.com`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("format" = "host"))]
pub struct HostName(String);

impl HostName {
    /// The name of a system that was given none.
    pub fn flare() -> Self {
        Self("flare".to_owned())
    }

    /// The name, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<HostName> for String {
    fn from(host: HostName) -> Self {
        host.0
    }
}

impl TryFrom<String> for HostName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if is_host(text) {
            return Ok(Self(text.to_ascii_lowercase()));
        }
        Err(format!(
            "{text:?} is not a host name; write the name alone, without scheme, port or path, such as \
             \"flare.company.com\""
        ))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A web origin as browsers send it, in lower case: `https://console.company.com`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("format" = "origin"))]
pub struct WebOrigin(String);

impl WebOrigin {
    /// The origin, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<WebOrigin> for String {
    fn from(origin: WebOrigin) -> Self {
        origin.0
    }
}

impl TryFrom<String> for WebOrigin {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for WebOrigin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let authority = lower.strip_prefix("https://").or_else(|| lower.strip_prefix("http://"));
        if authority.is_some_and(is_authority) {
            return Ok(Self(lower));
        }
        Err(format!(
            "{text:?} is not a web origin; write scheme, host and port if it is not the usual one, without a path, \
             such as \"https://console.company.com\""
        ))
    }
}

impl fmt::Display for WebOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether the text is a host with an optional port.
fn is_authority(text: &str) -> bool {
    match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let digits = port.bytes().all(|byte| byte.is_ascii_digit());
            digits && port.parse::<u16>().is_ok() && is_host(host)
        }
        _ => is_host(text),
    }
}

/// Whether the text is a DNS name, an IPv4 address or an IPv6 address in brackets.
fn is_host(text: &str) -> bool {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().is_ok();
    }
    text.parse::<Ipv4Addr>().is_ok() || (text.len() <= 253 && text.split('.').all(is_label))
}

fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !label.is_empty() && label.len() <= 63 && !label.starts_with('-') && label.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_have_neither_scheme_nor_port_nor_path() {
        for right in ["localhost", "Flare.Company.com", "10.0.0.1", "[::1]", "a_b.c"] {
            assert_eq!(right.parse::<HostName>().unwrap().as_str(), right.to_ascii_lowercase());
        }
        for wrong in ["", "http://a", "a:80", "a/b", "a b", "-a", "a..b", "::1", "[x]", "*.company.com"] {
            assert!(wrong.parse::<HostName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn web_origins_are_scheme_host_and_port() {
        for right in ["http://localhost", "https://Console.company.com:8443", "http://[::1]", "http://[::1]:80"] {
            assert_eq!(right.parse::<WebOrigin>().unwrap().as_str(), right.to_ascii_lowercase());
        }
        for wrong in ["", "localhost", "ftp://a", "http://", "http://a/", "http://a:", "http://a:99999", "null", "*"] {
            assert!(wrong.parse::<WebOrigin>().is_err(), "{wrong}");
        }
    }
}
