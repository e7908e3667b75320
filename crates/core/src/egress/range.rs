//! Which addresses are public: the special-purpose registries of IANA, as far as they concern who can be reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

/// A network by the first three groups of its address.
const fn v6(a: u16, b: u16, c: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), prefix)
}

const NOT_PUBLIC_V4: [(Ipv4Net, &str); 17] = [
    (v4(0, 0, 0, 0, 8), "this machine"),
    (v4(10, 0, 0, 0, 8), "private"),
    (v4(100, 64, 0, 0, 10), "shared behind a carrier's NAT"),
    (v4(127, 0, 0, 0, 8), "loopback"),
    (v4(168, 63, 129, 16, 32), "a cloud's metadata service"),
    (v4(169, 254, 169, 254, 32), "a cloud's metadata service"),
    (v4(169, 254, 0, 0, 16), "link-local"),
    (v4(172, 16, 0, 0, 12), "private"),
    (v4(192, 0, 0, 0, 24), "reserved for protocols"),
    (v4(192, 0, 2, 0, 24), "for documentation"),
    (v4(192, 88, 99, 0, 24), "reserved"),
    (v4(192, 168, 0, 0, 16), "private"),
    (v4(198, 18, 0, 0, 15), "for benchmarks"),
    (v4(198, 51, 100, 0, 24), "for documentation"),
    (v4(203, 0, 113, 0, 24), "for documentation"),
    (v4(224, 0, 0, 0, 4), "multicast"),
    // It ends with the broadcast address.
    (v4(240, 0, 0, 0, 4), "reserved"),
];

const NOT_PUBLIC_V6: [(Ipv6Net, &str); 9] = [
    (Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 128), "this machine"),
    (Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128), "loopback"),
    (v6(0xfe80, 0, 0, 10), "link-local"),
    (v6(0xfc00, 0, 0, 7), "private"),
    (v6(0xff00, 0, 0, 8), "multicast"),
    // Teredo, benchmarks and identifiers that are not addresses are in it.
    (v6(0x2001, 0, 0, 23), "reserved for protocols"),
    (v6(0x2001, 0xdb8, 0, 32), "for documentation"),
    (v6(0x3fff, 0, 0, 20), "for documentation"),
    // Translated by a gateway of the local network to whatever it likes.
    (NAT64_LOCAL, "private"),
];

/// All of the IPv6 space that is given out for public addresses. What lies outside of it is not there yet, or special.
const GLOBAL_UNICAST: Ipv6Net = v6(0x2000, 0, 0, 3);

/// These stand for the IPv4 address in their last four bytes; of `COMPATIBLE`, all but `::` and `::1`.
const NAT64: Ipv6Net = v6(0x64, 0xff9b, 0, 96);
const NAT64_LOCAL: Ipv6Net = v6(0x64, 0xff9b, 1, 48);
const COMPATIBLE: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 96);
/// This stands for the IPv4 address behind its first two bytes.
const SIX_TO_FOUR: Ipv6Net = v6(0x2002, 0, 0, 16);
/// This stands for the IPv4 address in its last four bytes, each bit inverted.
const TEREDO: Ipv6Net = v6(0x2001, 0, 0, 32);

/// What the address is, if it is not public, as a part of a sentence. IPv4 in IPv6 form must be unwrapped before.
pub(super) fn not_public(address: IpAddr) -> Option<String> {
    match address {
        IpAddr::V4(address) => not_public_v4(address),
        IpAddr::V6(address) => not_public_v6(address),
    }
}

fn not_public_v4(address: Ipv4Addr) -> Option<String> {
    let (net, what) = NOT_PUBLIC_V4.iter().find(|(net, _)| net.contains(&address))?;
    Some(format!("it is {what} ({net})"))
}

fn not_public_v6(address: Ipv6Addr) -> Option<String> {
    if let Some((net, what)) = NOT_PUBLIC_V6.iter().find(|(net, _)| net.contains(&address)) {
        return Some(format!("it is {what} ({net})"));
    }
    let inner = embedded(IpAddr::V6(address));
    if let Some((inner, reason)) = inner.and_then(|inner| Some((inner, not_public_v4(inner)?))) {
        return Some(format!("it stands for {inner}, and {reason}"));
    }
    let is_public = GLOBAL_UNICAST.contains(&address) || NAT64.contains(&address);
    (!is_public).then(|| format!("it is reserved (not in {GLOBAL_UNICAST})"))
}

/// The IPv4 address that a gateway makes of an IPv6 address.
pub(super) fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return None };
    if address.is_unspecified() || address.is_loopback() {
        return None;
    }
    let [.., a, b, c, d] = address.octets();
    if NAT64.contains(&address) || NAT64_LOCAL.contains(&address) || COMPATIBLE.contains(&address) {
        return Some(Ipv4Addr::new(a, b, c, d));
    }
    if TEREDO.contains(&address) {
        return Some(Ipv4Addr::new(!a, !b, !c, !d));
    }
    let [_, _, a, b, c, d, ..] = address.octets();
    SIX_TO_FOUR.contains(&address).then(|| Ipv4Addr::new(a, b, c, d))
}
