use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use Transport::{Plain, Tls};

fn targets(entries: &[&str]) -> Vec<Target> {
    entries.iter().map(|entry| entry.parse().unwrap()).collect()
}

fn rule(allow: &[&str], deny: &[&str]) -> Egress {
    Egress::new(targets(allow), targets(deny), false)
}

fn is_allowed(rule: &Egress, address: &str) -> bool {
    rule.check(Tls, "hooks.test", address.parse().unwrap()).is_ok()
}

#[test]
fn public_addresses_are_allowed() {
    for address in [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "168.63.129.15",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2001:200::1",
        "2606:4700:4700::1111",
        "2a00:1450:4001::1",
        "3ffe::1",
        // Public IPv4 in other forms: an IPv6-only network needs NAT64.
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
    ] {
        assert!(is_allowed(&Egress::default(), address), "{address}");
    }
}

#[test]
fn what_is_not_public_is_refused_and_named() {
    let check = |address: &str, what: &str| {
        let refused = Egress::default().check(Tls, "hooks.test", address.parse().unwrap());
        let reason = refused.expect_err(address).to_string();
        assert!(reason.contains(what), "{address}: {reason}");
    };
    check("0.0.0.0", "this machine");
    check("0.1.2.3", "this machine");
    check("10.0.0.1", "private (10.0.0.0/8)");
    check("10.255.255.255", "private");
    check("100.64.0.1", "NAT");
    check("100.100.100.200", "NAT");
    check("100.127.255.255", "NAT");
    check("127.0.0.1", "loopback");
    check("127.255.255.255", "loopback");
    check("168.63.129.16", "metadata");
    check("169.254.169.254", "metadata");
    check("169.254.0.1", "link-local");
    check("172.16.0.1", "private");
    check("172.31.255.255", "private");
    check("192.0.0.192", "reserved");
    check("192.0.2.1", "documentation");
    check("192.88.99.1", "reserved");
    check("192.168.255.255", "private");
    check("198.18.0.0", "benchmarks");
    check("198.19.255.255", "benchmarks");
    check("198.51.100.7", "documentation");
    check("203.0.113.7", "documentation");
    check("224.0.0.1", "multicast");
    check("239.255.255.255", "multicast");
    check("240.0.0.1", "reserved");
    check("255.255.255.255", "reserved");
    check("::", "this machine");
    check("::1", "loopback");
    check("fe80::1", "link-local");
    check("fc00::1", "private");
    check("fd00:ec2::254", "private");
    check("fdff:ffff::1", "private");
    check("fec0::1", "reserved");
    check("ff02::1", "multicast");
    check("100::1", "reserved");
    check("5f00::1", "reserved");
    check("4000::1", "reserved");
    check("2001:2::1", "reserved for protocols");
    check("2001:10::1", "reserved for protocols");
    check("2001:db8::1", "documentation");
    check("3fff:fff::1", "documentation");
}

#[test]
fn ipv4_inside_of_ipv6_is_judged_as_ipv4() {
    let check = |address: &str, what: &str| {
        let refused = Egress::default().check(Tls, "hooks.test", address.parse().unwrap());
        let reason = refused.expect_err(address).to_string();
        assert!(reason.contains(what), "{address}: {reason}");
    };
    check("::ffff:127.0.0.1", "the address 127.0.0.1 of hooks.test is not allowed: it is loopback");
    check("::ffff:169.254.169.254", "metadata");
    check("::127.0.0.1", "it stands for 127.0.0.1, and it is loopback");
    check("::8.8.8.8", "reserved");
    check("64:ff9b::10.0.0.1", "it stands for 10.0.0.1, and it is private");
    check("64:ff9b::169.254.169.254", "metadata");
    check("64:ff9b::0.0.0.0", "this machine");
    check("64:ff9b:1::10.0.0.1", "private (64:ff9b:1::/48)");
    check("64:ff9b:1::8.8.8.8", "private (64:ff9b:1::/48)");
    check("2002:7f00:1::1", "it stands for 127.0.0.1");
    check("2002:a9fe:a9fe::1", "metadata");
    check("2001:0:102:304:0:ffff:f5ff:fffe", "reserved for protocols");
}

#[test]
fn allowed_entries_win_over_what_is_not_public() {
    let rule = rule(&["10.0.0.0/8", "::1", "192.168.1.7", "hooks.internal", "*.company.internal"], &[]);
    for address in ["10.1.2.3", "::ffff:10.1.2.3", "::1", "192.168.1.7"] {
        assert!(is_allowed(&rule, address), "{address}");
    }
    // A gateway is allowed by its own address, not by what it leads to.
    for address in ["127.0.0.1", "192.168.1.8", "64:ff9b::10.1.2.3", "2002:a01:203::1"] {
        assert!(!is_allowed(&rule, address), "{address}");
    }
    let private = "172.16.0.1".parse().unwrap();
    for host in ["hooks.internal", "HOOKS.internal", "hooks.internal.", "a.company.internal", "a.b.Company.internal."] {
        assert_eq!(rule.check(Plain, host, private), Ok(()), "{host}");
    }
    for host in ["company.internal", "xhooks.internal", "a.hooks.internal", ".company.internal", "evilcompany.internal"]
    {
        assert!(rule.check(Tls, host, private).is_err(), "{host}");
    }
}

#[test]
fn denied_entries_win_over_everything() {
    let rule = Egress::new(
        targets(&["0.0.0.0/0", "::/0", "hooks.internal", "*.evil.test"]),
        targets(&["10.1.0.0/16", "8.8.8.8", "127.0.0.2", "2a00::/16", "*.evil.test"]),
        true,
    );
    for address in ["10.2.0.1", "127.0.0.1", "8.8.4.4", "2606::1", "fd00::1"] {
        assert!(is_allowed(&rule, address), "{address}");
    }
    for address in [
        "10.1.0.1",
        "::ffff:10.1.0.1",
        "::10.1.0.1",
        "64:ff9b::10.1.0.1",
        "64:ff9b:1::10.1.0.1",
        "2002:a01:1::",
        "2001:0:102:304:0:ffff:f5fe:fffe",
        "8.8.8.8",
        "127.0.0.2",
        "2a00::1",
    ] {
        assert!(!is_allowed(&rule, address), "{address}");
        assert!(rule.check(Tls, "hooks.internal", address.parse().unwrap()).is_err(), "{address}");
    }
    let public = "1.1.1.1".parse().unwrap();
    let refused = rule.check(Tls, "a.evil.test", public).unwrap_err();
    assert_eq!(refused.to_string(), "the host a.evil.test is not allowed: delivery.deny has *.evil.test");
    let refused = rule.check(Tls, "a.test", "10.1.0.1".parse().unwrap()).unwrap_err();
    assert_eq!(refused.to_string(), "the address 10.1.0.1 of a.test is not allowed: delivery.deny has 10.1.0.0/16");
}

#[test]
fn loopback_is_allowed_to_a_server_on_loopback() {
    let beside = Egress::new(Vec::new(), Vec::new(), true);
    for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
        assert_eq!(beside.check(Plain, "localhost", address.parse().unwrap()), Ok(()), "{address}");
    }
    for address in ["0.0.0.0", "::", "::127.0.0.1", "64:ff9b::127.0.0.1", "10.0.0.1"] {
        assert!(!is_allowed(&beside, address), "{address}");
    }
}

#[test]
fn plain_http_is_for_what_is_listed_and_for_loopback() {
    let listed = rule(&["hooks.test", "8.8.8.0/24"], &[]);
    let public = "1.1.1.1".parse().unwrap();
    assert_eq!(listed.check(Plain, "hooks.test", public), Ok(()));
    assert_eq!(listed.check(Plain, "other.test", "8.8.8.8".parse().unwrap()), Ok(()));
    assert_eq!(listed.check(Tls, "other.test", public), Ok(()));
    let refused = listed.check(Plain, "other.test", public).unwrap_err().to_string();
    assert_eq!(
        refused,
        "http:// is not allowed to the address 1.1.1.1 of other.test: use https://, or the operator can allow it in \
         delivery.allow"
    );
}

#[test]
fn what_can_never_be_allowed_is_known_before_a_name_is_resolved() {
    let strict = Egress::default();
    assert!(strict.check_host(Tls, "hooks.test").is_ok());
    assert!(strict.check_host(Plain, "hooks.test").is_err());
    assert!(strict.check_host(Tls, "1.1.1.1").is_ok());
    assert!(strict.check_host(Plain, "1.1.1.1").is_err());
    assert!(strict.check_host(Tls, "127.0.0.1").is_err());
    assert!(strict.check_host(Tls, "[::1]").is_err());
    assert!(strict.check_host(Tls, "[127.0.0.1]").is_err());
    assert!(strict.check_host(Tls, "[::ffff:127.0.0.1]").is_err());
    assert!(strict.check_host(Tls, "[2606:4700:4700::1111]").is_ok());
    // The name may lead to what is allowed.
    assert!(rule(&["10.0.0.0/8"], &[]).check_host(Plain, "hooks.test").is_ok());
    assert!(Egress::new(Vec::new(), Vec::new(), true).check_host(Plain, "localhost").is_ok());
    assert!(rule(&["other.test"], &[]).check_host(Plain, "hooks.test").is_err());
    assert!(rule(&[], &["hooks.test"]).check_host(Tls, "hooks.test").is_err());
}

#[test]
fn entries_are_read_and_written() {
    let check = |text: &str, written: &str| assert_eq!(text.parse::<Target>().unwrap().to_string(), written);
    check("10.0.0.0/8", "10.0.0.0/8");
    check("10.0.0.1", "10.0.0.1");
    check("10.0.0.1/32", "10.0.0.1");
    check("::1", "::1");
    check("FD00::/8", "fd00::/8");
    check("0.0.0.0/0", "0.0.0.0/0");
    check("::ffff:10.0.0.1", "10.0.0.1");
    check("::ffff:10.0.0.0/104", "10.0.0.0/8");
    check("Hooks.Internal", "hooks.internal");
    check("*.Company.internal", "*.company.internal");
    check("localhost", "localhost");
}

#[test]
fn a_wrong_entry_says_why() {
    let check = |text: &str, reason: &str| {
        let error = text.parse::<Target>().expect_err(text).to_string();
        assert!(error.contains(reason), "{text}: {error}");
    };
    check("10.0.0.0/33", "is not a network");
    check("10.0.0/8", "is not a network");
    check("http://a", "is not a network");
    check("10.0.0.1/8", "write the network \"10.0.0.0/8\" or the address \"10.0.0.1\"");
    check("127.1", "not an address in full");
    check("2130706433", "not an address in full");
    check("0x7f.0X1", "not an address in full");
    check("10.*", "neither a network");
    for other in ["", "*", "*.", "a..b", "a:80", "a b", "[::1]", "a.*.b", "**.a", ".a", "ä.test"] {
        check(other, "neither a network");
    }
}

proptest! {
    #[test]
    fn no_form_of_ipv6_hides_an_ipv4_address_that_is_not_public(bits: u32, rest: u64) {
        let inner = Ipv4Addr::from(bits);
        let refuses = |address: u128| is_refused(IpAddr::V6(Ipv6Addr::from(address)));
        let (v4, rest) = (u128::from(bits), u128::from(rest));
        if is_refused(IpAddr::V4(inner)) {
            prop_assert!(refuses(0xffff << 32 | v4));
            prop_assert!(refuses(0x0064_ff9b << 96 | v4));
            prop_assert!(refuses(0x2002 << 112 | v4 << 80 | rest));
        }
        prop_assert!(refuses(v4));
        prop_assert!(refuses(0x0064_ff9b_0001 << 80 | rest << 32 | v4));
        prop_assert!(refuses(0x2001_0000 << 96 | rest << 32 | v4 ^ 0xffff_ffff));
    }

    #[test]
    fn the_rule_agrees_with_the_standard_library(bits: u32) {
        let address = Ipv4Addr::from(bits);
        let special = address.is_private()
            || address.is_loopback()
            || address.is_link_local()
            || address.is_broadcast()
            || address.is_documentation()
            || address.is_multicast()
            || address.is_unspecified();
        prop_assert!(!special || is_refused(address.into()));
    }

    #[test]
    fn only_global_unicast_is_public_ipv6(bits: u128) {
        let address = Ipv6Addr::from(bits);
        let is_global = bits >> 125 == 1 || bits >> 32 == 0xffff || bits >> 32 == 0x0064_ff9b << 64;
        prop_assert!(is_global || is_refused(address.into()), "{address}");
    }

    #[test]
    fn what_is_denied_is_refused_whatever_is_allowed(bits: u32, prefix in 0u8..=32) {
        let address = Ipv4Addr::from(bits);
        let network = ipnet::Ipv4Net::new(address, prefix).unwrap().trunc().to_string();
        let rule = Egress::new(targets(&["0.0.0.0/0", "::/0", "a.test"]), targets(&[&network]), true);
        prop_assert!(rule.check(Tls, "a.test", address.into()).is_err());
        prop_assert!(rule.check(Tls, "a.test", address.to_ipv6_mapped().into()).is_err());
        prop_assert!(rule.check(Tls, "a.test", address.to_ipv6_compatible().into()).is_err() || bits <= 1);
    }

    #[test]
    fn entries_survive_being_written(text in "[a-z*.0-9/:]{1,20}") {
        if let Ok(target) = text.parse::<Target>() {
            prop_assert_eq!(target.to_string().parse::<Target>().unwrap(), target);
        }
    }
}

fn is_refused(address: IpAddr) -> bool {
    Egress::default().check(Tls, "hooks.test", address).is_err()
}
