//! Addresses to listen on.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a server listens: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, or `:8080` for all interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("format" = "address"))]
pub struct ListenAddr {
    /// `None` stands for all interfaces, of IPv6 and IPv4.
    ip: Option<IpAddr>,
    port: u16,
}

impl ListenAddr {
    /// `127.0.0.1` with a port.
    pub const fn loopback(port: u16) -> Self {
        Self { ip: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), port }
    }

    /// Whether only this machine can reach the address.
    pub fn is_loopback(self) -> bool {
        self.ip.is_some_and(|ip| ip.to_canonical().is_loopback())
    }

    /// Whether it names one address, and not all of the machine.
    pub fn is_one(self) -> bool {
        self.ip.is_some_and(|ip| !ip.is_unspecified())
    }

    /// The socket addresses to try, in this order, until one can be bound: all interfaces are one dual-stack socket,
    /// or the IPv4 ones where the machine has no IPv6.
    pub fn candidates(self) -> Vec<SocketAddr> {
        match self.ip {
            Some(ip) => vec![SocketAddr::new(ip, self.port)],
            None => vec![
                SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), self.port),
                SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), self.port),
            ],
        }
    }
}

impl From<ListenAddr> for String {
    fn from(addr: ListenAddr) -> Self {
        addr.to_string()
    }
}

impl TryFrom<String> for ListenAddr {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for ListenAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parts(text).map_err(|reason| {
            format!(
                "{text:?} is not an address to listen on ({reason}); write \"127.0.0.1:8080\", \"[::1]:8080\" or, for \
                 all interfaces, \":8080\""
            )
        })
    }
}

fn parts(text: &str) -> Result<ListenAddr, String> {
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err("the port is missing".to_owned());
    };
    if port.is_empty() {
        return Err("the port is missing".to_owned());
    }
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|_| digits);
    let Some(port) = port else {
        return Err("the port is not a number from 0 to 65535".to_owned());
    };
    let ip = match host {
        "" => None,
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        _ => Some(ip(host)?),
    };
    Ok(ListenAddr { ip, port })
}

fn ip(host: &str) -> Result<IpAddr, String> {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().map(IpAddr::V6).map_err(|_| format!("{inner:?} is not an IPv6 address"));
    }
    if host.contains(':') {
        return Err("an IPv6 address stands in brackets".to_owned());
    }
    let known = host.parse::<Ipv4Addr>().map(IpAddr::V4);
    known.map_err(|_| format!("{host:?} is neither an IP address nor \"localhost\""))
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip {
            Some(ip) => write!(f, "{}", SocketAddr::new(ip, self.port)),
            None => write!(f, ":{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        let check = |text: &str, written: &str, first: &str, loopback: bool| {
            let addr: ListenAddr = text.parse().unwrap();
            assert_eq!(addr.to_string(), written);
            assert_eq!(addr.candidates()[0].to_string(), first);
            assert_eq!(addr.is_loopback(), loopback, "{text}");
        };
        check("127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1:8080", true);
        check("localhost:80", "127.0.0.1:80", "127.0.0.1:80", true);
        check("[::1]:8080", "[::1]:8080", "[::1]:8080", true);
        check("[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:1", true);
        check(":8080", ":8080", "[::]:8080", false);
        check("0.0.0.0:0", "0.0.0.0:0", "0.0.0.0:0", false);
        check("10.1.2.3:9", "10.1.2.3:9", "10.1.2.3:9", false);
    }

    #[test]
    fn a_wrong_address_says_why() {
        let check = |text: &str, reason: &str| {
            let error = text.parse::<ListenAddr>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        };
        check("", "the port is missing");
        check("127.0.0.1", "the port is missing");
        check("127.0.0.1:", "the port is missing");
        check("127.0.0.1:http", "the port is not a number");
        check("127.0.0.1:+80", "the port is not a number");
        check("127.0.0.1:65536", "the port is not a number");
        check("::1:8080", "in brackets");
        check("[::1:8080", "in brackets");
        check("[1.2.3.4]:8080", "not an IPv6 address");
        check("example.com:80", "neither an IP address nor");
    }
}
