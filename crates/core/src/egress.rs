//! Where deliveries may go.
//!
//! Whoever makes a subscription names the host, and whoever runs the DNS of that host names the address. So the rule is
//! about the address that is connected to: it must be public, unless the operator allows it. What the operator denies
//! is refused in any case.
//!
//! Only the rule is here. To resolve names, and to connect to the address that was checked and to no other, is for the
//! client of deliveries.

mod range;
mod target;
#[cfg(test)]
mod tests;

use std::{fmt, net::IpAddr};

pub use target::{Target, TargetError};

/// The rule. By default it is the strict one: public addresses, by https.
#[derive(Clone, Debug, Default)]
pub struct Egress {
    allow: Vec<Target>,
    deny: Vec<Target>,
    loopback: bool,
}

/// How the bytes travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// `http://`, which everyone on the way can read and change.
    Plain,
    /// `https://`
    Tls,
}

/// Why a delivery may not go there.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    #[error("the host {host} is not allowed: delivery.deny has {entry}")]
    HostDenied { host: String, entry: String },
    #[error("{place} is not allowed: delivery.deny has {entry}")]
    AddressDenied { place: Place, entry: String },
    #[error("{place} is not allowed: {reason}; the operator can allow it in delivery.allow")]
    NotPublic { place: Place, reason: String },
    #[error("http:// is not allowed to {place}: use https://, or the operator can allow it in delivery.allow")]
    NotEncrypted { place: Place },
}

/// An address and the name that led to it, or one of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    host: String,
    address: Option<IpAddr>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) if literal(&self.host).is_some() => write!(f, "the address {address}"),
            Some(address) => write!(f, "the address {address} of {}", self.host),
            None => write!(f, "the host {}", self.host),
        }
    }
}

impl Egress {
    /// `loopback` allows the addresses of this machine: right for a server that only this machine can call.
    pub fn new(allow: Vec<Target>, deny: Vec<Target>, loopback: bool) -> Self {
        Self { allow, deny, loopback }
    }

    /// Whether a delivery to `host`, a name or an address, may go to this address.
    pub fn check(&self, transport: Transport, host: &str, address: IpAddr) -> Result<(), Refused> {
        self.check_host_denied(host)?;
        let address = address.to_canonical();
        let place = || Place { host: host.to_owned(), address: Some(address) };
        let embedded = range::embedded(address).map(IpAddr::V4);
        let denies = |target: &&Target| target.holds(address) || embedded.is_some_and(|inner| target.holds(inner));
        if let Some(entry) = self.deny.iter().find(denies) {
            return Err(Refused::AddressDenied { place: place(), entry: entry.to_string() });
        }
        if self.loopback && address.is_loopback() {
            return Ok(());
        }
        if self.allow.iter().any(|target| target.names(host) || target.holds(address)) {
            return Ok(());
        }
        if let Some(reason) = range::not_public(address) {
            return Err(Refused::NotPublic { place: place(), reason });
        }
        match transport {
            Transport::Tls => Ok(()),
            Transport::Plain => Err(Refused::NotEncrypted { place: place() }),
        }
    }

    /// Whether deliveries to `host` can be allowed at all, as far as that is known before its name is resolved.
    pub fn check_host(&self, transport: Transport, host: &str) -> Result<(), Refused> {
        if let Some(address) = literal(host) {
            return self.check(transport, host, address);
        }
        self.check_host_denied(host)?;
        let may_be_listed = || self.allow.iter().any(|target| target.names(host) || target.is_network());
        if transport == Transport::Plain && !self.loopback && !may_be_listed() {
            return Err(Refused::NotEncrypted { place: Place { host: host.to_owned(), address: None } });
        }
        Ok(())
    }

    fn check_host_denied(&self, host: &str) -> Result<(), Refused> {
        match self.deny.iter().find(|target| target.names(host)) {
            Some(entry) => Err(Refused::HostDenied { host: host.to_owned(), entry: entry.to_string() }),
            None => Ok(()),
        }
    }
}

/// The address that a host of a URL is by itself: what needs no resolver. Short and hexadecimal spellings of IPv4
/// (`127.1`, `0x7f.1`) are left to the resolver, which knows what the system makes of them.
pub fn literal(host: &str) -> Option<IpAddr> {
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.unwrap_or(host).parse().ok()
}
