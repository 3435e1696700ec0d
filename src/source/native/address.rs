//! Which addresses are public: the ones that `fetch` may reach behind a host name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is of the public Internet: not this machine, not its network, not a cloud's metadata service, and not
/// an IPv6 form of such an IPv4 address.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_unspecified()
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b)) // carrier-grade NAT
        || (a == 198 && (18..20).contains(&b)) // benchmarks
        || (a == 192 && b == 0 && c == 0); // protocol assignments
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(v4) = address.to_ipv4_mapped() {
        return is_public_v4(v4);
    }
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        [0x64, 0xff9b, ..] => is_public_v4(embedded(segments[6], segments[7])), // NAT64
        [0x2002, high, low, ..] => is_public_v4(embedded(high, low)),           // 6to4
        [0x2001, 0..=0x1ff | 0xdb8, ..] => false, // protocol assignments such as Teredo; documentation
        _ => segments[0] & 0xe000 == 0x2000,      // global unicast is 2000::/3 alone
    }
}

#[cfg(test)]
mod tests {
    use super::is_public;

    #[test]
    fn only_public_addresses_are_public() {
        for text in [
            "127.0.0.1",
            "127.8.8.8",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.0.192",
            "203.0.113.1",
            "240.0.0.1",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001::1",
            "64:ff9b:1::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in
            ["1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "64:ff9b::101:101", "2002:808:808::"]
        {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }
}
