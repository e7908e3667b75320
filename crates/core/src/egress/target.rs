//! An entry of the lists of what is allowed and denied.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;

const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Where the IPv4 address begins in `::ffff:10.0.0.1`.
const MAPPED_PREFIX_BITS: u8 = 96;

/// A network, an address or a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target(Kind);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    /// `10.0.0.0/8`; a single address is the smallest of networks.
    Network(IpNet),
    /// `hooks.internal`, in lower case.
    Host(String),
    /// `*.company.internal`, kept as `.company.internal`.
    Subdomains(String),
}

/// Why a text is not an entry. Each message begins with the text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TargetError {
    #[error("{0:?} is not a network; write it as \"10.0.0.0/8\" or \"fd00::/8\"")]
    Network(String),
    #[error("{text:?} has bits behind its prefix; write the network \"{network}\" or the address \"{address}\"")]
    Prefix { text: String, network: IpNet, address: IpAddr },
    #[error("{0:?} is not an address in full; write all four numbers, as in \"127.0.0.1\"")]
    Address(String),
    #[error(
        "{0:?} is neither a network, nor an address, nor a host name; write \"10.0.0.0/8\", \"127.0.0.1\", \"::1\", \
         \"hooks.internal\" or \"*.company.internal\""
    )]
    Other(String),
}

impl Target {
    pub(super) fn holds(&self, address: IpAddr) -> bool {
        matches!(&self.0, Kind::Network(network) if network.contains(&address))
    }

    pub(super) fn names(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        match &self.0 {
            Kind::Network(_) => false,
            Kind::Host(name) => name.eq_ignore_ascii_case(host),
            Kind::Subdomains(end) => {
                let start = host.len().checked_sub(end.len()).filter(|start| *start > 0);
                start.and_then(|start| host.get(start..)).is_some_and(|tail| tail.eq_ignore_ascii_case(end))
            }
        }
    }

    pub(super) fn is_network(&self) -> bool {
        matches!(self.0, Kind::Network(_))
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(Kind::Network(address.to_canonical().into())));
        }
        if text.contains('/') {
            return parse_network(text).map(|network| Self(Kind::Network(network)));
        }
        let name = text.strip_prefix("*.").unwrap_or(text);
        if !is_name(name) {
            return Err(TargetError::Other(text.to_owned()));
        }
        if is_number(name.rsplit('.').next().unwrap_or_default()) {
            return Err(TargetError::Address(text.to_owned()));
        }
        let name = name.to_ascii_lowercase();
        Ok(Self(if text.starts_with("*.") { Kind::Subdomains(format!(".{name}")) } else { Kind::Host(name) }))
    }
}

fn parse_network(text: &str) -> Result<IpNet, TargetError> {
    let network: IpNet = text.parse().map_err(|_| TargetError::Network(text.to_owned()))?;
    if network.trunc() != network {
        let (address, network) = (network.addr(), network.trunc());
        return Err(TargetError::Prefix { text: text.to_owned(), network, address });
    }
    Ok(canonical(network))
}

/// IPv4 in the form of IPv6 is IPv4: addresses are unwrapped before they are held against a network.
fn canonical(network: IpNet) -> IpNet {
    let inner = (network.addr().to_canonical(), network.prefix_len().checked_sub(MAPPED_PREFIX_BITS));
    match (network, inner) {
        (IpNet::V6(_), (IpAddr::V4(address), Some(prefix))) => {
            IpNet::new(IpAddr::V4(address), prefix).unwrap_or(network)
        }
        _ => network,
    }
}

fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(is_inner);
    text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label)
}

/// No name ends with a number, but other spellings of addresses do: `127.1`, `0x7f.1`.
fn is_number(label: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    digits(label) || label.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("0x"))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Network(network) if network.prefix_len() == network.max_prefix_len() => network.addr().fmt(f),
            Kind::Network(network) => network.fmt(f),
            Kind::Host(name) => f.write_str(name),
            Kind::Subdomains(end) => write!(f, "*{end}"),
        }
    }
}
